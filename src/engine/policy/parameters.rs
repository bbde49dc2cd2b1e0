//! Checks a call's arguments, as far as the tool's settings state what they mean.
//!
//! Nothing here knows any tool: `mcp.json` states which arguments are recipients, single lines and times.

use serde_json::Value;

use crate::domain::address::{Recipients, recipients};
use crate::domain::argument_path::ArgumentPath;
use crate::domain::definition::quoted;
use crate::domain::text::is_visible;
use crate::domain::tool::Tool;
use crate::engine::policy::Bounds;
use crate::engine::policy::undeclared_arguments::undeclared_arguments;

/// Valid arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The recipients of the call; `None` if the tool's settings name none.
    pub recipients: Option<Recipients>,
    /// True if an argument is present that a grant cannot cover.
    pub ungrantable: bool,
    /// True if an argument that the tool's schema does not declare contains a possible address.
    pub reaches_others: bool,
    /// Warnings for the approver.
    pub warnings: Vec<String>,
}

/// Checks recipients, single lines and times.
///
/// # Errors
/// Each error names its place, the value found and what is allowed.
pub(super) fn check(tool: &Tool, arguments: &Value, bounds: &Bounds<'_>) -> Result<Parameters, Vec<String>> {
    let most = bounds.policy.most_recipients;
    let (mut parameters, mut errors) = (Parameters::default(), Vec::new());
    if !tool.recipients.is_empty() {
        match recipients(&tool.recipients, arguments, most, || needs_recipients(tool)) {
            Ok(checked) => {
                parameters.recipients = Some(checked.recipients);
                parameters.warnings = checked.warnings;
            }
            Err(wrong) => errors = wrong,
        }
        let undeclared_arguments = undeclared_arguments(tool, arguments);
        errors.extend(undeclared_arguments.errors);
        parameters.reaches_others = !undeclared_arguments.uncovered.is_empty();
        parameters.ungrantable = parameters.reaches_others;
        let uncovered =
            |place| format!("{place}: the tool's schema does not declare this argument, so a grant cannot cover it");
        parameters
            .warnings
            .extend(undeclared_arguments.uncovered.into_iter().map(uncovered));
    }
    for path in &tool.always_ask {
        match path.values(arguments) {
            Ok(found) => {
                parameters.ungrantable |= !found.is_empty();
                let uncovered = |(place, _)| {
                    format!(
                        "{place}: a grant cannot cover a call with this argument, since it has effects beyond the recipients"
                    )
                };
                parameters.warnings.extend(found.into_iter().map(uncovered));
            }
            Err(error) => errors.push(error),
        }
    }
    for path in &tool.single_line {
        errors.extend(not_one_line(path, arguments));
    }
    if let Some(times) = &tool.times {
        match times.check(arguments, bounds.zone, bounds.now_us) {
            Ok(warnings) => parameters.warnings.extend(warnings),
            Err(wrong) => errors.extend(wrong),
        }
    }
    if errors.is_empty() { Ok(parameters) } else { Err(errors) }
}

/// A tool that requires one of its recipient arguments requires at least one recipient.
fn needs_recipients(tool: &Tool) -> bool {
    let schema = tool.input.value();
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|required| {
        tool.recipients
            .iter()
            .any(|path| required.iter().any(|name| name == path.argument()))
    })
}

/// A line of a message header must not end early and start another header, nor decode to other text: approvers do not
/// read the encoded words of RFC 2047.
fn not_one_line(path: &ArgumentPath, arguments: &Value) -> Vec<String> {
    let texts = match path.texts(arguments) {
        Ok(texts) => texts,
        Err(error) => return vec![error],
    };
    let breaks = |text: &str| text.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'));
    let why = |text: &str| match text {
        _ if breaks(text) => Some("line ends or control characters"),
        _ if !is_visible(text) => Some("invisible characters, or marks that change the writing direction"),
        _ if text.contains("=?") && text.contains("?=") => {
            Some("an encoded word (=?…?=), which is displayed as other text")
        }
        _ => None,
    };
    let wrong = texts
        .into_iter()
        .filter_map(|(place, text)| Some((place, text, why(text)?)));
    wrong
        .map(|(place, text, why)| format!("{place}: {} contains {why}; allowed: one line of text", quoted(text)))
        .collect()
}

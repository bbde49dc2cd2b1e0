//! What a call's parameters say, as far as the tool's settings tell what they mean.
//!
//! Nothing here knows any tool: `mcp.json` says which arguments are recipients, lines and times.

use serde_json::Value;

use crate::domain::address::{Recipients, recipients};
use crate::domain::argument_path::ArgumentPath;
use crate::domain::definition::quoted;
use crate::domain::text::is_visible;
use crate::domain::tool::Tool;
use crate::engine::policy::Bounds;
use crate::engine::policy::undeclared_arguments::undeclared_arguments;

/// Parameters that were found right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Whom the call reaches; `None` where the tool's settings name no recipients.
    pub recipients: Option<Recipients>,
    /// It gives an argument that leave for good does not cover.
    pub ungrantable: bool,
    /// It gives what could be an address in a place that the tool's schema does not name.
    pub reaches_others: bool,
    /// What an approver should know, in words.
    pub warnings: Vec<String>,
}

/// Checks recipients, lines and times.
///
/// # Errors
/// Each with its place, what was found and what is allowed.
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
            |place| format!("{place}: the tool's schema does not name this, so leave for good does not cover it");
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
                        "{place}: leave for good does not cover a call that gives this, which takes it further than its recipients say"
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

/// A tool that cannot be called without one of its recipients' arguments cannot be called without a recipient.
fn needs_recipients(tool: &Tool) -> bool {
    let schema = tool.input.value();
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|required| {
        tool.recipients
            .iter()
            .any(|path| required.iter().any(|name| name == path.argument()))
    })
}

/// What stands in a line of a message's head could end that line and begin another, or be read as something else: RFC 2047 has
/// encoded words there, which whoever approves does not read.
fn not_one_line(path: &ArgumentPath, arguments: &Value) -> Vec<String> {
    let texts = match path.texts(arguments) {
        Ok(texts) => texts,
        Err(error) => return vec![error],
    };
    let breaks = |text: &str| text.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'));
    let why = |text: &str| match text {
        _ if breaks(text) => Some("line ends or control characters"),
        _ if !is_visible(text) => Some("characters that nobody can see, or marks that turn the writing direction"),
        _ if text.contains("=?") && text.contains("?=") => {
            Some("an encoded word (=?…?=), which is shown as something else")
        }
        _ => None,
    };
    let wrong = texts
        .into_iter()
        .filter_map(|(place, text)| Some((place, text, why(text)?)));
    wrong
        .map(|(place, text, why)| format!("{place}: {} holds {why}; allowed: one line of text", quoted(text)))
        .collect()
}

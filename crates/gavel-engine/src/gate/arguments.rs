//! Checks a call's arguments, as far as the tool's settings state what they mean.
//!
//! Nothing here knows any tool: `mcp.json` states which arguments are recipients, single lines, times, and free.

use chrono_tz::Tz;
use serde_json::Value;

use super::undeclared;
use crate::domain::address::{Recipients, recipients};
use crate::domain::argument_path::{self, ArgumentPath};
use crate::domain::definition::quoted;
use crate::domain::text::is_visible;
use crate::domain::tool::Tool;

/// Maximum number of arguments that the text about a call without a grant names.
const MOST_NAMED: usize = 8;

/// What valid arguments contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The recipients of the call; `None` if the tool's settings name none.
    pub recipients: Option<Recipients>,
    /// Does the call have arguments besides its recipients that are not declared free? No grant covers it then.
    pub ungrantable: bool,
    /// Does it have such arguments, and a value that the tool's schema does not describe? Then it may reach others than
    /// its recipients.
    pub uncertain: bool,
    /// Warnings for the approver.
    pub warnings: Vec<String>,
}

/// Checks recipients, single lines and times. `most` is the maximum number of recipients.
///
/// # Errors
/// Each error names its place, the value found and what is allowed.
pub(super) fn check(
    tool: &Tool,
    arguments: &Value,
    most: usize,
    zone: Option<Tz>,
    now_us: i64,
) -> Result<Findings, Vec<String>> {
    let (mut findings, mut errors) = (Findings::default(), Vec::new());
    if !tool.settings.recipients.is_empty() {
        match recipients(&tool.settings.recipients, arguments, most, || needs_recipients(tool)) {
            Ok(checked) => {
                findings.recipients = Some(checked.recipients);
                findings.warnings = checked.warnings;
            }
            Err(invalid) => errors = invalid,
        }
        let schema = undeclared::search(&tool.input.value(), arguments);
        errors.extend(schema.errors);
        let others = others(tool, arguments);
        findings.ungrantable = !others.is_empty();
        findings.uncertain = findings.ungrantable && schema.is_open;
        findings.warnings.extend(without_grant(&others));
    }
    for path in &tool.settings.single_line {
        errors.extend(not_one_line(path, arguments));
    }
    if let Some(times) = &tool.settings.times {
        match times.check(arguments, zone, now_us) {
            Ok(warnings) => findings.warnings.extend(warnings),
            Err(invalid) => errors.extend(invalid),
        }
    }
    if errors.is_empty() { Ok(findings) } else { Err(errors) }
}

/// The places of the values that are neither recipients, nor free, nor set by gavel.
fn others(tool: &Tool, arguments: &Value) -> Vec<String> {
    let mut others = argument_path::others(&tool.settings.recipients, &tool.settings.free_arguments, arguments);
    if let Some(name) = &tool.identity_argument {
        let own = argument_path::pointer("", name);
        others.retain(|place| *place != own);
    }
    others
}

/// Tells the approver why the call can be approved only once.
fn without_grant(others: &[String]) -> Option<String> {
    let named: Vec<_> = others.iter().take(MOST_NAMED).map(|place| quoted(place)).collect();
    let named = named.join(", ");
    let more = match others.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!others.is_empty()).then(|| {
        format!(
            "a grant cannot cover this call: besides the recipients it sets {named}{more}, which are not declared free"
        )
    })
}

/// A tool that requires one of its recipient arguments requires at least one recipient.
fn needs_recipients(tool: &Tool) -> bool {
    let schema = tool.input.value();
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|required| {
        tool.settings
            .recipients
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
    let invalid = texts
        .into_iter()
        .filter_map(|(place, text)| Some((place, text, why(text)?)));
    invalid
        .map(|(place, text, why)| format!("{place}: {} contains {why}; allowed: one line of text", quoted(text)))
        .collect()
}

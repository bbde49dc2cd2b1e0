//! The texts and values that a call sets.

use gavel_mcp_base::{Arguments, Code as Common, ToolError, invalid, missing, text};
use rmcp::model::JsonObject;

use super::target::required;
use crate::marker;

/// GitHub's limit, in characters.
const MAX_TITLE: usize = 256;
/// GitHub's limit of 65,536 characters, less room for a marker.
const MAX_BODY: usize = 65_000;
const MAX_LABELS: usize = 100;
const MAX_LABEL: usize = 50;
const MAX_ASSIGNEES: usize = 10;
const MAX_LOGIN: usize = 100;

pub(super) fn title(arguments: &Arguments) -> Result<String, ToolError> {
    required(arguments, "title", MAX_TITLE)
}

/// A title that may be absent, but not empty.
pub(super) fn new_title(arguments: &Arguments) -> Result<Option<String>, ToolError> {
    arguments.visible_text("title", MAX_TITLE)
}

/// A body, without markers.
pub(super) fn body(arguments: &Arguments) -> Result<Option<String>, ToolError> {
    let Some(body) = arguments.exact_text("body")? else {
        return Ok(None);
    };
    let length = body.chars().count();
    if length > MAX_BODY {
        let words = format!("`body` has {length} characters; at most {MAX_BODY} are allowed.");
        let error = ToolError::new(Common::TooLong, words).about("body");
        return Err(error.with("max", MAX_BODY).with("length", length));
    }
    Ok(Some(marker::removed(body)))
}

pub(super) fn labels(arguments: &Arguments) -> Result<Option<Vec<String>>, ToolError> {
    names(arguments, "labels", MAX_LABELS, MAX_LABEL)
}

pub(super) fn assignees(arguments: &Arguments) -> Result<Option<Vec<String>>, ToolError> {
    names(arguments, "assignees", MAX_ASSIGNEES, MAX_LOGIN)
}

fn names(arguments: &Arguments, name: &str, max: usize, longest: usize) -> Result<Option<Vec<String>>, ToolError> {
    let Some(items) = arguments.list(name, max)? else {
        return Ok(None);
    };
    let names = items.iter().map(|item| {
        let item = item.as_str().map(str::trim);
        let valid = item.filter(|item| {
            !text::is_blank(item) && item.chars().count() <= longest && !item.contains(char::is_control)
        });
        let rule = || invalid(name, &format!("has to list names of 1 to {longest} characters"));
        valid.map(str::to_owned).ok_or_else(rule)
    });
    names.collect::<Result<_, _>>().map(Some)
}

pub(super) fn state(arguments: &Arguments) -> Result<Option<&'static str>, ToolError> {
    arguments.choice("state", &[("open", "open"), ("closed", "closed")])
}

/// The argument `updates`: an object with at least one of the allowed members.
pub(super) fn updates(arguments: &Arguments, allowed: &[&str]) -> Result<Arguments, ToolError> {
    let given: &JsonObject = arguments.object("updates")?.ok_or_else(|| missing("updates"))?;
    if given.values().all(serde_json::Value::is_null) {
        let rule = format!("has to have at least one of: {}", allowed.join(", "));
        return Err(invalid("updates", &rule));
    }
    Arguments::new(Some(given.clone()), allowed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_or_unknown_updates_are_refused() {
        let updated = |given: serde_json::Value| {
            let arguments = Arguments::new(given.as_object().cloned(), &["updates"]).expect("known");
            updates(&arguments, &["title", "state"]).map_err(|error| error.code())
        };
        assert_eq!(updated(json!({})).unwrap_err(), "missing_argument");
        assert_eq!(updated(json!({ "updates": {} })).unwrap_err(), "invalid_argument");
        assert_eq!(
            updated(json!({ "updates": { "title": null } })).unwrap_err(),
            "invalid_argument"
        );
        assert_eq!(
            updated(json!({ "updates": { "colour": 1 } })).unwrap_err(),
            "unknown_argument"
        );
        assert!(updated(json!({ "updates": { "title": "x" } })).is_ok());
    }
}

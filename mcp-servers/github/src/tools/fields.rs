//! The texts and values that a call sets.

use gavel_mcp_base::{ToolError, invalid, too_long};

use crate::marker;

/// GitHub's limit, in characters.
pub(super) const MAX_TITLE: usize = 256;
/// GitHub's limit of 65,536 characters, less room for a marker.
const MAX_BODY: usize = 65_000;

/// A body, without markers.
pub(super) fn body(body: &str) -> Result<String, ToolError> {
    let length = body.chars().count();
    match length > MAX_BODY {
        true => Err(too_long("body", length, MAX_BODY, "characters")),
        false => Ok(marker::removed(body)),
    }
}

/// Names, one line each.
pub(super) fn names(name: &str, names: Option<Vec<String>>) -> Result<Option<Vec<String>>, ToolError> {
    match names.iter().flatten().any(|name| name.contains(char::is_control)) {
        true => Err(invalid(name, "has to list names of one line")),
        false => Ok(names),
    }
}

/// Checks that there is something to change; `allowed` names what can be.
pub(super) fn some<T: Default + PartialEq>(updates: T, allowed: &str) -> Result<T, ToolError> {
    match updates == T::default() {
        true => Err(invalid("updates", &format!("has to have at least one of: {allowed}"))),
        false => Ok(updates),
    }
}

//! Files attached to an e-mail. They are text, since models write text and approvers can read it; the file name's
//! ending gives the type.

use gavel_mcp_base::{ToolError, invalid};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::address::is_unsafe;

pub(crate) const MOST: usize = 10;

/// The allowed endings of names, and their media types.
const KINDS: [(&str, &str); 7] = [
    (".txt", "text/plain"),
    (".log", "text/plain"),
    (".md", "text/markdown"),
    (".csv", "text/csv"),
    (".tsv", "text/tab-separated-values"),
    (".ics", "text/calendar"),
    (".json", "application/json"),
];

/// A text file.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) filename: String,
    pub(crate) media_type: &'static str,
    pub(crate) text: String,
}

// A text file, as it is given.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Given {
    /// Its name, such as numbers.csv.
    #[schemars(length(min = 1, max = 100))]
    filename: String,
    /// Its content, in UTF-8.
    #[schemars(extend("x-exact" = true))]
    text: String,
}

/// What the argument is, for models.
pub(crate) fn description() -> String {
    format!("Text files to attach. Their names end in {}.", endings())
}

/// The files of the argument `attachments`.
///
/// # Errors
/// The broken rule, with its place.
pub(crate) fn attachments(given: Vec<Given>) -> Result<Vec<Attachment>, ToolError> {
    let given = given.into_iter().enumerate();
    given.map(|(at, file)| attachment(at, file)).collect()
}

fn attachment(at: usize, file: Given) -> Result<Attachment, ToolError> {
    let Given { filename, text } = file;
    let name_at = format!("attachments/{at}/filename");
    // A file name must not be a path, have a meaning for a shell, or be displayed differently from how it reads.
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '\u{300}'..='\u{36f}') || " ._-+()[]&,'!#=@".contains(c);
    // The ending must be visible next to the rest: no invisible character or gap may push it out of sight.
    let is_seen = |c: char| plain(c) && !is_unsafe(c);
    if filename.starts_with('.') || !filename.chars().all(is_seen) || filename.contains("  ") {
        return Err(invalid(
            &name_at,
            "has to be the plain name of a file: letters, digits, single spaces and ._-+()[]&,'!#=@",
        ));
    }
    let lower = filename.to_lowercase();
    let kind = KINDS.iter().find(|(end, _)| lower.ends_with(end));
    let (_, media_type) = kind.ok_or_else(|| invalid(&name_at, &format!("has to end in {}", endings())))?;
    Ok(Attachment {
        filename,
        media_type,
        text,
    })
}

fn endings() -> String {
    KINDS.map(|(end, _)| end).join(", ")
}

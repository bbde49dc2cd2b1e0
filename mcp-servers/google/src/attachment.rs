//! Files attached to an e-mail. They are text, since models write text and approvers can read it; the file name's
//! ending gives the type.

use gavel_mcp_base::{Arguments, ToolError, invalid, missing};
use serde_json::{Value, json};

use crate::address::is_unsafe;

pub(crate) const MOST: usize = 10;
const MAX_NAME: usize = 100;

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

/// The schema of the argument.
pub(crate) fn schema() -> Value {
    json!({
        "type": "array",
        "maxItems": MOST,
        "description": format!("Text files to attach. Their names end in {}.", endings()),
        "items": {
            "type": "object",
            "properties": {
                "filename": { "type": "string", "description": "Its name, such as numbers.csv." },
                "text": { "type": "string", "description": "Its content, in UTF-8." }
            },
            "required": ["filename", "text"],
            "additionalProperties": false
        }
    })
}

/// Parses the argument `attachments`.
///
/// # Errors
/// The broken rule, with its place.
pub(crate) fn attachments(arguments: &Arguments) -> Result<Vec<Attachment>, ToolError> {
    let items = arguments.list("attachments", MOST)?.unwrap_or_default();
    items
        .iter()
        .enumerate()
        .map(|(at, item)| attachment(at, item))
        .collect()
}

fn attachment(at: usize, item: &Value) -> Result<Attachment, ToolError> {
    let place = format!("attachments/{at}");
    let item = item.as_object().ok_or_else(|| invalid(&place, "has to be an object"))?;
    let item = Arguments::new(Some(item.clone()), &["filename", "text"]).map_err(|error| error.about(&place))?;
    let name_at = format!("{place}/filename");
    let filename = item
        .visible_text("filename", MAX_NAME)
        .map_err(|error| error.about(&name_at))?
        .ok_or_else(|| missing(&name_at))?;
    let text = item.exact_text("text").map_err(|error| error.about(&place))?;
    let text = text.ok_or_else(|| missing(&format!("{place}/text")))?.to_owned();
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

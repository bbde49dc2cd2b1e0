//! `read_file`

use std::io::{self, BufRead, BufReader};

use gavel_mcp_base::ToolError;
use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{schema, whole_number};
use crate::budget::{Bounded, Budget};
use crate::error::{self, Code};
use crate::path::Given;
use crate::root::{Node, Root};

pub(super) const NAME: &str = "read_file";

const MAX_LINES: u32 = 2000;
/// Encoded as JSON, a text has more bytes; clients that keep 256 KiB of an answer must get a complete page.
const MAX_BYTES: usize = 192 * 1024;
const MAX_OFFSET: u32 = 1_000_000_000;
/// A NUL among a file's first bytes makes it binary, as in git.
const SNIFFED: usize = 8 * 1024;

const DESCRIPTION: &str = "\
Read a text file by lines: from line offset on (the first is 1), at most limit of them and at most 192 \
KiB. content is the text as it is, lines first_line to last_line. When next_offset is present the file \
continues: call again with it. A binary file is only named as such, with its size.";

pub(super) fn tool() -> Tool {
    schema::tool(
        NAME,
        "Read a file",
        DESCRIPTION,
        schema::input(
            json!({
                "path": {
                    "type": "string",
                    "description": "The file, relative to the folder that is served, without `..`."
                },
                "offset": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_OFFSET,
                    "description": "The first line to read. 1 when left out."
                },
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_LINES,
                    "description": "How many lines to read at most. 2000 when left out."
                }
            }),
            &["path"],
        ),
        schema::output(
            json!({
                "path": { "type": "string" },
                "kind": { "type": "string", "enum": ["text", "binary"] },
                "size": schema::count("Of the whole file, in bytes."),
                "content": { "type": "string", "description": "The lines. Absent for a binary file." },
                "first_line": schema::count("Number of the first line in content; 0 if there is none."),
                "last_line": schema::count("Number of the last line in content; 0 if there is none."),
                "next_offset": schema::count("The line that comes next. Present when the file continues."),
                "total_lines": schema::count("How many lines the file has. Present when its end was reached."),
                "cut": { "type": "boolean", "description": "true when the line is longer than 192 KiB; its end was left out." },
                "invalid_utf8": {
                    "type": "boolean",
                    "description": "true when content differs from the file: bytes that are not UTF-8 became U+FFFD."
                }
            }),
            &["path", "kind", "size"],
        ),
    )
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    path: Given,
    #[serde(default, deserialize_with = "whole_number::<MAX_OFFSET, _>")]
    offset: Option<u32>,
    #[serde(default, deserialize_with = "whole_number::<MAX_LINES, _>")]
    limit: Option<u32>,
}

#[derive(Debug, Serialize)]
pub(super) struct Answer {
    path: String,
    size: u64,
    #[serde(flatten)]
    content: Content,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Content {
    Binary,
    Text(Page),
}

#[derive(Debug, PartialEq, Serialize)]
struct Page {
    content: String,
    first_line: u32,
    last_line: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_lines: Option<u32>,
    #[serde(skip_serializing_if = "super::is_false")]
    cut: bool,
    #[serde(skip_serializing_if = "super::is_false")]
    invalid_utf8: bool,
}

impl Request {
    pub(super) fn carry_out(self, root: &Root, budget: &Budget) -> Result<Answer, ToolError> {
        let path = self.path.parse()?;
        let Node::File(file, metadata) = root.node(&path)? else {
            return Err(ToolError::new(
                Code::NotAFile,
                format!("`{path}` is a folder. ls lists it."),
            ));
        };
        let reader = BufReader::with_capacity(64 * 1024, Bounded { inner: file, budget });
        let (offset, limit) = (self.offset.unwrap_or(1), self.limit.unwrap_or(MAX_LINES));
        match read(reader, offset, limit) {
            Ok(Ok(content)) => Ok(Answer {
                path: path.to_string(),
                size: metadata.len(),
                content,
            }),
            Ok(Err(PastTheEnd(lines))) => Err(ToolError::new(
                Code::PastTheEnd,
                format!("`{path}` has {lines} lines; there is no line {offset}."),
            )),
            Err(error) => Err(error::of(&error, &path.to_string())),
        }
    }
}

/// The file has fewer lines than the offset; this many.
#[derive(Debug, PartialEq)]
struct PastTheEnd(u32);

fn read(mut file: impl BufRead, offset: u32, limit: u32) -> io::Result<Result<Content, PastTheEnd>> {
    let start = file.fill_buf()?;
    if start.iter().take(SNIFFED).any(|byte| *byte == 0) {
        return Ok(Ok(Content::Binary));
    }
    let is_empty = start.is_empty();
    for skipped in 0..offset - 1 {
        if !skip_line(&mut file)? {
            return Ok(Err(PastTheEnd(skipped)));
        }
    }
    if file.fill_buf()?.is_empty() && !(is_empty && offset == 1) {
        return Ok(Err(PastTheEnd(offset - 1)));
    }
    let mut bytes = Vec::new();
    let mut lines = 0;
    let mut cut = false;
    let mut continues = false;
    while lines < limit {
        let before = bytes.len();
        match take_line(&mut file, &mut bytes)? {
            Taken::Nothing => break,
            Taken::Line => lines += 1,
            // The next call begins with it.
            Taken::TooLong if lines > 0 => {
                bytes.truncate(before);
                continues = true;
                break;
            }
            // Even alone it does not fit into any call, so its end cannot be read.
            Taken::TooLong => {
                lines = 1;
                cut = true;
                cut_at_a_character(&mut bytes);
                skip_line(&mut file)?;
                break;
            }
        }
    }
    // So far only the first bytes were checked for NUL, which no text contains.
    if bytes.contains(&0) {
        return Ok(Ok(Content::Binary));
    }
    continues = continues || !file.fill_buf()?.is_empty();
    let next = offset + lines;
    let (content, invalid_utf8) = match String::from_utf8(bytes) {
        Ok(content) => (content, false),
        Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
    };
    Ok(Ok(Content::Text(Page {
        content,
        first_line: if lines == 0 { 0 } else { offset },
        last_line: next - 1,
        next_offset: continues.then_some(next),
        total_lines: (!continues).then_some(next - 1),
        cut,
        invalid_utf8,
    })))
}

/// Returns whether there was a line to skip. The line is not kept in memory, however long it is.
fn skip_line(file: &mut impl BufRead) -> io::Result<bool> {
    Ok(file.skip_until(b'\n')? > 0)
}

enum Taken {
    Nothing,
    Line,
    TooLong,
}

/// Appends a line with its line break, up to the remaining room.
fn take_line(file: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<Taken> {
    let room = MAX_BYTES - bytes.len();
    let read = io::Read::take(&mut *file, room as u64).read_until(b'\n', bytes)?;
    if bytes.last() == Some(&b'\n') && read > 0 {
        return Ok(Taken::Line);
    }
    // Either the file or the room has ended.
    if !file.fill_buf()?.is_empty() {
        return Ok(Taken::TooLong);
    }
    Ok(if read == 0 { Taken::Nothing } else { Taken::Line })
}

/// The room may have ended inside a character.
fn cut_at_a_character(bytes: &mut Vec<u8>) {
    if let Err(error) = std::str::from_utf8(bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
}

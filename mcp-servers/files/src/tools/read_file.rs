//! `read_file`

use std::io::{self, BufRead, BufReader};

use gavel_mcp_base::{Tool, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::budget::{Bounded, Budget};
use crate::error::{self, Code};
use crate::path::Given;
use crate::root::{Node, Root};
use crate::server::Files;

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

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// The file, relative to the folder that is served, without `..`.
    path: Given,
    /// The first line to read. 1 when left out.
    #[schemars(range(min = 1, max = MAX_OFFSET))]
    offset: Option<u32>,
    /// How many lines to read at most. 2000 when left out.
    #[schemars(range(min = 1, max = MAX_LINES))]
    limit: Option<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Answer {
    path: String,
    kind: ContentKind,
    /// Of the whole file, in bytes.
    size: u64,
    #[serde(flatten)]
    page: Page,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ContentKind {
    Text,
    Binary,
}

/// Empty for a binary file.
#[derive(Debug, Default, PartialEq, Serialize, JsonSchema)]
struct Page {
    /// The lines. Absent for a binary file.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    /// Number of the first line in content; 0 if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_line: Option<u32>,
    /// Number of the last line in content; 0 if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_line: Option<u32>,
    /// The line that comes next. Present when the file continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u32>,
    /// How many lines the file has. Present when its end was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_lines: Option<u32>,
    /// true when the line is longer than 192 KiB; its end was left out.
    #[serde(skip_serializing_if = "super::is_false")]
    cut: bool,
    /// true when content differs from the file: bytes that are not UTF-8 became U+FFFD.
    #[serde(skip_serializing_if = "super::is_false")]
    invalid_utf8: bool,
}

pub(super) fn tool() -> Tool<Files> {
    super::tool("read_file", "Read a file", DESCRIPTION, read_file)
}

fn read_file(arguments: Arguments, root: &Root, budget: &Budget) -> Result<Answer, ToolError> {
    let path = arguments.path.parse()?;
    let Node::File(file, metadata) = root.node(&path)? else {
        return Err(ToolError::new(
            Code::NotAFile,
            format!("`{path}` is a folder. ls lists it."),
        ));
    };
    let reader = BufReader::with_capacity(64 * 1024, Bounded { inner: file, budget });
    let (offset, limit) = (arguments.offset.unwrap_or(1), arguments.limit.unwrap_or(MAX_LINES));
    match read(reader, offset, limit) {
        Ok(Ok(page)) => Ok(Answer {
            path: path.to_string(),
            kind: page.as_ref().map_or(ContentKind::Binary, |_| ContentKind::Text),
            size: metadata.len(),
            page: page.unwrap_or_default(),
        }),
        Ok(Err(PastTheEnd(lines))) => Err(ToolError::new(
            Code::PastTheEnd,
            format!("`{path}` has {lines} lines; there is no line {offset}."),
        )),
        Err(error) => Err(error::of(&error, &path.to_string())),
    }
}

/// The file has fewer lines than the offset; this many.
#[derive(Debug, PartialEq)]
struct PastTheEnd(u32);

/// A part of a text; `None` for a binary file.
fn read(mut file: impl BufRead, offset: u32, limit: u32) -> io::Result<Result<Option<Page>, PastTheEnd>> {
    let start = file.fill_buf()?;
    if start.iter().take(SNIFFED).any(|byte| *byte == 0) {
        return Ok(Ok(None));
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
        return Ok(Ok(None));
    }
    continues = continues || !file.fill_buf()?.is_empty();
    let next = offset + lines;
    let (content, invalid_utf8) = match String::from_utf8(bytes) {
        Ok(content) => (content, false),
        Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
    };
    Ok(Ok(Some(Page {
        content: Some(content),
        first_line: Some(if lines == 0 { 0 } else { offset }),
        last_line: Some(next - 1),
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

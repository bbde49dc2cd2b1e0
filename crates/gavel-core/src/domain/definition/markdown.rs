//! Markdown with YAML front matter: fields between two lines `---`, then the system prompt.
//!
//! The text is kept unchanged. One blank line before it and the last line break belong to the file, not to the text.

use super::Definition;
use super::read::{self, Refused, Text};
use gavel_reading::{Content, Node};

/// Parses a definition from text with LF line ends.
pub(super) fn read(text: &str, file: &str) -> read::Result {
    let fail = |line, found, allowed| Err(Refused::whole(file, line, "front matter", found, allowed));
    let Some(parts) = split(text) else {
        let first = gavel_reading::quoted(text.lines().next().unwrap_or_default());
        return fail(
            Some(1),
            first,
            "a first line `---`, the fields, and a closing line `---`",
        );
    };
    let (root, mut twice) = match Node::parse_all(parts.front_matter) {
        Ok(read) => read,
        Err(error) => {
            let line = error.line.map(|line| line + 1);
            let (found, allowed) = error.describe("YAML");
            return fail(line, found, allowed);
        }
    };
    // Line 1 of the front matter is line 2 of the file.
    let root = root.moved(1);
    twice.iter_mut().for_each(|key| key.line += 1);
    let body = Node {
        line: parts.body_line,
        content: Content::Text(parts.body.strip_suffix('\n').unwrap_or(parts.body).to_owned()),
    };
    let body = (!parts.body.trim().is_empty()).then_some(&body);
    read::read(&root, body, Text { file, text, twice })
}

struct Parts<'a> {
    front_matter: &'a str,
    body: &'a str,
    body_line: u64,
}

fn split(text: &str) -> Option<Parts<'_>> {
    let rest = text.strip_prefix("---")?;
    let rest = rest.trim_start_matches([' ', '\t']).strip_prefix('\n')?;
    let mut at = 0;
    for (n, line) in rest.split_inclusive('\n').enumerate() {
        if line.trim_end() == "---" {
            let body = &rest[at + line.len()..];
            let blank = body.lines().take_while(|line| line.trim().is_empty()).count();
            let body_line = (n + 3 + blank) as u64;
            return Some(Parts {
                front_matter: &rest[..at],
                body: body.strip_prefix('\n').unwrap_or(body),
                body_line,
            });
        }
        at += line.len();
    }
    None
}

/// The text below the front matter; `None` if the system prompt would not be parsed back unchanged.
pub(super) fn body(definition: &Definition) -> Option<String> {
    let prompt = &definition.prompt.as_ref()?.system_prompt;
    (!prompt.contains('\r')).then(|| format!("\n{prompt}\n"))
}

//! Markdown with YAML front matter: fields between two lines `---`, then the system prompt.

use super::Definition;
use super::error::DefinitionError;
use super::node::{Content, Node};
use super::read::{self, Places};

/// The longest text taken, in bytes. A system prompt is pages long, not a book.
const MAX_BYTES: usize = 1 << 20;

/// Reads a definition with the lines of its fields. Line ends may be LF or CRLF, a byte order mark is skipped.
pub(super) fn read(text: &str, file: &str) -> Result<(Definition, Places), Vec<DefinitionError>> {
    let fail = |line, field: &str, found: String, allowed: &str| {
        Err(vec![DefinitionError {
            file: file.to_owned(),
            line,
            field: field.to_owned(),
            found,
            allowed: allowed.to_owned(),
        }])
    };
    if text.len() > MAX_BYTES {
        return fail(None, "the file", format!("{} bytes", text.len()), "at most 1 MiB");
    }
    // One kind of line end, so that a checkout's setting does not change the content hash.
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let Some(parts) = split(&text) else {
        let first = super::node::quoted(text.lines().next().unwrap_or_default());
        return fail(
            Some(1),
            "front matter",
            first,
            "a first line `---`, the fields, and a closing line `---`",
        );
    };
    let root = match Node::parse(parts.front_matter) {
        Ok(root) => root,
        Err(error) => {
            let line = error.line.map(|line| line + 1);
            return fail(
                line,
                "front matter",
                format!("text that is not YAML ({})", error.message),
                "YAML",
            );
        }
    };
    let root = shifted(root);
    let body = Node {
        line: parts.body_line,
        content: Content::Text(parts.body.to_owned()),
    };
    let body = (!parts.body.trim().is_empty()).then_some(&body);
    read::read(&root, body, file)
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
                body,
                body_line,
            });
        }
        at += line.len();
    }
    None
}

/// Line 1 of the front matter is line 2 of the file.
fn shifted(node: Node) -> Node {
    let content = match node.content {
        Content::List(items) => Content::List(items.into_iter().map(shifted).collect()),
        Content::Map(entries) => Content::Map(
            entries
                .into_iter()
                .map(|(mut key, node)| {
                    key.line += 1;
                    (key, shifted(node))
                })
                .collect(),
        ),
        other => other,
    };
    Node {
        line: node.line + 1,
        content,
    }
}

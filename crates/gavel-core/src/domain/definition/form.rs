//! The four forms of a definition.

use std::path::Path;

use gavel_reading::{Content, Key, Node, SyntaxError, json};

use super::canonical::Tree;
use super::read::{self, Read, Text};
use super::{Definition, canonical, proto};
use crate::domain::templates::MOST_RENDERED;

/// The longest definition, in bytes. A system prompt has pages, not the length of a book.
pub const MAX_BYTES: usize = 1 << 20;

// So no text of a definition exceeds the limit by itself.
const _: () = assert!(MAX_BYTES <= MOST_RENDERED);

/// The text form of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// YAML front matter, and the system prompt below it.
    Markdown,
    /// YAML.
    Yaml,
    /// JSON.
    Json,
    /// The protobuf message `gemini.agent.v1.AgentDefinition`, binary.
    Proto,
}

impl Form {
    /// The extensions of definition files.
    pub const ENDINGS: &'static str = ".md, .yaml, .yml, .json, .pb, .binpb";

    /// The form of a file, by its extension.
    pub fn of_path(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "md" => Some(Self::Markdown),
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            "pb" | "binpb" => Some(Self::Proto),
            _ => None,
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Markdown => "md",
            Self::Yaml => "yaml",
            Self::Json => "json",
            Self::Proto => "proto",
        }
    }
}

/// Parses a definition with its locations. Line ends may be LF or CRLF; a byte order mark is skipped.
///
/// A definition is stored as JSON, which may be longer than its original form and must be readable again.
pub(super) fn read(bytes: &[u8], form: Form, file: &str) -> Read {
    let mut read = read_any_length(bytes, form, file);
    let length = read.definition.as_ref().map_or(0, canonical::length);
    if length > MAX_BYTES {
        let found = format!("{length} bytes as JSON, the form in which it is stored");
        let allowed = "at most 1 MiB (1048576 bytes)";
        read.definition = Read::refused(file, None, "the definition", found, allowed).definition;
    }
    read
}

fn read_any_length(bytes: &[u8], form: Form, file: &str) -> Read {
    let fail = |line, found, allowed| Read::refused(file, line, "the file", found, allowed);
    if bytes.len() > MAX_BYTES {
        return fail(None, format!("{} bytes", bytes.len()), "at most 1 MiB");
    }
    if form == Form::Proto {
        return match proto::parse(bytes) {
            Ok(root) => read::read(&root, None, Text::without_lines(file)),
            Err(found) => fail(None, found, "one message gemini.agent.v1.AgentDefinition, binary"),
        };
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let before = &bytes[..error.valid_up_to()];
            let line = memchr::memchr_iter(b'\n', before).count() as u64 + 1;
            return fail(Some(line), "bytes that are not UTF-8".to_owned(), "text in UTF-8");
        }
    };
    // Line ends are normalized, so that a checkout's setting does not change the content hash.
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let parsed: Result<(Node, Vec<Key>), (SyntaxError, &str)> = match form {
        Form::Markdown => return read_markdown(&text, file),
        Form::Json => json::parse(&text).map_err(|error| (error, "JSON")),
        Form::Yaml | Form::Proto => Node::parse_all(&text).map_err(|error| (error, "YAML")),
    };
    match parsed {
        Ok((root, twice)) => {
            let text = &*text;
            read::read(&root, None, Text { file, text, twice })
        }
        Err((error, name)) => {
            let (found, allowed) = error.describe(name);
            fail(error.line, found, allowed)
        }
    }
}

/// YAML for people: blocks for long texts, quotes around words that could be misread.
fn yaml(tree: &Tree) -> String {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: false,
        folded_wrap_chars: 100,
    };
    serde_saphyr::to_string_with_options(tree, options)
        .unwrap_or_else(|error| unreachable!("a tree of JSON values prints as YAML: {error}"))
}

/// Writes a definition so that parsing it returns the same definition.
pub(super) fn write(definition: &Definition, form: Form) -> Vec<u8> {
    if form == Form::Proto {
        return proto::write(definition);
    }
    let mut tree = Tree::new(definition);
    let text = match form {
        Form::Json => tree.to_json(),
        Form::Yaml | Form::Proto => yaml(&tree),
        Form::Markdown => {
            let body = body(definition);
            if body.is_some() {
                tree.drop_system_prompt();
            }
            format!("---\n{}---\n{}", yaml(&tree), body.unwrap_or_default())
        }
    };
    text.into_bytes()
}

/// Parses a definition from text with LF line ends.
fn read_markdown(text: &str, file: &str) -> Read {
    let fail = |line, found, allowed| Read::refused(file, line, "front matter", found, allowed);
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

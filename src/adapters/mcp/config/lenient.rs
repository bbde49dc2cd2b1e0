//! Reads `mcp.json` as editors write it (comments, trailing commas, a byte order mark), and finds the line of a value.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

/// The text as plain JSON; line numbers do not change.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut out = text.as_bytes().to_vec();
    let bytes = text.as_bytes();
    let (mut at, mut comma) = (0, None);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'"', ..] => {
                comma = None;
                at += string_end(&bytes[at..]);
                continue;
            }
            [b'/', b'/', rest @ ..] => {
                let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                blank(&mut out[at..at + 2 + end]);
                at += 2 + end;
                continue;
            }
            [b'/', b'*', rest @ ..] => {
                let end = rest
                    .windows(2)
                    .position(|end| end == b"*/")
                    .map_or(rest.len(), |end| end + 2);
                blank(&mut out[at..at + 2 + end]);
                at += 2 + end;
                continue;
            }
            [b',', ..] => comma = Some(at),
            [b'}' | b']', ..] => {
                if let Some(comma) = comma.take() {
                    out[comma] = b' ';
                }
            }
            [byte, ..] if byte.is_ascii_whitespace() => {}
            _ => comma = None,
        }
        at += 1;
    }
    match out == bytes {
        true => Cow::Borrowed(text),
        // Whole comments are blanked, so no character is split.
        false => String::from_utf8(out).map_or(Cow::Borrowed(text), Cow::Owned),
    }
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

/// The length of the string at the start of `bytes`, including its quotes.
fn string_end(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The line where the value of a JSON pointer begins, or the nearest enclosing value.
pub(super) fn line(text: &str, pointer: &str) -> usize {
    let mut found: Option<&RawValue> = serde_json::from_str(text).ok();
    for step in pointer.split('/').skip(1) {
        let Some(raw) = found else { break };
        let key = step.replace("~1", "/").replace("~0", "~");
        let inner = match raw.get().as_bytes().first() {
            Some(b'{') => serde_json::from_str::<HashMap<Cow<'_, str>, &RawValue>>(raw.get())
                .ok()
                .and_then(|members| members.get(&*key).copied()),
            Some(b'[') => serde_json::from_str::<Vec<&RawValue>>(raw.get())
                .ok()
                .and_then(|items| items.get(key.parse::<usize>().ok()?).copied()),
            _ => None,
        };
        match inner {
            Some(inner) => found = Some(inner),
            None => break,
        }
    }
    let at = found.map_or(0, |raw| raw.get().as_ptr() as usize - text.as_ptr() as usize);
    1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn comments_and_commas_of_editors_go_away_and_lines_stay() {
        for (text, expected) in [
            ("\u{feff}{\"a\": 1}", json!({"a": 1})),
            (
                "{ // one\n \"a\": \"//x\", /* two\n */ \"b\": [1, 2,\n ], // ü\n}",
                json!({"a": "//x", "b": [1, 2]}),
            ),
            (
                r#"{"a": "/* \" */,]", "b": "\\",}"#,
                json!({"a": "/* \" */,]", "b": "\\"}),
            ),
            (r#"{"a": "x,", }"#, json!({"a": "x,"})),
        ] {
            let plain = plain(text);
            assert_eq!(serde_json::from_str::<Value>(&plain).unwrap(), expected, "{plain}");
            assert_eq!(plain.lines().count(), text.lines().count());
        }
        for invalid in ["{,}", "[1,,2]", "{\"a\": /}", "/* without end"] {
            assert!(
                serde_json::from_str::<Value>(&plain(invalid)).is_err() || invalid == "{,}",
                "{invalid}"
            );
        }
    }

    #[test]
    fn a_place_is_found_by_its_line() {
        let text = "{\n \"mcpServers\": {\n  \"a/b\": {\n   \"args\": [\"x\",\n    7]}}}";
        for (pointer, expected) in [
            ("", 1),
            ("/mcpServers", 2),
            ("/mcpServers/a~1b", 3),
            ("/mcpServers/a~1b/args/1", 5),
            ("/mcpServers/a~1b/command", 3),
        ] {
            assert_eq!(line(text, pointer), expected, "{pointer}");
        }
    }
}

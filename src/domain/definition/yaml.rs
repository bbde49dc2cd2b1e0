//! Writes YAML for people: plain words where they cannot be taken for anything else, blocks for long texts, quotes
//! for the rest. What is written reads back as it was, under YAML 1.1 as well as 1.2.

use std::fmt::Write;

use serde_json::Value;

use super::tree::Tree;

/// Lines are about this long.
const WIDTH: usize = 100;

/// Words that some reader takes for something other than text.
const NOT_TEXT: &[&str] = &[
    "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity",
];

/// Writes a map or a list as a document.
pub(super) fn write(tree: &Tree) -> String {
    let mut out = String::new();
    block(tree, 0, &mut out);
    out
}

/// A map or list, each entry on lines of its own, indented by `depth` levels.
fn block(tree: &Tree, depth: usize, out: &mut String) {
    match tree {
        Tree::Map(entries) => {
            for (n, (name, value)) in entries.iter().enumerate() {
                if n > 0 {
                    indent(depth, out);
                }
                out.push_str(&if is_plain(name) { name.clone() } else { quoted(name) });
                out.push(':');
                inner(value, depth, out);
            }
        }
        Tree::List(items) => {
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    indent(depth, out);
                }
                out.push('-');
                match item {
                    // The first entry of a map stands beside the dash.
                    Tree::Map(entries) if !entries.is_empty() => {
                        out.push(' ');
                        block(item, depth + 1, out);
                    }
                    _ => inner(item, depth, out),
                }
            }
        }
        Tree::Scalar(value) => scalar(value, depth, out),
    }
}

/// What follows a key or a dash at `depth`, to the end of its lines.
fn inner(tree: &Tree, depth: usize, out: &mut String) {
    match tree {
        Tree::Map(entries) if entries.is_empty() => out.push_str(" {}\n"),
        Tree::List(items) if items.is_empty() => out.push_str(" []\n"),
        Tree::Map(_) | Tree::List(_) => {
            out.push('\n');
            indent(depth + 1, out);
            block(tree, depth + 1, out);
        }
        Tree::Scalar(value) => {
            out.push(' ');
            scalar(value, depth + 1, out);
        }
    }
}

/// A scalar; the lines of a block are indented by `depth` levels.
fn scalar(value: &Value, depth: usize, out: &mut String) {
    let Value::String(text) = value else {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{value}");
        return;
    };
    if let Some(lines) = literal(text) {
        out.push_str(if text.ends_with('\n') { "|\n" } else { "|-\n" });
        for line in lines {
            // White space at the end of a line helps nobody.
            if !line.is_empty() {
                indent(depth, out);
            }
            out.push_str(line);
            out.push('\n');
        }
    } else if let Some(lines) = folded(text) {
        out.push_str(">-\n");
        for line in lines {
            indent(depth, out);
            out.push_str(line);
            out.push('\n');
        }
    } else {
        let shown = if is_plain(text) { text.clone() } else { quoted(text) };
        out.push_str(&shown);
        out.push('\n');
    }
}

fn indent(depth: usize, out: &mut String) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

/// The lines of a text of several, if a literal block can hold them.
fn literal(text: &str) -> Option<Vec<&str>> {
    let content = text.strip_suffix('\n').unwrap_or(text);
    let several = text.contains('\n') && !content.is_empty() && !content.ends_with('\n');
    // A block takes its indentation from its first line.
    let first_line_counts = !content.starts_with([' ', '\t', '\n']);
    let lines: Vec<_> = content.split('\n').collect();
    let can_be_seen = |line: &&str| !line.chars().any(|c| is_special(c) && c != '\t') && !line.ends_with([' ', '\t']);
    (several && first_line_counts && lines.iter().all(can_be_seen)).then_some(lines)
}

/// The lines of one long line, broken at single spaces, if it has them.
fn folded(text: &str) -> Option<Vec<&str>> {
    let fits = text.len() > WIDTH && !text.chars().any(is_special) && !text.starts_with(' ') && !text.ends_with(' ');
    if !fits {
        return None;
    }
    let bytes = text.as_bytes();
    let (mut lines, mut begin, mut last) = (Vec::new(), 0, None);
    for at in 1..bytes.len() - 1 {
        let single = bytes[at] == b' ' && bytes[at - 1] != b' ' && bytes[at + 1] != b' ';
        if !single {
            continue;
        }
        if let Some(end) = last.filter(|_| at - begin > WIDTH) {
            lines.push(&text[begin..end]);
            begin = end + 1;
        }
        last = Some(at);
    }
    if let Some(end) = last.filter(|end| *end > begin && text.len() - begin > WIDTH) {
        lines.push(&text[begin..end]);
        begin = end + 1;
    }
    lines.push(&text[begin..]);
    (lines.len() > 1).then_some(lines)
}

/// Text that needs no quotes wherever it stands.
fn is_plain(text: &str) -> bool {
    let begins = text.starts_with("${") || text.starts_with(|c: char| c.is_ascii_alphabetic());
    let harmless = |c: char| c.is_alphanumeric() || " _./()-,'+=${}".contains(c);
    begins
        && text.len() <= WIDTH
        && !text.ends_with(' ')
        && text.chars().all(harmless)
        && !NOT_TEXT.iter().any(|word| word.eq_ignore_ascii_case(text))
}

/// What has a meaning of its own in YAML or cannot be seen.
fn is_special(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // None of them lies beyond U+FFFF.
            c if is_special(c) => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::node::Node;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn text(value: Value) -> String {
        write(&Tree::from(value))
    }

    #[test]
    fn it_is_written_as_a_person_would_write_it() {
        let long = "word ".repeat(30);
        let value = json!({
            "a": "plain words", "b": ["x", {"c": 1, "d": []}, ["z", 0.5]], "e": {}, "f": "two\nlines\n\n  more",
            "g": long.trim(), "h": "yes", "i": "12", "j": "a: b", "k": null, "l": "ends\nwell\n",
        });
        let words = "word ".repeat(20);
        let rest = "word ".repeat(10);
        assert_eq!(
            text(value),
            format!(
                "a: plain words\nb:\n  - x\n  - c: 1\n    d: []\n  -\n    - z\n    - 0.5\ne: {{}}\nf: |-\n  two\n  lines\n\n    more\n\
                 g: >-\n  {}\n  {}\nh: \"yes\"\ni: \"12\"\nj: \"a: b\"\nk: null\nl: |\n  ends\n  well\n",
                words.trim(),
                rest.trim()
            )
        );
    }

    /// Texts that look like something else, and texts that break naive writers.
    fn texts() -> impl Strategy<Value = String> {
        let odd = proptest::sample::select(vec![
            "",
            " ",
            "~",
            "null",
            "True",
            "NO",
            "y",
            "on",
            "1",
            "1.5",
            "1e3",
            ".5",
            "0x1F",
            "0o7",
            "1_000",
            "12:30:45",
            "2026-01-01",
            ".inf",
            "-.INF",
            ".NaN",
            "nan",
            "&a",
            "*a",
            "!!str x",
            "- a",
            "a: b",
            "a #b",
            "# a",
            "? a",
            "|",
            ">-",
            "%TAG",
            "---",
            "...",
            "@a",
            "`a",
            "{a: b}",
            "[a]",
            "'",
            "\"",
            "\\n",
            "a\tb",
            "\ta",
            "a\n",
            "\na",
            "a\n\nb\n",
            "a\n b\n  c",
            " a\nb",
            "a \nb",
            "a\r\nb",
            "a\u{85}b",
            "a\u{2028}b",
            "\u{feff}a",
            "😀",
            "é",
            "a\0b",
            "<<",
            "=",
            "a\n---\nb",
            "a\n...\nb",
            "a\u{7f}",
            "a\u{a0}",
        ]);
        prop_oneof![
            odd.prop_map(str::to_owned),
            ".{0,40}",
            "[a-z]{1,9}( {1,2}[a-z#:-]{1,30}){5,20}",
            "([ -~]{0,12}\n){1,4}[ -~\t]{0,8}",
            "(?s).{0,30}",
        ]
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>()
                .prop_filter("finite", |f| f.is_finite())
                .prop_map(Value::from),
            texts().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(texts(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn every_value_reads_back_as_itself(value in prop::collection::btree_map(texts(), values(), 1..4)) {
            let value = Value::Object(value.into_iter().collect());
            let written = text(value.clone());
            let read = Node::parse(&written).map_err(|error| TestCaseError::fail(format!("{}\n{written}", error.message)))?;
            prop_assert_eq!(read.to_json(), value, "{}", written);
        }
    }
}

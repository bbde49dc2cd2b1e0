//! Converts one node to a type, without reporting why it cannot.

use gavel_reading::{Content, Node};

/// Each `${` of a text that begins on `line` of the file `whole`, with its line. The nth `${` of the text is the nth in
/// the file from that line on. If the file spells them in another way and has fewer, the line is that of the text's
/// start.
pub(crate) fn lines_of<'t>(whole: &'t str, line: u64, text: &'t str) -> impl Iterator<Item = (usize, u64)> + 't {
    let whole = whole.as_bytes();
    let lines_before = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let start = match lines_before.checked_sub(1) {
        Some(last) => memchr::memchr_iter(b'\n', whole)
            .nth(last)
            .map_or(whole.len(), |end| end + 1),
        None => 0,
    };
    let (mut counted, mut at_line) = (start, line);
    let lines = memchr::memmem::find_iter(&whole[start..], "${").map(move |at| {
        // Counts from one to the next, so that the file is scanned once.
        at_line += memchr::memchr_iter(b'\n', &whole[counted..start + at]).count() as u64;
        counted = start + at;
        at_line
    });
    let marks = text.match_indices("${").map(|(at, _)| at);
    marks.zip(lines.chain(std::iter::repeat(line)))
}

/// Whether the text has any non-space character. Like `\S` in the JSON Schema, for which a byte order mark is a space
/// (ECMA-262, WhiteSpace).
pub(super) fn has_words(text: &str) -> bool {
    text.chars().any(|c| !c.is_whitespace() && c != '\u{feff}')
}

/// Text that is not blank, unchanged.
pub(crate) fn text(node: &Node) -> Option<String> {
    match &node.content {
        Content::Text(text) if has_words(text) => Some(text.clone()),
        _ => None,
    }
}

/// One of a few names.
pub(crate) fn choice<T: Copy>(node: &Node, names: &[(&str, T)]) -> Option<T> {
    let Content::Text(text) = &node.content else {
        return None;
    };
    names.iter().find(|(name, _)| name == text).map(|(_, value)| *value)
}

pub(super) fn whole(node: &Node) -> Option<i32> {
    match node.content {
        Content::Integer(value) => i32::try_from(value).ok(),
        // 5.0 is 5, as in JSON.
        Content::Float(value) if value.fract() == 0.0 && value.abs() <= f64::from(i32::MAX) => Some(value as i32),
        _ => None,
    }
}

pub(super) fn float(node: &Node) -> Option<f32> {
    match node.content {
        Content::Integer(value) => i16::try_from(value).ok().map(f32::from),
        // Removes the sign of a zero, so that -0.0 equals 0.0 and has its hash.
        Content::Float(value) => Some(value as f32 + 0.0),
        _ => None,
    }
}

/// Whether the text is an allowed name of an agent, an input or an output.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_alone_is_no_text() {
        assert!(!has_words("\u{feff} \n"));
        assert!(has_words("\u{feff}a"));
    }
}

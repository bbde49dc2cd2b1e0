//! Third-party text: made visible, and cut to a length.

use std::borrow::Cow;

/// Leaves out what a person reading the text would not see: control characters (line breaks and
/// tabs stay), marks that turn the writing direction, and Unicode's invisible tags and joiners,
/// which carry hidden instructions.
pub(super) fn visible(text: &str) -> String {
    text.chars().filter(|c| !is_hidden(*c)).collect()
}

fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        c if c.is_control() => true,
        '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{feff}' | '\u{e0000}'..='\u{e007f}' => true,
        _ => false,
    }
}

/// The longest prefix of at most `bytes` bytes that ends between two characters.
pub(super) fn prefix(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// The text, or as much of it as fits into `bytes` with a word that the rest is missing.
pub(super) fn capped(text: &str, bytes: usize) -> Cow<'_, str> {
    if text.len() <= bytes {
        return Cow::Borrowed(text);
    }
    let marker = format!("… [cut: {} bytes in all]", text.len());
    let mut out = prefix(text, bytes.saturating_sub(marker.len())).to_owned();
    out.push_str(&marker);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_cut_never_splits_a_character_and_says_what_is_missing() {
        let text = "ä".repeat(100);
        let cut = capped(&text, 51);
        assert!(cut.len() <= 51, "{}", cut.len());
        assert!(cut.ends_with("… [cut: 200 bytes in all]"), "{cut}");
        assert_eq!(capped("short", 5), "short");
    }

    #[test]
    fn line_breaks_stay_and_hidden_text_goes() {
        assert_eq!(visible("a\r\nb\t\u{1b}[31mc\u{200b}\u{e0061}"), "a\nb\t[31mc");
    }
}

//! Text from outside gavel: made visible, and cut to a length.

use std::borrow::Cow;
use std::fmt::Write;

/// Removes what a reader would not see and what can therefore carry hidden instructions: control characters (line
/// breaks and tabs remain), marks that change the writing direction, fillers, Unicode's tags, and variation selectors.
/// The two joiners remain, since some scripts cannot be written without them.
pub fn visible(text: &str) -> String {
    seen(text).collect()
}

/// Whether [`visible`] would return the text unchanged.
pub fn is_visible(text: &str) -> bool {
    seen(text).eq(text.chars())
}

/// Replaces what [`visible`] would remove by its number: `<U+202E>`.
pub fn numbered(text: &str) -> Cow<'_, str> {
    if is_visible(text) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for (c, is_seen) in each(text) {
        match is_seen {
            true => shown.push(c),
            // Writing to a String cannot fail.
            false => drop(write!(shown, "<U+{:04X}>", u32::from(c))),
        }
    }
    Cow::Owned(shown)
}

/// Replaces what [`visible`] would remove, and line separators that terminals ignore, by JSON escapes (`\\u202e`). JSON
/// keeps its value. Lines end with `\\n`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    let is_plain = |(c, is_seen): (char, bool)| is_seen && !is_separator(c);
    if each(text).all(is_plain) {
        return Cow::Borrowed(text);
    }
    let text = text.replace("\r\n", "\n");
    let mut shown = String::with_capacity(text.len() + 16);
    for (c, is_seen) in each(&text) {
        if is_plain((c, is_seen)) {
            shown.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    Cow::Owned(shown)
}

fn is_separator(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}')
}

fn seen(text: &str) -> impl Iterator<Item = char> {
    each(text).filter(|(_, is_seen)| *is_seen).map(|(c, _)| c)
}

/// Each character, and whether it is visible.
fn each(text: &str) -> impl Iterator<Item = (char, bool)> {
    let before = std::iter::once(None).chain(text.chars().map(Some));
    let is_seen = |c, before: Option<char>| !is_hidden(c) || (c == EMOJI && before.is_some_and(is_symbol));
    text.chars().zip(before).map(move |(c, before)| (c, is_seen(c, before)))
}

/// Selects the emoji form of the symbol before it. This use is common, and after a symbol it can carry no other
/// information.
const EMOJI: char = '\u{fe0f}';

/// Whether it may have an emoji form.
fn is_symbol(c: char) -> bool {
    matches!(
        c,
        '©' | '®' | '\u{203c}'..='\u{2bff}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}'
    ) || matches!(c, '\u{1f000}'..='\u{1faff}')
}

/// Whether [`visible`] removes it, regardless of its neighbors.
pub fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        c if c.is_control() => true,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => true,
        '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' => true,
        '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' => true,
        // Blank hieroglyphs, which count as letters.
        '\u{13441}' | '\u{13442}' => true,
        '\u{e0000}'..='\u{e0fff}' => true,
        _ => false,
    }
}

/// The longest prefix of at most `bytes` bytes that ends between two characters.
pub fn prefix(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// The text, or as much of it as fits into `bytes` with a marker that the rest is missing.
pub fn capped(text: &str, bytes: usize) -> Cow<'_, str> {
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
    fn what_cannot_be_seen_is_escaped_and_json_stays_what_it_was() {
        assert_eq!(
            escaped("a\u{1b}[2Jb\r\n\tc\u{9b}d\u{7f}\r"),
            "a\\u001b[2Jb\n\tc\\u009bd\\u007f\\u000d"
        );
        assert_eq!(
            escaped("x\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}"),
            "x\\u202e\\u2066\\u200f\\u061c\\u2028"
        );
        assert_eq!(escaped("\u{e0041}"), "\\udb40\\udc41");
        assert!(matches!(escaped("Grüße, 安\n\t👩\u{200d}💻"), Cow::Borrowed(_)));
        let value = serde_json::json!({"a\u{202e}": ["\u{1b}[2J", "\u{9b}\u{e0041}\u{2029}", "\\ \"\u{feff}"]});
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let shown = escaped(&text);
            assert!(shown.chars().all(|c| !is_hidden(c) && !is_separator(c)), "{shown}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }
    }

    #[test]
    fn line_breaks_stay_and_hidden_text_goes() {
        assert_eq!(visible("a\r\nb\t\u{1b}[31mc\u{200b}\u{e0061}"), "a\nb\t[31mc");
        let carriers = [
            0xad, 0x61c, 0x115f, 0x1160, 0x180e, 0x3164, 0xfe00, 0xfe0f, 0xffa0, 0xe0020, 0xe0100, 0xe01ef,
        ];
        for hidden in carriers.map(|c| char::from_u32(c).unwrap()) {
            let text = format!("a{hidden}b");
            assert_eq!(visible(&text), "ab", "{hidden:?}");
            assert!(!is_visible(&text), "{hidden:?}");
        }
        for seen in [
            "naïve",
            "می\u{200c}خواهم",
            "❤\u{fe0f}",
            "☑\u{fe0f} 👩\u{200d}💻",
            "\u{fffd}",
        ] {
            assert!(is_visible(seen), "{seen:?}");
        }
        assert_eq!(
            visible("❤\u{fe0f}\u{fe0f}\u{fe0e}"),
            "❤\u{fe0f}",
            "one, and of one kind"
        );
    }
}

//! Escapes in JSON text that encode half of a surrogate pair.
//!
//! A program whose text is UTF-16 (JavaScript, Java, C#) writes `"\ud83d"` when it cuts a text inside an emoji. The
//! grammar of JSON allows it, but no Unicode text can contain it. Readers reject the document, or each reads something
//! different.

use std::borrow::Cow;

use memchr::memmem;

/// It has as many bytes as the escape that it replaces.
const REPLACEMENT: &[u8; 6] = br"\ufffd";

/// Returns the JSON text with U+FFFD in place of each unpaired half. Everything else is unchanged.
pub fn repaired(json: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Cow::Borrowed(json);
    let mut at = 0;
    while let Some(found) = memmem::find(&json[at..], br"\u") {
        let start = at + found;
        at = match (is_escape(json, start), half(json, start), half(json, start + 6)) {
            // The second backslash of `\\`, or an escape of a whole character.
            (false, ..) | (_, None, _) => start + 2,
            (true, Some(Half::First), Some(Half::Second)) => start + 12,
            (true, Some(_), _) => {
                out.to_mut()[start..start + 6].copy_from_slice(REPLACEMENT);
                start + 6
            }
        };
    }
    out
}

/// Whether the backslash here begins an escape. In a run of backslashes, every other one does.
fn is_escape(json: &[u8], at: usize) -> bool {
    json[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 0
}

#[derive(Clone, Copy)]
enum Half {
    First,
    Second,
}

/// Which half the six bytes from here encode, if any.
fn half(json: &[u8], at: usize) -> Option<Half> {
    let digits = json.get(at..at + 6)?.strip_prefix(br"\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    match (digits[0], digits[1].to_ascii_lowercase()) {
        (b'd' | b'D', b'8' | b'9' | b'a' | b'b') => Some(Half::First),
        (b'd' | b'D', b'c'..=b'f') => Some(Half::Second),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> String {
        String::from_utf8(repaired(json.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn halves_that_stand_alone_are_replaced_and_pairs_stay() {
        for (json, expected) in [
            (r#""a\ud83d""#, r#""a\ufffd""#),
            (r#""\uD83Dx""#, r#""\ufffdx""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ud83d\ude00\ude00""#, r#""\ud83d\ude00\ufffd""#),
            // An escaped backslash and letters, which is not an escape.
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\\\ud83d""#, r#""\\\ufffd""#),
            (r#""\ud83d\\ude00""#, r#""\ufffd\\ude00""#),
        ] {
            assert_eq!(text(json), expected, "{json}");
            assert!(serde_json::from_str::<String>(&text(json)).is_ok(), "{json}");
        }
        for whole in [r#"{"a":"\u00e4\ud83d\ude00\n"}"#, "7", "", r"\u", r"\ud8", r#""\ud83"#] {
            assert!(matches!(repaired(whole.as_bytes()), Cow::Borrowed(same) if same == whole.as_bytes()));
        }
    }

    proptest::proptest! {
        /// For any sequence of escapes, a reader accepts the result, and reads pairs as before.
        #[test]
        fn what_is_repaired_can_be_read(parts in proptest::collection::vec(
            proptest::sample::select(vec![r"\ud83d", r"\uDE00", r"\\", r"\u0041", "u", "d83d", r"\n", "é"]), 0..12)
        ) {
            let json = format!("\"{}\"", parts.concat());
            let read = serde_json::from_str::<String>(&text(&json));
            proptest::prop_assert!(read.is_ok(), "{json}");
            if let Ok(before) = serde_json::from_str::<String>(&json) {
                proptest::prop_assert_eq!(read.unwrap(), before);
            }
        }
    }
}

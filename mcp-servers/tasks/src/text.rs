//! Compares text by words rather than by bytes.

use unicode_normalization::UnicodeNormalization;

/// The form for comparison and search: case folded, in Unicode normal form (NFKC), with runs of white space as one
/// space. `STRASSE` and `Straße`, and the composed and decomposed `é`, have the same key.
pub(crate) fn key(text: &str) -> String {
    let folded: String = text
        .nfkc()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .nfkc()
        .collect();
    folded.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A LIKE pattern (escape character `!`) that matches exactly `key`.
pub(crate) fn exactly(key: &str) -> String {
    let mut pattern = String::with_capacity(key.len());
    for character in key.chars() {
        if matches!(character, '%' | '_' | '!') {
            pattern.push('!');
        }
        pattern.push(character);
    }
    pattern
}

/// A LIKE pattern (escape character `!`) that matches texts that contain `key`.
pub(crate) fn containing(key: &str) -> String {
    format!("%{}%", exactly(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ignore_case_composition_and_spacing() {
        assert_eq!(key("Call  MOM"), "call mom");
        assert_eq!(key("STRASSE"), key("Straße"));
        assert_eq!(key("ΟΔΟΣ"), key("οδος"));
        assert_eq!(key("cafe\u{301}"), key("CAFÉ"));
        assert_ne!(key("cafe"), key("café"));
    }

    #[test]
    fn wildcards_in_a_text_stand_for_themselves() {
        assert_eq!(containing("100%_!"), "%100!%!_!!%");
    }
}

//! Text without characters that a reader does not see: they carry instructions past the people who check a page.

/// The text without invisible and control characters, except line breaks and tabs.
pub(crate) fn visible(text: &str) -> String {
    text.chars().filter(|character| !is_invisible(*character)).collect()
}

/// Format, filler and tag characters, variation selectors, and marks of writing direction. Joiners count too: Persian
/// and emoji remain readable without them.
fn is_invisible(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        character if character.is_control() => true,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' => true,
        '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' => true,
        '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{13455}' => true,
        '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_removed() {
        let tags: String = "ignore"
            .chars()
            .filter_map(|c| char::from_u32(0xe0000 + u32::from(c)))
            .collect();
        let text = format!("a\u{200b}b\u{202e}c\u{fe0f}{tags}\u{0}\u{ad}d\n\te é 安");
        assert_eq!(visible(&text), "abcd\n\te é 安");
    }
}

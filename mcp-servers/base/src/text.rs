//! The visible content of a text.

/// Whether the text has no visible content: only white space, control and zero-width characters.
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|character| {
        character.is_whitespace()
            || character.is_control()
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_text_is_blank() {
        assert!(is_blank(" \t\u{200b}\u{feff}"));
        assert!(!is_blank(" x "));
    }
}

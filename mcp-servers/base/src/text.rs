//! Texts: their visible content, and lists in a sentence.

/// Whether the text has no visible content.
pub fn is_blank(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_whitespace() || c.is_control() || is_invisible(c))
}

/// Format, filler and tag characters, variation selectors, and marks of writing direction. Joiners count too: Persian
/// and emoji remain readable without them.
pub fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{13430}'..='\u{13455}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// The longest list, in bytes: each description and error says to models what operators permit.
const LIST: usize = 1000;

/// The items of a list, separated by commas. A long list is cut, and says so.
pub fn list(items: impl IntoIterator<Item = impl Into<String>>) -> String {
    let whole = items.into_iter().map(Into::into).collect::<Vec<String>>().join(", ");
    if whole.len() <= LIST {
        return whole;
    }
    let start = whole.get(..whole.floor_char_boundary(LIST)).unwrap_or_default();
    format!("{} and more", start.rsplit_once(", ").map_or(start, |(whole, _)| whole))
}

/// The name of a signal of Linux, such as SIGKILL.
pub fn signal(number: usize) -> Option<&'static str> {
    let names = "SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2 SIGPIPE SIGALRM \
                 SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU SIGXFSZ SIGVTALRM SIGPROF \
                 SIGWINCH SIGIO SIGPWR SIGSYS";
    names.split(' ').nth(number.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut_between_two_items() {
        assert_eq!(list(["a", "b"]), "a, b");
        let long = list((0..400).map(|number| format!("image-{number}")));
        assert!(
            long.starts_with("image-0, image-1,") && long.ends_with(" more") && long.len() < LIST + 20,
            "{long}"
        );
    }

    #[test]
    fn invisible_text_is_blank() {
        assert!(is_blank(" \t\u{200b}\u{feff}"));
        assert!(!is_blank(" x "));
    }
}

//! Standard output and standard error.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use serde::Serialize;

/// Whoever read standard output has read enough (`gavel decisions list | head`). Ends a verb quietly.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("nobody reads standard output any more")]
pub(super) struct ReaderLeft;

/// Writes an answer to standard output, at once.
///
/// # Errors
/// [`ReaderLeft`], or why standard output cannot be written.
pub(super) fn line(text: &str) -> anyhow::Result<()> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    bytes(&[text.as_bytes(), end.as_bytes()].concat())
}

/// As [`line`], for what is written as it is.
pub(super) fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(ReaderLeft.into()),
        written => written.context("standard output cannot be written"),
    }
}

/// As [`line`], for indented JSON.
pub(super) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(value)?)
}

/// Tells the person something beside the answer, on standard error. There is nobody else to tell when that fails.
pub(super) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Asks for the next line, on standard error, so that standard output holds answers alone.
pub(super) fn prompt(text: &str) {
    let mut err = io::stderr().lock();
    // As for `note`.
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// "1 error", "2 errors".
pub(super) fn count(number: impl Copy + Display + PartialEq + From<u8>, one: &str) -> String {
    let plural = if number == 1.into() { "" } else { "s" };
    format!("{number} {one}{plural}")
}

/// Is a person reading standard error?
pub(super) fn person_reads_notes() -> bool {
    io::stderr().is_terminal()
}

/// `text` without the characters that could drive a terminal, or turn what it says around; tabs and line ends stay.
///
/// Messages, arguments and results come from other people and from tools.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            // Marks that turn the writing direction can make a line read as another one.
            let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if turns || c.is_control() && !matches!(c, '\n' | '\t') {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(
            printable("a\u{1b}[2Jb\r\n\tc\u{9b}d"),
            "a\u{fffd}[2Jb\u{fffd}\n\tc\u{fffd}d"
        );
    }
}

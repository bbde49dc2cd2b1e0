//! Standard output and standard error: nothing else writes to them (`tests/architecture.rs`).
//!
//! What commands show holds words of other people, of models, tools and servers. So there is one rule, kept here for every line of
//! text and of JSON: what could drive a terminal, turn what it says around, or stand there unseen, is shown as a JSON escape
//! (`\u202e`). JSON stays the same value.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use serde::Serialize;

use crate::domain::text::escaped;

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
    bytes(&[printable(text).as_bytes(), end.as_bytes()].concat())
}

/// As [`line`], for what is to be a file: exactly as it is, unless a terminal shows it.
///
/// # Errors
/// As [`line`]; a terminal cannot show what is no text.
pub(super) fn file(content: &[u8]) -> anyhow::Result<()> {
    if !answers_are_shown() {
        return bytes(content);
    }
    line(std::str::from_utf8(content).context("this is binary, and no terminal shows it")?)
}

/// Does a terminal show standard output?
pub(super) fn answers_are_shown() -> bool {
    io::stdout().is_terminal()
}

fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
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
    let _ = writeln!(io::stderr().lock(), "{}", printable(text));
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

/// `text` as every line of output has it, for what is cut to a width before it is written.
pub(super) fn printable(text: &str) -> String {
    escaped(text).into_owned()
}

//! Standard output and standard error: only this module writes to them (`tests/architecture.rs`).
//!
//! Commands show text from other users, models, tools and servers. One rule holds for every line of text and JSON:
//! characters that could drive a terminal, change the direction of text, or be invisible are shown as a JSON escape
//! (`\u202e`). The JSON value stays the same.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::cli::exit::Exit;
use crate::domain::text::escaped;

/// The reader of standard output has closed it (`gavel decisions list | head`). Ends the command quietly.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the reader of standard output has closed it")]
pub(super) struct ReaderLeft;

/// Writes an answer to standard output and flushes it.
///
/// # Errors
/// [`ReaderLeft`], or why standard output cannot be written.
pub(super) fn line(text: &str) -> anyhow::Result<()> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    bytes(&[printable(text).as_bytes(), end.as_bytes()].concat())
}

/// Like [`line`], for content that may go to a file: unchanged, unless a terminal shows it.
///
/// # Errors
/// As [`line`]; a terminal cannot show binary content.
pub(super) fn file(content: &[u8]) -> anyhow::Result<()> {
    if !answers_are_shown() {
        return bytes(content);
    }
    line(std::str::from_utf8(content).context("this is binary and cannot be shown on a terminal")?)
}

/// Does a terminal show standard output?
pub(super) fn answers_are_shown() -> bool {
    io::stdout().is_terminal()
}

/// Writes bytes that go to a file or to another program, unchanged.
///
/// # Errors
/// As [`line`].
pub(super) fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(ReaderLeft.into()),
        written => written.context("standard output cannot be written"),
    }
}

/// Like [`line`], for indented JSON, with sorted names.
pub(super) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(&serde_json::to_value(value)?)?)
}

/// Writes an answer as [`json`], or as its text.
///
/// # Errors
/// As [`line`].
pub(super) fn answer<T: Serialize>(as_json: bool, answer: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<Exit> {
    match as_json {
        true => json(answer)?,
        false => line(&text(answer))?,
    }
    Ok(Exit::Done)
}

/// Writes the objects of a list as JSON with sorted names, one per line.
///
/// # Errors
/// As [`line`].
pub(super) fn json_lines<T: Serialize>(items: impl IntoIterator<Item = T>) -> anyhow::Result<()> {
    items
        .into_iter()
        .try_for_each(|item| line(&serde_json::to_value(item)?.to_string()))
}

/// A new file for content of users, which only its owner can read. A file or link that is already there is not used.
///
/// # Errors
/// It exists, or cannot be created.
pub(super) fn new_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Writes a note to the user on standard error. A failure is ignored: there is no other place to report it.
pub(super) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable(text));
}

/// Prompts for the next line on standard error, so that standard output contains answers only.
pub(super) fn prompt(text: &str) {
    let mut err = io::stderr().lock();
    // A failure is ignored, as in `note`.
    let _ = err.write_all(printable(text).as_bytes()).and_then(|()| err.flush());
}

/// "1 error", "2 errors".
pub(super) fn count(number: impl Copy + Display + PartialEq + From<u8>, one: &str) -> String {
    let plural = if number == 1.into() { "" } else { "s" };
    format!("{number} {one}{plural}")
}

/// Is standard error a terminal?
pub(super) fn person_reads_notes() -> bool {
    io::stderr().is_terminal()
}

/// A bar on standard error while a person waits, of `all` steps if that is known; see `indicatif` for its template.
pub(super) fn progress(is_shown: bool, all: Option<u64>, template: &str) -> ProgressBar {
    let target = match is_shown && person_reads_notes() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template(template);
    ProgressBar::with_draw_target(all, target)
        .with_style(style.unwrap_or_else(|error| unreachable!("the template is valid: {error}")))
}

/// `text` as output shows it, for text that is cut to a width before it is written.
pub(super) fn printable(text: &str) -> String {
    escaped(text).into_owned()
}

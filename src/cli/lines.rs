//! What users write: messages on standard input, one per line, and the files that options name.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use anyhow::Context;
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, BufReader, Stdin};

use crate::cli::exit::Usage;
use crate::cli::interrupt::unless_stopped;
use crate::cli::output;

/// The longest text that an option gives, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// The bytes of a file, or of standard input for `-`: one more than the limit at most, since a device may never end.
///
/// # Errors
/// It cannot be read.
pub(super) fn some_of(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match file == Path::new("-") {
        true => io::stdin().lock().take(MOST_BYTES + 1).read_to_end(&mut bytes)?,
        false => File::open(file)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}

/// The text of the file that `option` names.
///
/// # Errors
/// It cannot be read, is longer than 1 MiB, or is no text.
pub(super) fn given(file: &str, option: &str) -> anyhow::Result<String> {
    let invalid = |problem: String| Usage(format!("{option} {file}: {problem}"));
    let bytes = some_of(Path::new(file)).map_err(|error| invalid(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(invalid("is longer than 1 MiB".to_owned()).into());
    }
    String::from_utf8(bytes).map_err(|_| invalid("is not UTF-8 text".to_owned()).into())
}

/// A JSON object: the text itself, `@FILE` for the text of a file, or `-` for standard input.
///
/// # Errors
/// It cannot be read, or is no JSON object.
pub(super) fn object(text: &str) -> Result<Map<String, Value>, String> {
    let file = text.strip_prefix('@').or((text == "-").then_some(text));
    let text = match file {
        Some(file) => given(file, "the arguments in").map_err(|error| error.to_string())?,
        None => text.to_owned(),
    };
    serde_json::from_str(&text).map_err(|error| format!("give a JSON object, such as {{}}: {error}"))
}

/// The next input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Line(String),
    /// Ctrl-C after typed text.
    Dropped,
    /// Ctrl-C on an empty line, or a signal.
    Stopped,
    /// The end of the input.
    End,
}

/// The lines of standard input.
pub(super) struct Lines {
    input: BufReader<Stdin>,
    /// Is standard input a terminal?
    pub(super) person: bool,
}

impl Lines {
    pub(super) fn new() -> Self {
        Self {
            input: BufReader::new(tokio::io::stdin()),
            person: io::stdin().is_terminal(),
        }
    }

    /// Reads a line; on a terminal, prompts for it.
    ///
    /// # Errors
    /// Standard input cannot be read, or is not UTF-8.
    pub(super) async fn next(&mut self, prompt: &str) -> anyhow::Result<Next> {
        let next = self.read(prompt).await.context("standard input cannot be read")?;
        if self.person && !matches!(next, Next::Line(_)) {
            // The text typed last has not ended the terminal's line.
            output::note("");
        }
        Ok(next)
    }

    /// Asks until a line begins with one of these words, or its first letter; returns it with the rest of the line. `None`
    /// at the end of the input, and on Ctrl-C.
    pub(super) async fn choose(
        &mut self,
        prompt: &str,
        words: &[&'static str],
    ) -> anyhow::Result<Option<(&'static str, String)>> {
        loop {
            let Next::Line(line) = self.next(prompt).await? else {
                return Ok(None);
            };
            let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
            let is_meant = |known: &&&str| word.eq_ignore_ascii_case(known) || word.eq_ignore_ascii_case(&known[..1]);
            if let Some(word) = words.iter().find(is_meant) {
                return Ok(Some((*word, rest.trim().to_owned())));
            }
        }
    }

    async fn read(&mut self, prompt: &str) -> io::Result<Next> {
        let typing = if self.person { Some(Typing::begin()?) } else { None };
        if self.person {
            output::prompt(prompt);
        }
        let interrupt = typing.as_ref().and_then(Typing::interrupt);
        let read = unless_stopped(line(&mut self.input, interrupt)).await?;
        drop(typing);
        let Some(read) = read else { return Ok(Next::Stopped) };
        let mut read = read?;
        match read.pop() {
            None => return Ok(Next::End),
            Some(b'\n') => {}
            Some(last) if Some(last) == interrupt => {
                return Ok(if read.is_empty() { Next::Stopped } else { Next::Dropped });
            }
            // The last line may lack its line break.
            Some(last) => read.push(last),
        }
        String::from_utf8(read)
            .map(Next::Line)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the message is not UTF-8"))
    }
}

/// Reads to the end of a line; `interrupt` also ends it, and is kept. Empty at the end of the input.
async fn line(input: &mut BufReader<Stdin>, interrupt: Option<u8>) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    loop {
        let read = input.fill_buf().await?;
        if read.is_empty() {
            return Ok(line);
        }
        let end = read.iter().position(|byte| *byte == b'\n' || Some(*byte) == interrupt);
        let taken = end.map_or(read.len(), |end| end + 1);
        line.extend_from_slice(&read[..taken]);
        input.consume(taken);
        if end.is_some() {
            return Ok(line);
        }
    }
}

/// While the user types a line, Ctrl-C ends it, as Enter does, and is its last character. As a signal, Ctrl-C would
/// make the terminal drop the typed text, and this process could not know whether there was any.
struct Typing {
    before: rustix::termios::Termios,
}

impl Typing {
    fn begin() -> io::Result<Self> {
        use rustix::termios::{OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
        let before = tcgetattr(io::stdin())?;
        let mut typing = before.clone();
        typing.special_codes[SpecialCodeIndex::VEOL] = before.special_codes[SpecialCodeIndex::VINTR];
        typing.special_codes[SpecialCodeIndex::VINTR] = DISABLED;
        tcsetattr(io::stdin(), OptionalActions::Now, &typing)?;
        Ok(Self { before })
    }

    /// The character of Ctrl-C.
    fn interrupt(&self) -> Option<u8> {
        let code = self.before.special_codes[rustix::termios::SpecialCodeIndex::VINTR];
        (code != DISABLED).then_some(code)
    }
}

/// The value for no character (`_POSIX_VDISABLE`).
#[cfg(any(target_os = "linux", target_os = "android"))]
const DISABLED: u8 = 0;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const DISABLED: u8 = 0xff;

impl Drop for Typing {
    fn drop(&mut self) {
        let now = rustix::termios::OptionalActions::Now;
        // Fails if the terminal is gone; then there is nothing to restore.
        let _ = rustix::termios::tcsetattr(io::stdin(), now, &self.before);
    }
}

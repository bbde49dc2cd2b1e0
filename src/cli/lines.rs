//! Messages from standard input, one a line.

use std::io::{self, IsTerminal};

use tokio::io::{AsyncBufReadExt, BufReader, Stdin};

use crate::cli::interrupt::unless_stopped;
use crate::cli::output;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Line(String),
    /// Ctrl-C, with something typed before it.
    Dropped,
    /// Ctrl-C on an empty line, or a signal.
    Stopped,
    /// There are no more.
    End,
}

/// The lines of standard input.
pub(super) struct Lines {
    input: BufReader<Stdin>,
    /// Does somebody type?
    pub(super) person: bool,
}

impl Lines {
    pub(super) fn new() -> Self {
        Self {
            input: BufReader::new(tokio::io::stdin()),
            person: io::stdin().is_terminal(),
        }
    }

    /// Asks for a line, if there is a person to ask.
    ///
    /// # Errors
    /// Standard input cannot be read, or is not UTF-8.
    pub(super) async fn next(&mut self, prompt: &str) -> io::Result<Next> {
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
            // The last line may lack its end.
            Some(last) => read.push(last),
        }
        String::from_utf8(read)
            .map(Next::Line)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the message is not UTF-8"))
    }
}

/// Reads to the end of a line, which is `interrupt` as well, and is kept. Empty at the end of the input.
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

/// While a line is typed Ctrl-C ends it, as Enter does, and is its last character. As a signal it would have the terminal
/// drop what was typed, and nobody would know whether there was something.
#[cfg(unix)]
struct Typing {
    before: rustix::termios::Termios,
}

#[cfg(unix)]
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

/// No character (`_POSIX_VDISABLE`).
#[cfg(any(target_os = "linux", target_os = "android"))]
const DISABLED: u8 = 0;
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
const DISABLED: u8 = 0xff;

#[cfg(unix)]
impl Drop for Typing {
    fn drop(&mut self) {
        let now = rustix::termios::OptionalActions::Now;
        // Fails when the terminal is gone; then there is nothing to set right.
        let _ = rustix::termios::tcsetattr(io::stdin(), now, &self.before);
    }
}

#[cfg(not(unix))]
struct Typing;

#[cfg(not(unix))]
impl Typing {
    fn begin() -> io::Result<Self> {
        Ok(Self)
    }

    fn interrupt(&self) -> Option<u8> {
        None
    }
}

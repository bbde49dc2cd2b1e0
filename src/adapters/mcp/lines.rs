//! A child's stdout: one JSON-RPC message per line.
//!
//! rmcp silently drops a line that is too long or unreadable, so the call that it answers would wait for its timeout.
//! Here such an answer is repaired if possible (`message`), otherwise replaced by an error, and the following lines are
//! read as usual. The id of the call is at the beginning or the end of the line, depending on the program that wrote
//! it.
//!
//! The answer to a call bypasses rmcp, which would build a tree from it. It is stored in the call's [`Slot`], and rmcp
//! receives an empty answer. The server's unsolicited messages also end here (`unsolicited`).
//!
//! A line that is too long and has no id, or that never ends, ends the connection and every call on it. Other lines
//! that are not messages are ignored (servers print text there that belongs on stderr).

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::answers::{Held, NoRoom};
use super::attempt::{Attempt, Lost};
use super::keys::{Keys, TAIL, last_id};
use super::log;
use super::message::{self, Envelope, Message, Says};
use super::result::ERROR_BYTES;
use super::unsolicited::{Answer, Unsolicited, Verdict};

/// Longest line, including its end.
const MAX_LINE: usize = 16 * 1024 * 1024;
/// How much of a line that is too long is read to find its end.
const MAX_SKIPPED: usize = 16 * MAX_LINE;
/// Bytes that are examined at the beginning of a line that is too long.
const HEAD: usize = 4 * 1024;
/// A buffer that grew beyond this is shrunk after the line.
const USUAL_LINE: usize = 256 * 1024;
/// From this many calls on, abandoned calls are removed.
const MANY_CALLS: usize = 64;

/// Where the answer to a call is stored for its caller.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot(Arc<Mutex<Option<Attempt>>>);

impl Slot {
    fn fill(&self, attempt: Attempt) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(attempt);
    }

    /// The answer, if it has arrived.
    pub(super) fn take(&self) -> Option<Attempt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn is_waited_for(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// The content of a line.
pub(super) enum Line {
    /// For rmcp.
    Message(Box<Message>),
    /// For the server.
    Answer(Answer),
}

/// The messages on `inner`.
pub(super) struct Lines<R> {
    inner: BufReader<R>,
    unsolicited: Arc<Unsolicited>,
    /// Calls in progress, by id.
    calls: HashMap<i64, Slot>,
    /// The part of the current line received so far.
    line: Vec<u8>,
    /// The line's share of the answer budget.
    held: Held<'static>,
    skipping: Option<Skipping>,
}

/// A line that is skipped until its end.
struct Skipping {
    why: Unread,
    /// Only the end of the line can show which call it answers.
    unknown: bool,
    bytes: usize,
    tail: Vec<u8>,
}

/// Why an answer is not read.
#[derive(Clone, Copy)]
enum Unread {
    TooLong,
    NoRoom(NoRoom),
}

/// The result of one read.
enum Step {
    More,
    Whole,
    Line(Line),
}

impl Step {
    fn of(message: Option<Message>) -> Self {
        message.map_or(Self::More, |message| Self::Line(Line::Message(Box::new(message))))
    }
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(inner: R, unsolicited: Arc<Unsolicited>) -> Self {
        Self {
            inner: BufReader::new(inner),
            held: unsolicited.source.held(),
            unsolicited,
            calls: HashMap::new(),
            line: Vec::new(),
            skipping: None,
        }
    }

    /// Registers a call in progress, whose answer is stored in `slot`.
    pub(super) fn expect(&mut self, id: i64, slot: Slot) {
        if self.calls.len() >= MANY_CALLS {
            self.calls.retain(|_, slot| slot.is_waited_for());
        }
        self.calls.insert(id, slot);
    }

    /// The next message; `None` at the end. Dropping the future loses nothing: an incomplete line is kept for the next
    /// call.
    ///
    /// # Errors
    /// The stream broke, or cannot be used any more.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let bytes = self.inner.fill_buf().await?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let end = memchr::memchr(b'\n', bytes).map(|end| end + 1);
            let bytes = &bytes[..end.unwrap_or(bytes.len())];
            let read = bytes.len();
            let step = match &mut self.skipping {
                Some(skipping) => {
                    skipping.add(bytes);
                    self.skip(end.is_some())
                }
                None => {
                    self.line.extend_from_slice(bytes);
                    let room = self.held.add(read);
                    match (end, room) {
                        _ if self.line.len() > MAX_LINE => self.unread(Unread::TooLong, end.is_some()),
                        (None, _) if self.line.len() == MAX_LINE => self.unread(Unread::TooLong, false),
                        (_, Err(no_room)) => self.unread(Unread::NoRoom(no_room), end.is_some()),
                        (Some(_), Ok(())) => Ok(Step::Whole),
                        (None, Ok(())) => Ok(Step::More),
                    }
                }
            };
            self.inner.consume(read);
            let step = match step? {
                Step::Whole => {
                    let line = self.whole();
                    self.line.clear();
                    self.line.shrink_to(USUAL_LINE);
                    drop(self.held.take());
                    line?
                }
                step => step,
            };
            if let Step::Line(line) = step {
                return Ok(Some(line));
            }
        }
    }

    /// Skips the current line. `ended` means that its end has been received.
    fn unread(&mut self, why: Unread, ended: bool) -> io::Result<Step> {
        log::line!(
            self.unsolicited.source.log,
            warn,
            "line on stdout not read",
            "a line on stdout is not read: {}",
            why.words()
        );
        let keys = Keys::of(&self.line[..HEAD.min(self.line.len())]);
        let known = keys.id.filter(|_| keys.answer && !keys.theirs);
        let mut skipping = Skipping {
            why,
            unknown: known.is_none() && !keys.theirs,
            bytes: 0,
            tail: Vec::new(),
        };
        skipping.add(&self.line);
        self.line = Vec::new();
        drop(self.held.take());
        self.skipping = Some(skipping);
        match known {
            Some(id) => {
                if ended {
                    self.skipping = None;
                }
                Ok(self.instead(&id, why))
            }
            None => self.skip(ended),
        }
    }

    /// Continues after more of a skipped line was added.
    fn skip(&mut self, ended: bool) -> io::Result<Step> {
        let Some(skipping) = &self.skipping else {
            return Ok(Step::More);
        };
        if !ended {
            if skipping.bytes > MAX_SKIPPED {
                return Err(self.given_up("a line on stdout has no end"));
            }
            return Ok(Step::More);
        }
        let id = last_id(&skipping.tail).filter(|_| skipping.unknown);
        let (why, bytes) = (skipping.why, skipping.bytes);
        if skipping.unknown && id.is_none() {
            return Err(self.given_up("a line on stdout is too long, and does not say which call it answers"));
        }
        self.skipping = None;
        match id {
            Some(id) => Ok(self.instead(&id, why)),
            None => {
                self.unsolicited.noise(bytes).map_err(io::Error::other)?;
                Ok(Step::More)
            }
        }
    }

    /// Replaces an answer that is not read.
    fn instead(&mut self, id: &Value, why: Unread) -> Step {
        let waiting = id.as_i64().and_then(|id| self.calls.remove(&id));
        match (why, waiting) {
            (Unread::NoRoom(no_room), Some(slot)) => {
                slot.fill(Attempt::Lost(Lost::NoRoom, no_room.to_string()));
                Step::of(empty(id))
            }
            (why, _) => Step::of(instead(id, &why.words())),
        }
    }

    fn given_up(&self, why: &'static str) -> io::Error {
        let log = &self.unsolicited.source.log;
        log::line!(*log, error, "stdout given up", "{why}; the server is restarted");
        io::Error::new(io::ErrorKind::InvalidData, why)
    }

    /// Interprets the current line.
    fn whole(&mut self) -> io::Result<Step> {
        let line = trimmed(&self.line);
        if line.is_empty() {
            return Ok(Step::More);
        }
        let bytes = line.len();
        // serde would also accept an array as the members in order.
        let envelope = match line.first() {
            Some(b'{') => serde_json::from_slice::<Envelope<'_>>(line).ok(),
            _ => None,
        };
        let Some(envelope) = envelope else {
            return self.no_message();
        };
        if envelope.jsonrpc.map(RawValue::get) != Some(r#""2.0""#) {
            return self.no_message();
        }
        if let Some(method) = envelope.method.as_deref().filter(|_| !envelope.is_answer()) {
            let verdict = self.unsolicited.receive(method, envelope.id, bytes);
            return match verdict.map_err(io::Error::other)? {
                Verdict::Dropped => Ok(Step::More),
                Verdict::Passed => Ok(Step::of(message::read(line).ok())),
                Verdict::Answer(answer) => Ok(Step::Line(Line::Answer(answer))),
            };
        }
        let id = envelope.id.and_then(message::number).filter(|_| envelope.is_answer());
        if let Some((id, slot)) = id.and_then(|id| Some((id, self.calls.remove(&id)?))) {
            let source = &self.unsolicited.source;
            let attempt = match envelope.says() {
                Says::Result(result) => {
                    let at = offset(&self.line, result.get().as_bytes());
                    let (line, held) = (std::mem::take(&mut self.line), self.held.take());
                    Attempt::Result(Bytes::from(line).slice(at), held)
                }
                Says::Error(error) => Attempt::error(&error, source),
                Says::Nothing(why) => Attempt::Lost(Lost::Connection, source.said(&why, ERROR_BYTES).into_owned()),
            };
            slot.fill(attempt);
            return Ok(Step::of(empty(&json!(id))));
        }
        // An answer to rmcp, such as a list, or to no known request.
        self.unsolicited.noise(bytes).map_err(io::Error::other)?;
        let Ok(tree) = message::tree_bytes(line) else {
            return self.no_message();
        };
        if let Err(no_room) = self.held.add(tree) {
            let id = envelope.id.and_then(|id| serde_json::from_str(id.get()).ok());
            return Ok(id.map_or(Step::More, |id| self.instead(&id, Unread::NoRoom(no_room))));
        }
        match message::read(line) {
            Ok(message) => {
                self.unsolicited.keep(&mut self.held);
                Ok(Step::of(Some(message)))
            }
            Err(_) => self.no_message(),
        }
    }

    /// The current line is not a message. If it is an answer, an error replaces it.
    fn no_message(&mut self) -> io::Result<Step> {
        let line = trimmed(&self.line);
        let keys = Keys::of(line);
        let answer = keys.answer && !keys.theirs;
        let log = &self.unsolicited.source.log;
        let Some(id) = keys.id.or_else(|| last_id(line)).filter(|_| answer) else {
            self.unsolicited.noise(line.len()).map_err(io::Error::other)?;
            log::line!(
                *log,
                debug,
                "line on stdout left out",
                "a line on stdout is not a message; it is ignored"
            );
            return Ok(Step::More);
        };
        // The reason quotes nothing of the line.
        let why = message::read(line).map(drop).map_err(|error| error.to_string());
        let why = why.err().unwrap_or_default();
        log::line!(
            *log,
            warn,
            "answer on stdout unreadable",
            why,
            "an answer on stdout cannot be read"
        );
        Ok(Step::of(instead(&id, "the answer is not a readable JSON-RPC message")))
    }
}

/// The line without surrounding white space and byte order mark (RFC 8259 section 8.1).
fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
}

/// The position of `part` in `line`, of which it is a part.
fn offset(line: &[u8], part: &[u8]) -> std::ops::Range<usize> {
    let at = part.as_ptr() as usize - line.as_ptr() as usize;
    at..at + part.len()
}

impl Unread {
    fn words(self) -> String {
        match self {
            Self::TooLong => "the answer has more than 16 MiB and was not read".to_owned(),
            Self::NoRoom(no_room) => no_room.to_string(),
        }
    }
}

impl Skipping {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL)..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
    }
}

/// What rmcp receives for an answer that bypassed it.
fn empty(id: &Value) -> Option<Message> {
    serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "result": {}})).ok()
}

/// An error in place of an answer. The server may have executed the call, so the code is not one that denies this.
/// `None` if gavel never uses such an id.
fn instead(id: &Value, message: &str) -> Option<Message> {
    serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": message}})).ok()
}

#[cfg(test)]
mod tests;

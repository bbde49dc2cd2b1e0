//! A child's stdout, line by line, within limits.
//!
//! A line that is too long is skipped, and the request that it answers ends with an error: its id is at the beginning or
//! the end of the line, depending on the program that wrote it. A line that is too long and has no id, or that never
//! ends, ends the connection and every call on it.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::attempt::{Attempt, Lost};
use super::inbox::Inbox;
use super::log;
use super::message;
use super::source::NoRoom;
use crate::domain::budget::{Held, Share};

/// Longest line, including its end.
const MAX_LINE: usize = 16 * 1024 * 1024;
/// How much of a line that is too long is read to find its end.
const MAX_SKIPPED: usize = 16 * MAX_LINE;
/// Bytes that are examined at the beginning of a line that is too long, and at its end.
const HEAD: usize = 4 * 1024;
const TAIL: usize = 512;

/// What was read.
#[derive(Debug)]
pub(super) enum Line {
    /// A line with its end, and its share of the answer budget.
    Whole(Bytes, Option<Share>),
    /// The answer to the request with this id is not read. The request ends in this way.
    Unread(i64, Attempt),
}

/// The lines on `inner`.
pub(super) struct Lines<R> {
    inner: BufReader<R>,
    inbox: Arc<Inbox>,
    /// The part of the current line received so far.
    line: Vec<u8>,
    /// The line's share of the answer budget.
    held: Held<'static>,
    skipping: Option<Skipping>,
}

/// A line that is skipped until its end.
struct Skipping {
    why: Unread,
    /// Only the end of the line can show which request it answers.
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

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(inner: R, inbox: Arc<Inbox>) -> Self {
        Self {
            inner: BufReader::new(inner),
            held: inbox.source.held(),
            inbox,
            line: Vec::new(),
            skipping: None,
        }
    }

    /// The next line; `None` at the end.
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
            let line = match &mut self.skipping {
                Some(skipping) => {
                    skipping.add(bytes);
                    self.skip(end.is_some())
                }
                None => {
                    self.line.extend_from_slice(bytes);
                    let room = self.held.add(read).map_err(NoRoom::from);
                    match (end, room) {
                        _ if self.line.len() > MAX_LINE => self.unread(Unread::TooLong, end.is_some()),
                        (None, _) if self.line.len() == MAX_LINE => self.unread(Unread::TooLong, false),
                        (_, Err(no_room)) => self.unread(Unread::NoRoom(no_room), end.is_some()),
                        (Some(_), Ok(())) => {
                            let line = std::mem::take(&mut self.line);
                            Ok(Some(Line::Whole(line.into(), self.held.take())))
                        }
                        (None, Ok(())) => Ok(None),
                    }
                }
            };
            self.inner.consume(read);
            if let Some(line) = line? {
                return Ok(Some(line));
            }
        }
    }

    /// Skips the current line. `ended` means that its end has been received.
    fn unread(&mut self, why: Unread, ended: bool) -> io::Result<Option<Line>> {
        let log = &self.inbox.source.log;
        let words = why.words();
        log::line!(*log, warn, "a line on stdout is not read: {words}");
        let keys = Keys::read(&self.line[..HEAD.min(self.line.len())]);
        let known = keys.answers();
        let mut skipping = Skipping {
            why,
            unknown: known.is_none() && !keys.theirs,
            bytes: 0,
            tail: Vec::new(),
        };
        skipping.add(&self.line);
        self.line = Vec::new();
        drop(self.held.take());
        match known {
            Some(id) => {
                self.skipping = Some(skipping).filter(|_| !ended);
                Ok(Some(Line::Unread(id, why.attempt())))
            }
            None => {
                self.skipping = Some(skipping);
                self.skip(ended)
            }
        }
    }

    /// Continues after more of a skipped line was added.
    fn skip(&mut self, ended: bool) -> io::Result<Option<Line>> {
        let Some(skipping) = &self.skipping else {
            return Ok(None);
        };
        if !ended {
            return match skipping.bytes > MAX_SKIPPED {
                true => Err(self.given_up("a line on stdout has no end")),
                false => Ok(None),
            };
        }
        let id = last_id(&skipping.tail).filter(|_| skipping.unknown);
        let (why, bytes) = (skipping.why, skipping.bytes);
        if skipping.unknown && id.is_none() {
            return Err(self.given_up("a line on stdout is too long, and does not say which call it answers"));
        }
        self.skipping = None;
        if id.is_none() {
            self.inbox.noise(bytes).map_err(io::Error::other)?;
        }
        Ok(id.map(|id| Line::Unread(id, why.attempt())))
    }

    fn given_up(&self, why: &'static str) -> io::Error {
        let log = &self.inbox.source.log;
        log::line!(*log, error, "{why}; the server is restarted");
        io::Error::new(io::ErrorKind::InvalidData, why)
    }
}

impl Unread {
    fn words(self) -> String {
        match self {
            Self::TooLong => "the answer has more than 16 MiB and was not read".to_owned(),
            Self::NoRoom(no_room) => no_room.to_string(),
        }
    }

    fn attempt(self) -> Attempt {
        let lost = match self {
            Self::TooLong => Lost::Unreadable,
            Self::NoRoom(_) => Lost::NoRoom,
        };
        Attempt::Lost(lost, self.words())
    }
}

impl Skipping {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL)..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
    }
}

/// The request that a line answers, although the line is not JSON.
pub(super) fn answered_by(line: &[u8]) -> Option<i64> {
    let keys = Keys::read(line);
    let answer = keys.answer && !keys.theirs;
    keys.id.or_else(|| last_id(line)).filter(|_| answer)
}

/// What a line's readable members show.
#[derive(Default)]
struct Keys {
    id: Option<i64>,
    /// It is an answer.
    answer: bool,
    /// It is a request or a notification of the server, which does not answer a call.
    theirs: bool,
}

impl Keys {
    fn read(line: &[u8]) -> Self {
        let mut keys = Self::default();
        // The line is cut off or not JSON, so parsing ends with an error. What was found before counts.
        let _ = serde_json::Deserializer::from_slice(line).deserialize_map(&mut keys);
        keys
    }

    fn answers(&self) -> Option<i64> {
        self.id.filter(|_| self.answer && !self.theirs)
    }
}

impl<'de> Visitor<'de> for &mut Keys {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "id" => {
                    self.id = message::number(map.next_value()?);
                    continue;
                }
                "result" | "error" => self.answer = true,
                "method" | "params" => self.theirs = true,
                _ => {}
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// The id, if it is the last member of the line, or the last before `jsonrpc`. The member directly before the line's
/// last brace belongs to the message itself.
fn last_id(tail: &[u8]) -> Option<i64> {
    let tail = String::from_utf8_lossy(&tail[tail.len().saturating_sub(TAIL)..]);
    let members = tail.trim_end().strip_suffix('}')?;
    let members = members.strip_suffix(r#","jsonrpc":"2.0""#).unwrap_or(members);
    let (_, id) = members.rsplit_once(r#","id":"#)?;
    message::number(serde_json::from_str::<&RawValue>(id).ok()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::inbox::testing::inbox;

    /// The lines in `text`; one that is not read as the id that it answers, and why.
    async fn read(text: &[u8]) -> io::Result<Vec<Result<Bytes, (i64, String)>>> {
        let mut lines = Lines::new(text, inbox());
        let mut read = Vec::new();
        while let Some(line) = lines.next().await? {
            read.push(match line {
                Line::Whole(line, _) => Ok(line),
                Line::Unread(id, Attempt::Lost(Lost::Unreadable, words)) => Err((id, words)),
                other => panic!("{other:?}"),
            });
        }
        Ok(read)
    }

    fn long(before: &str, after: &str) -> Vec<u8> {
        [before.as_bytes(), &vec![b'x'; MAX_LINE], after.as_bytes()].concat()
    }

    const NEXT: &str = "{\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{}}\n";

    /// Promise: bounded faults. Memory is bounded, and later calls are answered.
    #[tokio::test]
    async fn an_answer_that_is_too_long_ends_its_own_request_alone() {
        for (before, after) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"text":""#, "\"}}\n"),
            (
                r#"{"result":{"id":1,"text":""#,
                "\",\"id\":2},\"jsonrpc\":\"2.0\",\"id\":7}\r\n",
            ),
            (r#"{"result":{"text":""#, "\"},\"id\":7,\"jsonrpc\":\"2.0\"}\n"),
        ] {
            let text = [NEXT.as_bytes(), &long(before, after), NEXT.as_bytes()].concat();
            let read = read(&text).await.unwrap();
            assert_eq!(read.len(), 3, "{before}");
            assert!(read[0].is_ok() && read[2].is_ok());
            let (id, words) = read[1].as_ref().unwrap_err();
            assert!(*id == 7 && words.contains("16 MiB"), "{before}: {id} {words}");
        }
        // A request of the server does not answer a call of gavel with the same id.
        let theirs = r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"text":""#;
        let text = [&long(theirs, "\"}}\n"), NEXT.as_bytes()].concat();
        assert_eq!(read(&text).await.unwrap(), [Ok(Bytes::from(NEXT))]);
    }

    #[tokio::test]
    async fn the_longest_line_is_handed_on_as_it_is() {
        let frame = r#"{"jsonrpc":"2.0","id":7,"result":{"a":""}}"#.len() + 1;
        let line = |more: usize| {
            let text = "x".repeat(MAX_LINE - frame + more);
            format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{{\"a\":\"{text}\"}}}}\n")
        };
        assert_eq!(line(0).len(), MAX_LINE);
        for (more, whole) in [(0, true), (1, false), (2, false)] {
            let read = read(format!("{}{NEXT}", line(more)).as_bytes()).await.unwrap();
            assert_eq!(read[0].is_ok(), whole, "{more}");
            assert_eq!(read[1], Ok(Bytes::from(NEXT)));
        }
    }

    #[tokio::test]
    async fn a_line_that_tells_nothing_or_has_no_end_ends_the_connection() {
        let silent = read(&long("", "\n")).await.unwrap_err();
        assert!(silent.to_string().contains("which call"), "{silent}");
        let nested = read(&long("{\"result\":{\"text\":\"", "\",\"id\":7}}\n")).await;
        assert!(nested.is_err(), "an id inside of the result is not the call's");
        let mut endless = Lines::new(tokio::io::repeat(b'x'), inbox());
        let error = endless.next().await.err().unwrap();
        assert!(error.to_string().contains("no end"), "{error}");
        assert_eq!(endless.line.capacity(), 0, "it is given back");
    }

    /// Promise: bounded faults. Wherever the line contains the id of its call.
    #[tokio::test]
    async fn an_answer_that_finds_no_room_ends_its_own_call_alone() {
        let inbox = inbox();
        let mib = 1024 * 1024;
        let _held: Vec<_> = [("a", 96 * mib), ("b", 64 * mib)]
            .map(|(tenant, bytes)| inbox.source.answers.take(tenant, "u", bytes).unwrap())
            .into();
        let text = "x".repeat(1_000_000);
        let text = [
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"a\":\"{text}\"}}}}\n"),
            format!("{{\"result\":{{\"a\":\"{text}\"}},\"jsonrpc\":\"2.0\",\"id\":2}}\n"),
            NEXT.to_owned(),
        ];
        let text = text.concat();
        let mut lines = Lines::new(text.as_bytes(), inbox);
        for expected in [1, 2] {
            let line = lines.next().await.unwrap();
            let Some(Line::Unread(id, Attempt::Lost(Lost::NoRoom, words))) = line else {
                panic!("{line:?}")
            };
            assert!(id == expected && words.contains("too many large answers"), "{words}");
        }
        assert!(matches!(lines.next().await, Ok(Some(Line::Whole(..)))));
    }

    #[test]
    fn a_line_that_is_no_json_may_show_which_request_it_answers() {
        for (line, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"a":NaN}}"#, Some(7)),
            (r#"{"result":{"a":NaN},"jsonrpc":"2.0","id":7}"#, Some(7)),
            (r#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":NaN}}"#, None),
            (r#"{"jsonrpc":"2.0","id":{"x":1},"result":NaN}"#, None),
            ("listening", None),
            ("", None),
            ("[", None),
        ] {
            assert_eq!(answered_by(line.as_bytes()), id, "{line}");
        }
    }
}

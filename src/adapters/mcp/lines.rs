//! A child's stdout: one JSON-RPC message a line.
//!
//! rmcp drops a line that is too long or that it cannot read, and says so to nobody, so the call that it answers would wait
//! for its time to be over. Here such an answer is mended where that is possible (`message`), else an error takes its place,
//! and what comes behind it is read as usual. Which call it belongs to stands at the beginning of the line or at its end,
//! depending on who wrote it.
//!
//! The answer to a call goes past rmcp, which would make a tree of it: it is left in the call's [`Slot`], and rmcp gets an
//! empty one. What the server sends of its own accord ends here as well (`unsolicited`).
//!
//! A line that is too long and tells nothing, or goes on without an end, is the end of the connection, and of every call on
//! it. Other lines that are no messages (servers print there what belongs to stderr) are left out.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::answers::{Held, NoRoom};
use super::attempt::{Attempt, Lost};
use super::log;
use super::message::{self, Envelope, Message};
use super::unsolicited::{Answer, Unsolicited, Verdict};

/// Longest line, its end included.
const MAX_LINE: usize = 16 * 1024 * 1024;
/// So much of a line that is too long is read to find its end.
const MAX_SKIPPED: usize = 16 * MAX_LINE;
/// What is looked at of the beginning and of the end of a line that is too long.
const HEAD: usize = 4 * 1024;
const TAIL: usize = 512;
/// A buffer that had to grow beyond this is given back after the line.
const USUAL_LINE: usize = 256 * 1024;
/// From so many calls on, those that nobody waits for any more are looked for.
const MANY_CALLS: usize = 64;

/// Where the answer to a call is left for the one who made it.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot(Arc<Mutex<Option<Attempt>>>);

impl Slot {
    fn fill(&self, attempt: Attempt) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(attempt);
    }

    /// The answer, if it has come.
    pub(super) fn take(&self) -> Option<Attempt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn is_waited_for(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// What a line brought.
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
    /// Calls under way, by their ids.
    calls: HashMap<i64, Slot>,
    /// What has come of the current line.
    line: Vec<u8>,
    /// What it takes of the budget of answers.
    held: Held<'static>,
    skipping: Option<Skipping>,
}

/// A line that is not kept, until its end.
struct Skipping {
    why: Unread,
    /// Its end has to tell which call it answers.
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

/// What one read brought.
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

    /// A call is on its way, whose answer is left in `slot`.
    pub(super) fn expect(&mut self, id: i64, slot: Slot) {
        if self.calls.len() >= MANY_CALLS {
            self.calls.retain(|_, slot| slot.is_waited_for());
        }
        self.calls.insert(id, slot);
    }

    /// The next message; `None` at the end. When the future is dropped nothing is lost: a line that has not come whole is
    /// kept for the next call.
    ///
    /// # Errors
    /// The stream broke, or nothing good can come of it any more.
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

    /// The current line is not kept; `ended`: its end has come.
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

    /// More of a line that is not kept has been added to what is skipped.
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

    /// In the place of an answer that is not read.
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
        log::line!(*log, error, "stdout given up", "{why}; the server is started again");
        io::Error::new(io::ErrorKind::InvalidData, why)
    }

    /// What the current line says.
    fn whole(&mut self) -> io::Result<Step> {
        let line = trimmed(&self.line);
        if line.is_empty() {
            return Ok(Step::More);
        }
        let bytes = line.len();
        // serde would also take an array for the members in their order.
        let envelope = match line.first() {
            Some(b'{') => serde_json::from_slice::<Envelope<'_>>(line).ok(),
            _ => None,
        };
        let Some(envelope) = envelope else {
            return self.no_message();
        };
        if envelope.jsonrpc.as_deref() != Some("2.0") {
            return self.no_message();
        }
        if let Some(method) = &envelope.method {
            let verdict = self.unsolicited.heard(method, envelope.id, bytes);
            return match verdict.map_err(io::Error::other)? {
                Verdict::Dropped => Ok(Step::More),
                Verdict::Passed => Ok(Step::of(message::read(line).ok())),
                Verdict::Answer(answer) => Ok(Step::Line(Line::Answer(answer))),
            };
        }
        // Some servers send an id back as text.
        let id = envelope
            .id
            .and_then(|id| id.get().trim_matches('"').parse::<i64>().ok());
        let is_answer = envelope.result.is_some() || envelope.error.is_some();
        let id = id.filter(|_| is_answer);
        if let Some((id, slot)) = id.and_then(|id| Some((id, self.calls.remove(&id)?))) {
            let attempt = match (envelope.result, envelope.error) {
                (Some(result), _) => {
                    let at = offset(&self.line, result.get().as_bytes());
                    let (line, held) = (std::mem::take(&mut self.line), self.held.take());
                    Attempt::Result(Bytes::from(line).slice(at), held)
                }
                (None, Some(error)) => Attempt::error(error, &self.unsolicited.source),
                (None, None) => Attempt::Lost(Lost::Connection, "the answer holds no result".to_owned()),
            };
            slot.fill(attempt);
            return Ok(Step::of(empty(&json!(id))));
        }
        // An answer to rmcp, such as a list, or to nobody.
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

    /// The current line is no message; an answer has an error in its place.
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
                "a line on stdout is no message; it is left out"
            );
            return Ok(Step::More);
        };
        // Its words may quote nothing of the line.
        let why = message::read(line).map(drop).map_err(|error| error.to_string());
        let why = why.err().unwrap_or_default();
        log::line!(
            *log,
            warn,
            "answer on stdout unreadable",
            why,
            "an answer on stdout cannot be read"
        );
        Ok(Step::of(instead(
            &id,
            "the answer is no JSON-RPC message that can be read",
        )))
    }
}

/// The line without white space around it, and without a byte order mark (RFC 8259 section 8.1).
fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
}

/// Where `part` stands in `line`, of which it is a part.
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

/// What a line's members tell, as far as they could be read.
#[derive(Default)]
struct Keys {
    id: Option<Value>,
    /// It is an answer.
    answer: bool,
    /// It is a request or a notification of the server's own, which nobody waits for.
    theirs: bool,
}

impl Keys {
    fn of(line: &[u8]) -> Self {
        let mut keys = Self::default();
        // It is cut, or it is no JSON, so it ends with an error; what was found before counts.
        let _ = serde_json::Deserializer::from_slice(line).deserialize_map(&mut keys);
        keys
    }
}

impl<'de> Visitor<'de> for &mut Keys {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "id" => {
                    self.id = Some(map.next_value()?);
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

/// The id where it is the last member of the line, or the last but `jsonrpc`. What stands directly before the line's last
/// brace is a member of the message itself.
fn last_id(tail: &[u8]) -> Option<Value> {
    let tail = String::from_utf8_lossy(&tail[tail.len().saturating_sub(TAIL)..]);
    let members = tail.trim_end().strip_suffix('}')?;
    let members = members.strip_suffix(r#","jsonrpc":"2.0""#).unwrap_or(members);
    let (_, id) = members.rsplit_once(r#","id":"#)?;
    let id: Value = serde_json::from_str(id).ok()?;
    (id.is_number() || id.is_string()).then_some(id)
}

/// What rmcp gets of an answer that has gone past it.
fn empty(id: &Value) -> Option<Message> {
    serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "result": {}})).ok()
}

/// An error in the place of an answer. The server may have done what it was asked to, so the code is not one of those that
/// say otherwise. `None`: such an id is none that we gave.
fn instead(id: &Value, message: &str) -> Option<Message> {
    serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": message}})).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::adapters::mcp::unsolicited::testing::unsolicited;

    async fn read(text: &[u8]) -> io::Result<Vec<Value>> {
        let mut lines = Lines::new(text, unsolicited());
        let mut read = Vec::new();
        while let Some(line) = lines.next().await? {
            if let Line::Message(message) = line {
                read.push(serde_json::to_value(message).unwrap());
            }
        }
        Ok(read)
    }

    fn long(before: &str, after: &str) -> Vec<u8> {
        [before.as_bytes(), &vec![b'x'; MAX_LINE], after.as_bytes()].concat()
    }

    const NEXT: &str = "{\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{}}\n";

    /// Promise 5: in bounded memory, and the calls behind it are answered.
    #[tokio::test]
    async fn an_error_takes_the_place_of_an_answer_that_is_too_long() {
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
            assert_eq!((&read[0]["id"], &read[2]["id"]), (&json!(8), &json!(8)));
            assert_eq!(read[1]["id"], 7, "{before}");
            assert!(
                read[1]["error"]["message"].as_str().unwrap().contains("16 MiB"),
                "{before}"
            );
        }
        // A message of the server's own is not the answer to a call of ours that has the same id.
        let theirs = r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"text":""#;
        let text = [&long(theirs, "\"}}\n"), NEXT.as_bytes()].concat();
        let read = read(&text).await.unwrap();
        assert_eq!((read.len(), &read[0]["id"]), (1, &json!(8)));
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
            assert_eq!(read[0]["result"]["a"].is_string(), whole, "{more}");
            assert_eq!(read[0]["error"].is_object(), !whole, "{more}");
            assert_eq!(read[1]["id"], 8);
        }
    }

    #[tokio::test]
    async fn a_line_that_tells_nothing_or_has_no_end_ends_the_connection() {
        let silent = read(&long("", "\n")).await.unwrap_err();
        assert!(silent.to_string().contains("which call"), "{silent}");
        let nested = read(&long("{\"result\":{\"text\":\"", "\",\"id\":7}}\n")).await;
        assert!(nested.is_err(), "an id inside of the result is not the call's");
        let mut endless = Lines::new(tokio::io::repeat(b'x'), unsolicited());
        let error = endless.next().await.err().unwrap();
        assert!(error.to_string().contains("no end"), "{error}");
        assert_eq!(endless.line.capacity(), 0, "it is given back");
    }

    /// Promise 5: no answer is dropped in silence.
    #[tokio::test]
    async fn an_answer_that_cannot_be_read_is_mended_or_told() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for (line, pointer, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{"a":"cut \ud83d"}}"#.to_owned(),
                "/result/a",
                json!("cut \u{fffd}"),
            ),
            (
                format!(r#"{{"result":{{"structuredContent":{deep},"b":"\ude00"}},"jsonrpc":"2.0","id":7}}"#),
                "/result/structuredContent",
                json!(deep),
            ),
            // Python writes it so.
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{"a":NaN}}"#.to_owned(),
                "/error/code",
                json!(-32000),
            ),
            (
                r#"{"result":{"a":NaN},"jsonrpc":"2.0","id":7}"#.to_owned(),
                "/error/code",
                json!(-32000),
            ),
            (
                r#"{"jsonrpc":"1.0","id":7,"result":{}}"#.to_owned(),
                "/error/code",
                json!(-32000),
            ),
        ] {
            let read = read(format!("{line}\n{NEXT}").as_bytes()).await.unwrap();
            assert_eq!(read.len(), 2, "{line}");
            assert_eq!(read[0]["id"], 7, "{line}");
            assert_eq!(read[0].pointer(pointer), Some(&expected), "{line}: {read:?}");
        }
    }

    /// Promise 5: no tree is made of it.
    #[tokio::test]
    async fn the_answer_to_a_call_is_left_for_the_call_as_it_came() {
        let text = "{\"result\": {\"a\": [1,\u{20}2]}, \"jsonrpc\":\"2.0\",\"id\":\"7\"}\n\
                    {\"jsonrpc\":\"2.0\",\"id\":8}\n\
                    {\"jsonrpc\":\"2.0\",\"id\":8,\"error\":{\"code\":-5,\"message\":\"no\"}}\n";
        let mut lines = Lines::new(text.as_bytes(), unsolicited());
        let (seven, eight) = (Slot::default(), Slot::default());
        lines.expect(7, seven.clone());
        lines.expect(8, eight.clone());
        for id in [7, 8] {
            let Some(Line::Message(message)) = lines.next().await.unwrap() else {
                panic!("no message")
            };
            let empty = json!({"jsonrpc": "2.0", "id": id, "result": {}});
            assert_eq!(serde_json::to_value(message).unwrap(), empty, "for rmcp");
        }
        assert!(matches!(seven.take(), Some(Attempt::Result(text, None)) if *text == b"{\"a\": [1, 2]}"[..]));
        assert!(matches!(eight.take(), Some(Attempt::Error { code: -5, message }) if message == "no"));
        assert!(lines.calls.is_empty());
    }

    /// Promise 5: wherever the line says whose answer it is.
    #[tokio::test]
    async fn an_answer_that_finds_no_room_ends_its_own_call_alone() {
        let unsolicited = unsolicited();
        let mib = 1024 * 1024;
        let held: Vec<_> = [("a", 96 * mib), ("b", 64 * mib)]
            .map(|(tenant, bytes)| unsolicited.source.answers.take(tenant, "u", bytes).unwrap())
            .into();
        let text = "x".repeat(1_000_000);
        let text = [
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"a\":\"{text}\"}}}}\n"),
            format!("{{\"result\":{{\"a\":\"{text}\"}},\"jsonrpc\":\"2.0\",\"id\":2}}\n"),
            NEXT.replace('8', "3"),
        ];
        let text = text.concat();
        let mut lines = Lines::new(text.as_bytes(), unsolicited);
        let slots = [1, 2, 3].map(|id| {
            let slot = Slot::default();
            lines.expect(id, slot.clone());
            slot
        });
        while lines.next().await.unwrap().is_some() {}
        drop(held);
        let [one, two, three] = slots.map(|slot| slot.take());
        for refused in [one, two] {
            let Some(Attempt::Lost(Lost::NoRoom, words)) = refused else {
                panic!("{refused:?}")
            };
            assert!(words.contains("too many large answers"), "{words}");
        }
        assert!(matches!(three, Some(Attempt::Result(..))), "{three:?}");
    }

    /// Calls that were given up leave nothing behind.
    #[test]
    fn calls_that_nobody_waits_for_are_forgotten() {
        let mut lines = Lines::new(&b""[..], unsolicited());
        let waiting = Slot::default();
        lines.expect(-1, waiting.clone());
        for id in 0..10_000 {
            lines.expect(id, Slot::default());
            assert!(lines.calls.len() <= MANY_CALLS, "{id}");
        }
        assert!(lines.calls.contains_key(&-1));
    }

    #[tokio::test]
    async fn lines_that_are_no_answers_are_left_out() {
        for line in [
            "listening",
            "",
            "{\"level\":\"info\",\"id\":7}",
            "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"x\",\"params\":{\"a\":NaN}}",
            "{\"jsonrpc\":\"2.0\",\"id\":{\"x\":1},\"result\":NaN}",
            "\u{feff}",
            "[",
        ] {
            let text = [line.as_bytes(), b"\r\n", NEXT.as_bytes(), b"{\"cut"].concat();
            let read = read(&text).await.unwrap();
            assert_eq!((read.len(), &read[0]["id"]), (1, &json!(8)), "{line}");
        }
        let marked = read(format!("\u{feff}{NEXT}").as_bytes()).await.unwrap();
        assert_eq!(marked[0]["id"], 8);
    }
}

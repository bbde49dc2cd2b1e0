//! A child's stdout: one JSON-RPC message a line.
//!
//! rmcp drops a line that is too long or that it cannot read, and says so to nobody, so the call that it answers would wait
//! for its time to be over. Here such an answer is mended where that is possible (`message`), else an error takes its place,
//! and what comes behind it is read as usual. Which call it belongs to stands at the beginning of the line or at its end,
//! depending on who wrote it.
//!
//! A line that is too long and tells nothing, or goes on without an end, is the end of the connection, and of every call on
//! it. Other lines that are no messages (servers print there what belongs to stderr) are left out.

use std::io;
use std::sync::Arc;

use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::message::{self, Message};

/// Longest line, its end included.
const MAX_LINE: usize = 16 * 1024 * 1024;
/// So much of a line that is too long is read to find its end.
const MAX_SKIPPED: usize = 16 * MAX_LINE;
/// What is looked at of the beginning and of the end of a line that is too long.
const HEAD: usize = 4 * 1024;
const TAIL: usize = 512;
/// A buffer that had to grow beyond this is given back after the line.
const USUAL_LINE: usize = 256 * 1024;

/// The messages on `inner`.
pub(super) struct Lines<R> {
    inner: BufReader<R>,
    server: Arc<str>,
    /// What has come of the current line.
    line: Vec<u8>,
    skipping: Option<Skipping>,
}

/// A line that is too long, until its end.
#[derive(Default)]
struct Skipping {
    /// Its end has to tell which call it answers.
    unknown: bool,
    bytes: usize,
    tail: Vec<u8>,
}

/// What one read brought.
enum Step {
    More,
    Line,
    Message(Box<Message>),
}

impl Step {
    /// In the place of an answer that is too long.
    fn instead(id: &Value) -> Self {
        let message = instead(id, "the answer has more than 16 MiB and was not read");
        message.map_or(Self::More, |message| Self::Message(Box::new(message)))
    }
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(inner: R, server: Arc<str>) -> Self {
        Self {
            inner: BufReader::new(inner),
            server,
            line: Vec::new(),
            skipping: None,
        }
    }

    /// The next message; `None` at the end. When the future is dropped nothing is lost: a line that has not come whole is
    /// kept for the next call.
    ///
    /// # Errors
    /// The stream broke, or nothing good can come of it any more.
    pub(super) async fn next(&mut self) -> io::Result<Option<Message>> {
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
                    match end {
                        Some(_) if self.line.len() <= MAX_LINE => Ok(Step::Line),
                        None if self.line.len() < MAX_LINE => Ok(Step::More),
                        _ => self.too_long(end.is_some()),
                    }
                }
            };
            self.inner.consume(read);
            match step? {
                Step::More => {}
                Step::Message(message) => return Ok(Some(*message)),
                Step::Line => {
                    let message = self.message();
                    self.line.clear();
                    self.line.shrink_to(USUAL_LINE);
                    if let Some(message) = message {
                        return Ok(Some(message));
                    }
                }
            }
        }
    }

    /// The current line has reached its limit; `ended`: and its end.
    fn too_long(&mut self, ended: bool) -> io::Result<Step> {
        tracing::warn!(
            server = &*self.server,
            limit = MAX_LINE,
            "a line on stdout is too long; it is not read"
        );
        let keys = Keys::of(&self.line[..HEAD]);
        let known = keys.id.filter(|_| keys.answer && !keys.theirs);
        let mut skipping = Skipping {
            unknown: known.is_none() && !keys.theirs,
            ..Skipping::default()
        };
        skipping.add(&self.line);
        self.line = Vec::new();
        self.skipping = Some(skipping);
        match known {
            Some(id) => {
                if ended {
                    self.skipping = None;
                }
                Ok(Step::instead(&id))
            }
            None => self.skip(ended),
        }
    }

    /// More of a line that is too long has been added to what is skipped.
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
        if skipping.unknown && id.is_none() {
            return Err(self.given_up("a line on stdout is too long, and does not say which call it answers"));
        }
        self.skipping = None;
        Ok(id.map_or(Step::More, |id| Step::instead(&id)))
    }

    fn given_up(&self, why: &'static str) -> io::Error {
        tracing::error!(server = &*self.server, "{why}; the server is started again");
        io::Error::new(io::ErrorKind::InvalidData, why)
    }

    /// What the current line says, if it is a message.
    fn message(&self) -> Option<Message> {
        let line = self.line.trim_ascii();
        // A byte order mark (RFC 8259 section 8.1).
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        if line.is_empty() {
            return None;
        }
        let error = match message::read(line) {
            Ok(message) => return Some(message),
            Err(error) => error,
        };
        let keys = Keys::of(line);
        let answer = keys.answer && !keys.theirs;
        let Some(id) = keys.id.or_else(|| last_id(line)).filter(|_| answer) else {
            tracing::debug!(server = &*self.server, "a line on stdout is no message; it is left out");
            return None;
        };
        // serde's words may quote the line, its place does not.
        let (category, column) = (error.classify(), error.column());
        tracing::warn!(
            server = &*self.server,
            ?category,
            column,
            "an answer on stdout cannot be read"
        );
        instead(&id, "the answer is no JSON-RPC message that can be read")
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

/// An error in the place of an answer. The server may have done what it was asked to, so the code is not one of those that
/// say otherwise. `None`: such an id is none that we gave.
fn instead(id: &Value, message: &str) -> Option<Message> {
    serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": message}})).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    async fn read(text: &[u8]) -> io::Result<Vec<Value>> {
        let mut lines = Lines::new(text, Arc::from("s"));
        let mut read = Vec::new();
        while let Some(message) = lines.next().await? {
            read.push(serde_json::to_value(message).unwrap());
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
        let mut endless = Lines::new(tokio::io::repeat(b'x'), Arc::from("s"));
        let error = endless.next().await.unwrap_err();
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

//! A child's stdout with a bound on its lines.
//!
//! rmcp drops a line that is too long and says so to nobody, so the call that it answers would wait for its time to be over.
//! Here an error takes the place of such an answer, and what comes behind it is read as usual. Which call it answers stands
//! at the beginning of the line or at its end, depending on who wrote it. Where neither tells, or the line goes on without
//! an end, the connection is given up, and every call on it with it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, ReadBuf};

/// Longest line, its end included; rmcp's own limit.
pub(super) const MAX_LINE: usize = 16 * 1024 * 1024;
/// So much of a line that is too long is read to find its end.
const MAX_SKIPPED: usize = 16 * MAX_LINE;
/// What is kept of a line's beginning and of its end.
const HEAD: usize = 4 * 1024;
const TAIL: usize = 512;

/// Bytes of `inner`, with errors in place of answers that are too long.
pub(super) struct Lines<R> {
    inner: R,
    server: Arc<str>,
    /// Bytes of the line that is being handed on, and its beginning.
    length: usize,
    head: Vec<u8>,
    skipping: Option<Skipping>,
    /// To be handed on before anything else is read.
    ready: Vec<u8>,
}

/// A line that is too long, until its end.
#[derive(Default)]
struct Skipping {
    /// Its end has to tell which call it answers.
    unknown: bool,
    bytes: usize,
    tail: Vec<u8>,
}

impl<R> Lines<R> {
    pub(super) fn new(inner: R, server: Arc<str>) -> Self {
        Self {
            inner,
            server,
            length: 0,
            head: Vec::new(),
            skipping: None,
            ready: Vec::new(),
        }
    }

    /// Notes what is handed on.
    fn note(&mut self, bytes: &[u8]) {
        let line = match memchr::memrchr(b'\n', bytes) {
            Some(end) => {
                self.length = 0;
                self.head.clear();
                &bytes[end + 1..]
            }
            None => bytes,
        };
        self.length += line.len();
        let missing = HEAD.saturating_sub(self.head.len()).min(line.len());
        self.head.extend_from_slice(&line[..missing]);
    }

    /// The line is too long. The reader drops what it has of it at the line's end, which comes first.
    fn begin_skipping(&mut self) {
        tracing::warn!(
            server = &*self.server,
            limit = MAX_LINE,
            "a line on stdout is too long; it is not read"
        );
        let whose = whose(&self.head);
        self.ready.push(b'\n');
        if let Whose::Answer(id) = &whose {
            self.ready.extend_from_slice(&too_long(id));
        }
        self.skipping = Some(Skipping {
            unknown: matches!(whose, Whose::Unknown),
            ..Skipping::default()
        });
        self.length = 0;
        self.head.clear();
    }

    /// More of it. What stands behind its end is handed on.
    fn skip(&mut self, mut skipping: Skipping, bytes: &[u8]) -> io::Result<()> {
        let end = memchr::memchr(b'\n', bytes);
        let line = &bytes[..end.unwrap_or(bytes.len())];
        skipping.bytes += line.len();
        skipping
            .tail
            .extend_from_slice(&line[line.len().saturating_sub(TAIL)..]);
        skipping.tail.drain(..skipping.tail.len().saturating_sub(TAIL));
        let Some(end) = end else {
            if skipping.bytes > MAX_SKIPPED {
                return Err(self.given_up("a line on stdout has no end"));
            }
            self.skipping = Some(skipping);
            return Ok(());
        };
        if skipping.unknown {
            let Some(id) = last_id(&skipping.tail) else {
                return Err(self.given_up("a line on stdout is too long, and does not say which call it answers"));
            };
            self.ready.extend_from_slice(&too_long(&id));
        }
        let rest = &bytes[end + 1..];
        self.ready.extend_from_slice(rest);
        self.note(rest);
        Ok(())
    }

    fn given_up(&self, why: &'static str) -> io::Error {
        tracing::error!(server = &*self.server, "{why}; the server is started again");
        io::Error::new(io::ErrorKind::InvalidData, why)
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Lines<R> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if !this.ready.is_empty() {
                let now = this.ready.len().min(out.remaining());
                out.put_slice(&this.ready[..now]);
                this.ready.drain(..now);
                return Poll::Ready(Ok(()));
            }
            if let Some(skipping) = this.skipping.take() {
                let mut bytes = [0; 8 * 1024];
                let mut buffer = ReadBuf::new(&mut bytes);
                match Pin::new(&mut this.inner).poll_read(context, &mut buffer) {
                    Poll::Ready(Ok(())) if !buffer.filled().is_empty() => this.skip(skipping, buffer.filled())?,
                    other => {
                        this.skipping = Some(skipping);
                        return other;
                    }
                }
                continue;
            }
            // Never beyond the limit, so that a line that is too long is met at its last good byte.
            let room = out.remaining().min(MAX_LINE - this.length);
            let mut some = ReadBuf::new(out.initialize_unfilled_to(room));
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut some))?;
            let read = some.filled().len();
            this.note(some.filled());
            out.advance(read);
            if this.length == MAX_LINE {
                this.begin_skipping();
            }
            return Poll::Ready(Ok(()));
        }
    }
}

/// What a line's beginning tells.
#[derive(Debug, PartialEq, Eq)]
enum Whose {
    /// The answer to this call.
    Answer(Value),
    /// A request or a notification of the server's own, which nobody waits for.
    Theirs,
    /// Nothing yet.
    Unknown,
}

fn whose(head: &[u8]) -> Whose {
    let mut keys = Keys::default();
    // It is cut, so it ends with an error; what was found before counts.
    let _ = serde_json::Deserializer::from_slice(head).deserialize_map(&mut keys);
    match keys {
        Keys { theirs: true, .. } => Whose::Theirs,
        Keys { id: Some(id), .. } => Whose::Answer(id),
        Keys { id: None, .. } => Whose::Unknown,
    }
}

#[derive(Default)]
struct Keys {
    id: Option<Value>,
    theirs: bool,
}

impl<'de> Visitor<'de> for &mut Keys {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "id" => self.id = Some(map.next_value()?),
                "method" | "params" => {
                    self.theirs = true;
                    map.next_value::<IgnoredAny>()?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// The id where it is the last member of the line, or the last but `jsonrpc`. What stands directly before the line's last
/// brace is a member of the message itself.
fn last_id(tail: &[u8]) -> Option<Value> {
    let tail = String::from_utf8_lossy(tail);
    let members = tail.trim_end().strip_suffix('}')?;
    let members = members.strip_suffix(r#","jsonrpc":"2.0""#).unwrap_or(members);
    let (_, id) = members.rsplit_once(r#","id":"#)?;
    let id: Value = serde_json::from_str(id).ok()?;
    (id.is_number() || id.is_string()).then_some(id)
}

/// The server may have done what it was asked to, so the code is not one of those that say otherwise.
fn too_long(id: &Value) -> Vec<u8> {
    let message = format!(
        "the answer has more than {} MiB and was not read",
        MAX_LINE / 1024 / 1024
    );
    let answer = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": message}});
    format!("{answer}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::AsyncReadExt;

    use super::*;

    async fn read(text: &[u8]) -> io::Result<Vec<Value>> {
        let mut bytes = Vec::new();
        Lines::new(text, Arc::from("s")).read_to_end(&mut bytes).await?;
        // What rmcp makes of it: with its end a longer line is beyond its limit.
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| line.len() < MAX_LINE);
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }

    fn long(before: &str, after: &str) -> Vec<u8> {
        [before.as_bytes(), &vec![b'x'; MAX_LINE], after.as_bytes()].concat()
    }

    /// Promise 5: in bounded memory, and the calls behind it are answered.
    #[tokio::test]
    async fn an_error_takes_the_place_of_an_answer_that_is_too_long() {
        let next = "{\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{}}\n";
        for (before, after) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"text":""#, "\"}}\n"),
            (
                r#"{"result":{"id":1,"text":""#,
                "\",\"id\":2},\"jsonrpc\":\"2.0\",\"id\":7}\r\n",
            ),
            (r#"{"result":{"text":""#, "\"},\"id\":7,\"jsonrpc\":\"2.0\"}\n"),
        ] {
            let text = [next.as_bytes(), &long(before, after), next.as_bytes()].concat();
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
        let text = [&long(theirs, "\"}}\n"), next.as_bytes()].concat();
        assert_eq!(
            read(&text).await.unwrap(),
            [json!({"jsonrpc": "2.0", "id": 8, "result": {}})]
        );
    }

    #[tokio::test]
    async fn the_longest_line_is_handed_on_as_it_is() {
        let frame = r#"{"id":7,"result":""}"#.len() + 1;
        let line = |more: usize| {
            let text = "x".repeat(MAX_LINE - frame + more);
            format!("{{\"id\":7,\"result\":\"{text}\"}}\n")
        };
        assert_eq!(line(0).len(), MAX_LINE);
        assert!(read(line(0).as_bytes()).await.unwrap()[0]["result"].is_string());
        assert!(read(line(1).as_bytes()).await.unwrap()[0]["error"].is_object());
    }

    #[tokio::test]
    async fn a_line_that_tells_nothing_or_has_no_end_ends_the_connection() {
        let silent = read(&long("", "\n")).await.unwrap_err();
        assert!(silent.to_string().contains("which call"), "{silent}");
        let nested = read(&long("{\"result\":{\"text\":\"", "\",\"id\":7}}\n")).await;
        assert!(nested.is_err(), "an id inside of the result is not the call's");
        let endless = tokio::io::repeat(b'x');
        let mut bytes = Vec::new();
        let error = Lines::new(endless, Arc::from("s"))
            .read_to_end(&mut bytes)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("no end"), "{error}");
        assert!(bytes.len() <= MAX_LINE + 1);
    }
}

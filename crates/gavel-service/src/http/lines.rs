//! Writes events as lines: NDJSON or server-sent events.

use actix_web::http::header::{self, HeaderMap, HeaderValue};
use bytes::{BufMut, BytesMut};
use serde::Serialize;
use utoipa::ToSchema;

use super::headers::is_refused;
use crate::api::events::{Event, Numbered};

/// The format of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// One JSON object per line, `application/x-ndjson`.
    Ndjson,
    /// `text/event-stream` (WHATWG HTML, server-sent events).
    Sse,
}

/// The line that ends a failed stream; `P` is a problem as the route spells it.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[serde(tag = "type")]
#[expect(dead_code, reason = "describes what `Framing::error` and `Framing::problem` write")]
pub(super) enum Failed<P> {
    /// The last line, if the stream failed.
    Error {
        /// The problem.
        problem: P,
    },
}

/// No event happened for a while.
#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Silent {
    /// The only line of this kind.
    Heartbeat,
}

impl Framing {
    /// Server-sent events when `Accept` names them, else NDJSON.
    pub(super) fn asked_for(headers: &HeaderMap) -> Self {
        let names_sse = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.split(',').any(is_event_stream));
        if headers.get_all(header::ACCEPT).any(names_sse) {
            Self::Sse
        } else {
            Self::Ndjson
        }
    }

    pub(super) const fn content_type(self) -> HeaderValue {
        match self {
            Self::Ndjson => HeaderValue::from_static("application/x-ndjson"),
            Self::Sse => HeaderValue::from_static("text/event-stream"),
        }
    }

    /// Appends an event.
    pub(super) fn event(self, event: &Numbered<Event>, out: &mut BytesMut) {
        self.write(event.number, out, |out| json(&event.event, out));
    }

    /// Appends an object with an id of its own.
    pub(super) fn object(self, id: &str, object: &impl Serialize, out: &mut BytesMut) {
        self.line(id, out, |out| json(object, out));
    }

    /// Appends the last line of a successful stream: the recorded decision with its `type`.
    pub(super) fn decision(self, body: &str, number: u64, out: &mut BytesMut) {
        self.write(number, out, |out| {
            out.put_slice(br#"{"type":"decision","#);
            // The body is an object with fields.
            out.put_slice(body.trim_start().trim_start_matches('{').as_bytes());
        });
    }

    /// Appends the last line of a failed stream: its problem.
    pub(super) fn error(self, problem: &str, number: u64, out: &mut BytesMut) {
        self.write(number, out, |out| {
            out.put_slice(br#"{"type":"error","problem":"#);
            out.put_slice(problem.as_bytes());
            out.put_u8(b'}');
        });
    }

    /// Appends the problem that ends a resumable stream, without an id, so that the reader's position is unchanged.
    pub(super) fn problem(self, problem: &str, out: &mut BytesMut) {
        out.put_slice(match self {
            Self::Ndjson => br#"{"type":"error","problem":"#.as_slice(),
            Self::Sse => br#"data: {"type":"error","problem":"#,
        });
        out.put_slice(problem.as_bytes());
        out.put_slice(match self {
            Self::Ndjson => b"}\n".as_slice(),
            Self::Sse => b"}\n\n",
        });
    }

    /// Appends a heartbeat.
    pub(super) fn heartbeat(self, out: &mut BytesMut) {
        match self {
            Self::Ndjson => self.object("", &Silent::Heartbeat, out),
            Self::Sse => out.put_slice(b": heartbeat\n\n"),
        }
    }

    fn write(self, number: u64, out: &mut BytesMut, object: impl FnOnce(&mut BytesMut)) {
        self.line(&number.to_string(), out, object);
    }

    fn line(self, id: &str, out: &mut BytesMut, object: impl FnOnce(&mut BytesMut)) {
        if self == Self::Sse {
            out.put_slice(b"id: ");
            out.put_slice(id.as_bytes());
            out.put_slice(b"\ndata: ");
        }
        let begins = out.len();
        object(out);
        // JSON that a model or a tool wrote may have line breaks between its tokens, which would end the line.
        for byte in &mut out[begins..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        out.put_slice(match self {
            Self::Ndjson => b"\n".as_slice(),
            Self::Sse => b"\n\n",
        });
    }
}

fn is_event_stream(range: &str) -> bool {
    let media = range.split(';').next().unwrap_or_default();
    media.trim().eq_ignore_ascii_case("text/event-stream") && !is_refused(range)
}

fn json(value: &impl Serialize, out: &mut BytesMut) {
    serde_json::to_writer(out.writer(), value)
        .unwrap_or_else(|error| unreachable!("an event serializes to JSON: {error}"));
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn written(write: impl FnOnce(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        write(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn accept_chooses_the_form() {
        let form = |accept: &'static str| {
            Framing::asked_for(
                TestRequest::default()
                    .insert_header(("accept", accept))
                    .to_http_request()
                    .headers(),
            )
        };
        assert_eq!(form("text/event-stream"), Framing::Sse);
        assert_eq!(form("application/json, Text/Event-Stream;q=0.9"), Framing::Sse);
        assert_eq!(form("*/*"), Framing::Ndjson);
        assert_eq!(form("application/x-ndjson"), Framing::Ndjson);
        assert_eq!(form("text/event-stream; Q=0.0, */*"), Framing::Ndjson);
    }

    #[test]
    fn an_event_is_one_line_or_one_sse_message() {
        let event = Numbered {
            number: 3,
            event: Event::Delta { text: "a\nb".into() },
        };
        assert_eq!(
            written(|out| Framing::Ndjson.event(&event, out)),
            "{\"type\":\"delta\",\"text\":\"a\\nb\"}\n"
        );
        let sse = written(|out| Framing::Sse.event(&event, out));
        assert_eq!(sse, "id: 3\ndata: {\"type\":\"delta\",\"text\":\"a\\nb\"}\n\n");
    }

    #[test]
    fn the_decision_stays_on_its_line_whatever_a_tool_returned() {
        let body = "{\"response\":\"x\\ny\",\"data\":{\r\n  \"a\": 1\n}}";
        let line = written(|out| Framing::Ndjson.decision(body, 9, out));
        assert_eq!(line.matches('\n').count(), 1);
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["type"], "decision");
        assert_eq!(read["response"], "x\ny");
        assert_eq!(read["data"]["a"], 1);
    }
}

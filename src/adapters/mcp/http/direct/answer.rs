//! Reads the answer to one call from an HTTP response.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, HeaderValue};
use serde_json::value::RawValue;
use sse_stream::SseStream;

use super::super::body::{Body, BodyFault, MAX_ANSWER, bounded, whole};
use super::super::media::{self, Kind};
use super::Direct;
use super::refusal::{Answered, lost};
use crate::adapters::mcp::answers::{Held, Reading};
use crate::adapters::mcp::attempt::Attempt;
use crate::adapters::mcp::message::{self, Envelope, Says};
use crate::adapters::mcp::result::ERROR_BYTES;
use crate::adapters::mcp::unsolicited::{Flood, MAX_ID, Verdict};
use crate::adapters::upstream::{Response, why};
use crate::domain::budget::Share;
use crate::domain::surrogates;

/// Largest batch of messages that is read. Each message takes more memory than a short one has text.
const MAX_BATCH: usize = 1024 * 1024;
/// How often a stream that ends before the answer is resumed.
const RESUMES: u32 = 8;
/// Pause before resuming, if the server specifies none, and the longest pause it may specify.
const RESUME_AFTER: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What a message of the server means for a call.
enum Received {
    Answer(Answered),
    /// Another message on the same stream.
    Other,
}

/// The request being answered, and the position of its answer.
#[derive(Clone, Copy)]
struct Expected {
    id: u32,
    status: StatusCode,
    /// Is the answer the whole body? Then it cannot belong to another request.
    alone: bool,
}

impl Direct {
    /// Reads the answer to the request `id`.
    pub(super) async fn read(&self, response: Response, id: u32, mut held: Held<'_>) -> Answered {
        let (status, label) = (response.status(), media::labelled(response.headers()));
        let mut body = match Body::of(response, MAX_ANSWER) {
            Ok(body) => body,
            Err(fault) => return fault.attempt().into(),
        };
        if !status.is_success() {
            return self.refusal(body, status, id, &mut held).await;
        }
        match body.kind(label).await {
            Ok(Kind::Json) => match whole(body, MAX_ANSWER, &mut held).await {
                Ok(text) => {
                    let alone = true;
                    match self.read_message(&text, Expected { id, status, alone }, held.take()) {
                        Received::Answer(answered) => answered,
                        Received::Other if matches!(text.trim_ascii_start().first(), Some(b'{' | b'[')) => {
                            lost(format!("the answer is not to the request that has the `id` {id}")).into()
                        }
                        Received::Other => lost(format!(
                            "the server answered HTTP {status} with a body that is not JSON"
                        ))
                        .into(),
                    }
                }
                Err(fault) => fault.attempt().into(),
            },
            Ok(Kind::Events) => self.events(body, id, held).await,
            Ok(Kind::Empty) => lost(format!("the server answered HTTP {status} without a body")).into(),
            Ok(Kind::Other) => {
                let label = media::described(body.headers());
                lost(format!(
                    "the server answered HTTP {status} {label}, and with neither JSON nor an event stream"
                ))
                .into()
            }
            Err(fault) => fault.attempt().into(),
        }
    }

    fn read_message(&self, body: &Bytes, expected: Expected, share: Option<Share>) -> Received {
        let body = &trimmed(body);
        let error = match body.first() {
            Some(b'[') if body.len() <= MAX_BATCH => return self.batch(body, expected, share),
            Some(b'{') => match serde_json::from_slice(body) {
                Ok(message) => return self.read_envelope(message, body, expected, share),
                Err(error) => error,
            },
            _ => return self.noise(body.len()),
        };
        // Half characters within the result are left to the reader of the result. Those outside of it are repaired
        // here.
        let repaired = Bytes::from(surrogates::repaired(body).into_owned());
        match serde_json::from_slice(&repaired) {
            Ok(message) => self.read_envelope(message, &repaired, expected, share),
            Err(_) => {
                let fault = message::fault(&error);
                Received::Answer(lost(format!("the server's answer is not a JSON-RPC message: {fault}")).into())
            }
        }
    }

    /// Several messages as one list, as in the protocol of March 2025.
    fn batch(&self, body: &Bytes, expected: Expected, mut share: Option<Share>) -> Received {
        let Ok(messages) = serde_json::from_slice::<Vec<&RawValue>>(body) else {
            return self.noise(body.len());
        };
        for message in messages.iter().map(|raw| body.slice_ref(raw.get().as_bytes())) {
            if message.first() == Some(&b'{')
                && let answer @ Received::Answer(_) = self.read_message(
                    &message,
                    Expected {
                        alone: false,
                        ..expected
                    },
                    share.take(),
                )
            {
                return answer;
            }
        }
        Received::Other
    }

    fn read_envelope(&self, message: Envelope<'_>, body: &Bytes, expected: Expected, share: Option<Share>) -> Received {
        if let Some(method) = message.method.as_deref().filter(|_| !message.is_answer()) {
            return self.other(method, message.id, body.len());
        }
        let named = message.id.and_then(message::number);
        let ours = message.id.is_none_or(|raw| raw.get() == "null") || named == Some(i64::from(expected.id));
        match message.says() {
            Says::Result(result) if ours => {
                Received::Answer(Attempt::Result(body.slice_ref(result.get().as_bytes()), share).into())
            }
            // Some SDKs send text instead of an id that they could not read.
            Says::Error(error) if ours || named.is_none() || expected.alone => {
                Received::Answer(self.error(expected.status, &error))
            }
            Says::Nothing(why) if ours && (message.is_answer() || named.is_some()) => {
                Received::Answer(lost(self.unsolicited.words(&why, ERROR_BYTES)).into())
            }
            _ => self.noise(body.len()),
        }
    }

    /// A request or a notification of the server on the stream of this call.
    fn other(&self, method: &str, id: Option<&RawValue>, bytes: usize) -> Received {
        match self.unsolicited.receive(method, id, bytes) {
            Ok(Verdict::Dropped | Verdict::Passed) => {}
            Ok(Verdict::Answer(answer)) => {
                let sending = self.aside(answer.body.clone());
                self.unsolicited.answer(answer, sending);
            }
            Err(flood) => return Received::Answer(flooded(flood).into()),
        }
        Received::Other
    }

    /// A message on the stream of this call that is not expected.
    fn noise(&self, bytes: usize) -> Received {
        match self.unsolicited.noise(bytes) {
            Ok(()) => Received::Other,
            Err(flood) => Received::Answer(flooded(flood).into()),
        }
    }

    async fn events(&self, mut body: Body, id: u32, held: Held<'_>) -> Answered {
        let reading = Reading::new(held);
        let expected = Expected {
            id,
            status: StatusCode::OK,
            alone: false,
        };
        let mut last_event = None;
        let mut pause = RESUME_AFTER;
        for _ in 0..RESUMES {
            let mut events = SseStream::from_bytes_stream(bounded(body, reading.clone(), MAX_ANSWER));
            let end = loop {
                match events.next().await {
                    Some(Ok(event)) => {
                        let share = reading.lock().take();
                        last_event = event.id.filter(|id| id.len() <= MAX_ID).or(last_event);
                        pause = event.retry.map_or(pause, Duration::from_millis).min(LONGEST_PAUSE);
                        // Events that are not JSON (a heartbeat, the end of another protocol) are skipped, whatever
                        // their name.
                        let received = self.read_message(&Bytes::from(event.data.unwrap_or_default()), expected, share);
                        if let Received::Answer(answered) = received {
                            return answered;
                        }
                    }
                    Some(Err(sse_stream::Error::Body(fault))) => {
                        if let Some(no_room) = fault.downcast_ref().and_then(BodyFault::no_room) {
                            return no_room.into();
                        }
                        break format!("body error: {fault}");
                    }
                    Some(Err(error)) => break error.to_string(),
                    None => break "the stream ended before the answer".to_owned(),
                }
            };
            drop(reading.lock().take());
            // The server continues its work. The answer is fetched from where the stream broke.
            let Some(last_event) = &last_event else {
                return lost(end).into();
            };
            tokio::time::sleep(pause).await;
            body = match self.resume(last_event).await {
                Ok(body) => body,
                Err(why) => return lost(format!("{end}; {why}")).into(),
            };
        }
        lost("the stream ended too often before the answer").into()
    }

    async fn resume(&self, last_event: &str) -> Result<Body, String> {
        let last_event =
            HeaderValue::from_str(last_event).map_err(|_| "its event id is not a valid header value".to_owned())?;
        let request = self
            .request(reqwest::Method::GET)
            .header(ACCEPT, HeaderValue::from_static("text/event-stream"))
            .header("last-event-id", last_event);
        let response = Response::from(request.send().await.map_err(|error| why(&error))?);
        match (response.status(), media::labelled(response.headers())) {
            (StatusCode::OK, Kind::Events) => Body::of(response, MAX_ANSWER).map_err(|fault| fault.to_string()),
            (status, _) => Err(format!("resuming the stream was answered with HTTP {status}")),
        }
    }
}

fn flooded(flood: Flood) -> Attempt {
    lost(flood.to_string())
}

/// A message without surrounding white space and byte order mark (RFC 8259 section 8.1).
fn trimmed(body: &Bytes) -> Bytes {
    let text = body.trim_ascii();
    body.slice_ref(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii_start())
}

//! From an HTTP response to the answer of one call.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use serde_json::value::RawValue;
use sse_stream::SseStream;

use super::body::{BodyFault, bounded, whole};
use super::direct::Direct;
use crate::adapters::mcp::answers::{Held, Reading};
use crate::adapters::mcp::attempt::{Attempt, Lost};
use crate::adapters::mcp::message::Envelope;
use crate::adapters::mcp::result::ERROR_BYTES;
use crate::adapters::mcp::unsolicited::{Flood, MAX_ID, Verdict};
use crate::adapters::upstream::{Response, why};
use crate::domain::budget::Share;
use crate::domain::surrogates;

/// Largest answer that is read, as JSON or as one event.
pub(super) const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// Largest body of an error that is read.
pub(super) const MAX_ERROR: usize = 64 * 1024;
/// How often a stream that ends before the answer is taken up again.
const RESUMES: u32 = 8;
/// Pause before that, where the server names none, and the longest it may name.
const RESUME_AFTER: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// JSON-RPC's code for arguments that do not fit: it is about the call, never about the session.
const INVALID_PARAMS: i64 = -32602;

/// What a message of the server means for a call.
enum Heard {
    Answer(Attempt),
    /// Something else on the same stream.
    Other,
}

impl Direct {
    /// Reads the answer to the request `id`.
    pub(super) async fn read(&self, response: Response, id: u32, mut held: Held<'_>) -> Attempt {
        let status = response.status();
        if !status.is_success() {
            return self.refusal(response, status, id, held).await;
        }
        match kind(&response) {
            Kind::Json => match whole(response, MAX_ANSWER, &mut held).await {
                Ok(body) => match self.hear(&body, id, held.take()) {
                    Heard::Answer(attempt) => attempt,
                    Heard::Other => lost("the server answered with something else"),
                },
                Err(fault) => fault.attempt(),
            },
            Kind::Events => self.events(response, id, held).await,
            Kind::Other => lost(format!("the server answered HTTP {status} without a result")),
        }
    }

    fn hear(&self, body: &Bytes, id: u32, share: Option<Share>) -> Heard {
        let error = match serde_json::from_slice(body) {
            Ok(message) => return self.heard(message, body, id, share),
            Err(error) => error,
        };
        // Halves of characters in the result are left to whoever reads it; those in the words of an error are read here.
        let mended = Bytes::from(surrogates::mended(body).into_owned());
        match serde_json::from_slice(&mended) {
            Ok(message) => self.heard(message, &mended, id, share),
            Err(_) => {
                // serde's words may quote the answer.
                let error = self.unsolicited.words(&error.to_string(), ERROR_BYTES).into_owned();
                Heard::Answer(lost(format!("the server's answer is no JSON-RPC message: {error}")))
            }
        }
    }

    fn heard(&self, message: Envelope<'_>, body: &Bytes, id: u32, share: Option<Share>) -> Heard {
        if let Some(method) = message.method {
            return self.other(&method, message.id, body.len());
        }
        // Some servers send an id back as text; an error may have none.
        let ours = message.id.is_none_or(|raw| names(raw, id) || raw.get() == "null");
        match (message.result, message.error) {
            (Some(result), _) if ours => Heard::Answer(Attempt::Result(body.slice_ref(result.get().as_bytes()), share)),
            (None, Some(error)) if ours => Heard::Answer(Attempt::error(error, &self.unsolicited.source)),
            _ => self.noise(body.len()),
        }
    }

    /// A request or a notification of the server on the stream of our call.
    fn other(&self, method: &str, id: Option<&RawValue>, bytes: usize) -> Heard {
        match self.unsolicited.heard(method, id, bytes) {
            Ok(Verdict::Dropped | Verdict::Passed) => {}
            Ok(Verdict::Answer(answer)) => {
                let sending = self.aside(answer.body.clone());
                self.unsolicited.answer(answer, sending);
            }
            Err(flood) => return Heard::Answer(flooded(flood)),
        }
        Heard::Other
    }

    /// Something on the stream of our call that nobody waits for.
    fn noise(&self, bytes: usize) -> Heard {
        match self.unsolicited.noise(bytes) {
            Ok(()) => Heard::Other,
            Err(flood) => Heard::Answer(flooded(flood)),
        }
    }

    async fn events(&self, mut response: Response, id: u32, held: Held<'_>) -> Attempt {
        let reading = Reading::new(held);
        let mut last_event = None;
        let mut pause = RESUME_AFTER;
        for _ in 0..RESUMES {
            let mut events = SseStream::from_bytes_stream(bounded(response, reading.clone(), MAX_ANSWER));
            let end = loop {
                match events.next().await {
                    Some(Ok(event)) => {
                        let share = reading.lock().take();
                        last_event = event.id.filter(|id| id.len() <= MAX_ID).or(last_event);
                        pause = event.retry.map_or(pause, Duration::from_millis).min(LONGEST_PAUSE);
                        let data = event.data.filter(|data| !data.trim().is_empty());
                        let heard = match data {
                            Some(data) => self.hear(&Bytes::from(data), id, share),
                            None => self.noise(0),
                        };
                        if let Heard::Answer(attempt) = heard {
                            return attempt;
                        }
                    }
                    Some(Err(sse_stream::Error::Body(fault))) => {
                        if let Some(no_room) = fault.downcast_ref().and_then(BodyFault::no_room) {
                            return no_room;
                        }
                        break format!("body error: {fault}");
                    }
                    Some(Err(error)) => break error.to_string(),
                    None => break "the stream ended before the answer".to_owned(),
                }
            };
            drop(reading.lock().take());
            // The work goes on at the server; its answer is fetched where the stream broke off.
            let Some(last_event) = &last_event else {
                return lost(end);
            };
            tokio::time::sleep(pause).await;
            response = match self.resume(last_event).await {
                Ok(response) => response,
                Err(why) => return lost(format!("{end}; {why}")),
            };
        }
        lost("the stream ended too often before the answer")
    }

    async fn resume(&self, last_event: &str) -> Result<Response, String> {
        let last_event = HeaderValue::from_str(last_event).map_err(|_| "its event id is no header".to_owned())?;
        let request = self
            .request(reqwest::Method::GET)
            .header(ACCEPT, HeaderValue::from_static("text/event-stream"))
            .header("last-event-id", last_event);
        let response = Response::from(request.send().await.map_err(|error| why(&error))?);
        match (response.status(), kind(&response)) {
            (StatusCode::OK, Kind::Events) => Ok(response),
            (status, _) => Err(format!("taking it up again was answered with HTTP {status}")),
        }
    }

    /// An answer that is not 2xx.
    ///
    /// 404 says that the session is not known, and nothing was begun (MCP, transports, session management); some SDKs answer 400.
    /// That is believed, and the call sent again, only of words that begin as theirs do, or of a 404 without words: a gateway or a
    /// tool may have others. It is never believed of an answer to this very call: in a complaint about its arguments the words may
    /// be the model's. After any other 400 or 404 the session is looked after: when it is gone, listing the tools fails.
    async fn refusal(&self, response: Response, status: StatusCode, id: u32, mut held: Held<'_>) -> Attempt {
        if status.is_redirection() {
            return Attempt::Refused(format!(
                "HTTP {status}: redirects are not followed; configure the final address"
            ));
        }
        let json = matches!(kind(&response), Kind::Json);
        // Words that could not be read are not none.
        let (body, is_whole) = match whole(response, MAX_ERROR, &mut held).await {
            Ok(body) => (body, true),
            Err(BodyFault::TooLarge(_) | BodyFault::Broken(_) | BodyFault::NoRoom(_)) => (Bytes::new(), false),
        };
        let body = surrogates::mended(&body);
        let message = serde_json::from_slice::<Envelope<'_>>(&body).ok();
        let to_this_call = message
            .as_ref()
            .is_some_and(|message| message.id.is_some_and(|raw| names(raw, id)));
        let error = message.and_then(|message| message.error);
        let may_be_gone = matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND) && self.has_session();
        if may_be_gone && !to_this_call {
            let says_gone = |words: &str| {
                let is_silent = status == StatusCode::NOT_FOUND && is_whole && words.trim().is_empty();
                is_silent || says_the_session_is_gone(words)
            };
            let gone = match &error {
                Some(error) => error.code != INVALID_PARAMS && says_gone(&error.message),
                None => says_gone(&String::from_utf8_lossy(&body)),
            };
            if gone {
                return Attempt::SessionGone;
            }
            self.unsolicited.beside.suspect.notify_one();
        }
        match error {
            // An error of the protocol is the server's own word, whatever the status.
            Some(error) if json && !is_auth(status) => Attempt::error(error, &self.unsolicited.source),
            // A gateway's word for "I do not know" (5xx), and the client errors that are one too: a timeout, a caller that was not
            // waited for (nginx), and a 404 where there was a session.
            _ if status.is_server_error()
                || matches!(status.as_u16(), 408 | 499)
                || (status == StatusCode::NOT_FOUND && may_be_gone) =>
            {
                lost(format!("the server answered HTTP {status}"))
            }
            _ => Attempt::Refused(format!("the server answered HTTP {status}")),
        }
    }
}

/// Is this the id of a request, as a number or as text?
fn names(raw: &RawValue, id: u32) -> bool {
    raw.get().trim_matches('"').parse() == Ok(id)
}

/// How SDKs begin to say that they know no such session.
const GONE: [&str; 12] = [
    "no valid session",
    "session not found",
    "session id not found",
    "session expired",
    "session has expired",
    "session has been terminated",
    "session terminated",
    "invalid session",
    "invalid or expired session",
    "unknown session",
    "missing session",
    "server not initialized",
];

fn says_the_session_is_gone(words: &str) -> bool {
    let words = words.trim_start().to_ascii_lowercase();
    let status = ["bad request", "not found"]
        .iter()
        .find_map(|status| words.strip_prefix(status));
    let words = status.unwrap_or(&words);
    let words = words.trim_start_matches([':', ' ']);
    GONE.iter().any(|beginning| words.starts_with(beginning))
}

pub(super) fn is_auth(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

pub(super) fn lost(message: impl Into<String>) -> Attempt {
    Attempt::Lost(Lost::Connection, message.into())
}

fn flooded(flood: Flood) -> Attempt {
    lost(flood.to_string())
}

impl BodyFault {
    /// The end of a call whose answer could not be read for this.
    fn attempt(&self) -> Attempt {
        self.no_room().unwrap_or_else(|| lost(self.to_string()))
    }

    /// The same where it says nothing about the server.
    fn no_room(&self) -> Option<Attempt> {
        matches!(self, Self::NoRoom(_)).then(|| Attempt::Lost(Lost::NoRoom, self.to_string()))
    }
}

pub(super) enum Kind {
    Json,
    Events,
    Other,
}

pub(super) fn kind(response: &Response) -> Kind {
    let media = response
        .headers()
        .get(CONTENT_TYPE)
        .map(HeaderValue::as_bytes)
        .unwrap_or_default();
    if media.starts_with(b"application/json") {
        Kind::Json
    } else if media.starts_with(b"text/event-stream") {
        Kind::Events
    } else {
        Kind::Other
    }
}

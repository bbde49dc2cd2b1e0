//! Reads the answer to a request from an HTTP response, and the server's own stream.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use gavel_upstream::upstream::{Response, why};
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, StatusCode};
use sse_stream::SseStream;

use super::body::{Body, BodyFault, MAX_ANSWER, MAX_ERROR, bounded, whole};
use super::{Http, Kind, described};
use crate::attempt::{Answered, Attempt, Lost};
use crate::domain::budget::{Held, Share};
use crate::inbox::{Flood, MAX_ID};
use crate::log;
use crate::message::{self, Id, Incoming, RpcError, Says, Unreadable};
use crate::result::ERROR_BYTES;
use crate::source::{Reading, Refusal, is_auth, says_not_begun};

/// How often a stream that ends before the answer is resumed.
const RESUMES: u32 = 8;
/// Pause before resuming, if the server specifies none, and the longest pause it may specify.
const RESUME_AFTER: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// The request being answered, and the position of its answer.
#[derive(Clone, Copy)]
struct Expected {
    id: u32,
    status: StatusCode,
    /// Is the answer the whole body? Then it cannot belong to another request.
    alone: bool,
}

/// Where a stream was left.
struct Position {
    last_event: Option<String>,
    pause: Duration,
}

impl Position {
    fn start() -> Self {
        Self {
            last_event: None,
            pause: RESUME_AFTER,
        }
    }
}

/// How the reading of a stream ended.
enum End {
    Answered(Answered),
    /// Without an answer, for this reason.
    Over(String),
}

impl Http {
    /// Reads the answer to the request `id`.
    pub(super) async fn read(&self, response: Response, id: u32, mut held: Held<'_>) -> Answered {
        let (status, label) = (response.status(), Kind::labelled(response.headers()));
        let mut body = match Body::new(response, MAX_ANSWER) {
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
                    self.message(&text, Some(Expected { id, status, alone }), held.take())
                        .unwrap_or_else(|| {
                            Attempt::unreadable(match text.trim_ascii_start().first() {
                                Some(b'{' | b'[') => {
                                    format!("the answer is not to the request that has the `id` {id}")
                                }
                                _ => format!("the server answered HTTP {status} with a body that is not JSON"),
                            })
                            .into()
                        })
                }
                Err(fault) => fault.attempt().into(),
            },
            Ok(Kind::Events) => self.resumed(body, id, held).await,
            Ok(Kind::Empty) => Attempt::unreadable(format!("the server answered HTTP {status} without a body")).into(),
            Ok(Kind::Other) => {
                let label = described(body.headers());
                Attempt::unreadable(format!(
                    "the server answered HTTP {status} {label}, and with neither JSON nor an event stream"
                ))
                .into()
            }
            Err(fault) => fault.attempt().into(),
        }
    }

    /// Reads text of the server. `None`: it has no answer to the expected request.
    fn message(&self, text: &Bytes, expected: Option<Expected>, mut share: Option<Share>) -> Option<Answered> {
        let bytes = text.len();
        let mut answered = None;
        let read = message::read(text, &mut |incoming| {
            if answered.is_none() {
                answered = match self.sort(incoming, bytes, expected, &mut share) {
                    Ok(answered) => answered,
                    Err(flood) => Some(Attempt::Lost(Lost::Connection, flood.to_string()).into()),
                };
            }
        });
        match (read, expected) {
            (Ok(()), _) => answered,
            // An event that begins as a message may be the answer.
            (Err(why @ Unreadable::Broken(_)), Some(_)) => Some(Attempt::unreadable(why.to_string()).into()),
            // Other events are skipped (a heartbeat, the end of another protocol), whatever their name.
            (Err(_), _) => {
                let flood = self.inbox.noise(bytes).err()?;
                Some(Attempt::Lost(Lost::Connection, flood.to_string()).into())
            }
        }
    }

    fn sort(
        &self,
        incoming: Incoming<'_>,
        bytes: usize,
        expected: Option<Expected>,
        share: &mut Option<Share>,
    ) -> Result<Option<Answered>, Flood> {
        match (incoming, expected) {
            (Incoming::Notification { method, .. }, _) => self.inbox.notification(method, bytes)?,
            (Incoming::Request { id, method, .. }, _) => {
                if let Some(reply) = self.inbox.request(method, id, bytes)? {
                    let sending = self.notify_aside(reply.body);
                    self.inbox.background.spawn(async move {
                        sending.await;
                        drop(reply.slot);
                    });
                }
            }
            (Incoming::Answer(id, Says::Result(result)), Some(expected)) if id.may_be(expected.id) => {
                return Ok(Some(Attempt::Result(result, share.take()).into()));
            }
            (Incoming::Answer(id, Says::Error(error)), Some(expected))
                // Some SDKs send text instead of an id that they could not read.
                if id.may_be(expected.id) || id == Id::Other || expected.alone =>
            {
                return Ok(Some(self.error(expected.status, &error)));
            }
            (Incoming::Answer(id, Says::Nothing(why)), Some(expected)) if id.may_be(expected.id) => {
                let why = self.inbox.source.said(&why, ERROR_BYTES);
                return Ok(Some(Attempt::unreadable(why).into()));
            }
            (Incoming::Answer(..) | Incoming::Other, _) => self.inbox.noise(bytes)?,
        }
        Ok(None)
    }

    /// Reads a stream to the answer. If it ends before, the server continues its work: the answer is fetched from where
    /// the stream broke.
    async fn resumed(&self, mut body: Body, id: u32, held: Held<'_>) -> Answered {
        let expected = Expected {
            id,
            status: StatusCode::OK,
            alone: false,
        };
        let reading = Reading::new(held);
        let mut position = Position::start();
        for _ in 0..RESUMES {
            let end = match self.events(body, Some(expected), &reading, &mut position).await {
                End::Answered(answered) => return answered,
                End::Over(why) => why,
            };
            if position.last_event.is_none() {
                return Attempt::Lost(Lost::Connection, end).into();
            }
            tokio::time::sleep(position.pause).await;
            body = match self.stream(&position).await {
                Ok(body) => body,
                Err((_, why)) => return Attempt::Lost(Lost::Connection, format!("{end}; {why}")).into(),
            };
        }
        Attempt::Lost(
            Lost::Connection,
            "the stream ended too often before the answer".to_owned(),
        )
        .into()
    }

    /// Reads one stream to the expected answer, or to its end.
    async fn events(
        &self,
        body: Body,
        expected: Option<Expected>,
        reading: &Reading<'_>,
        position: &mut Position,
    ) -> End {
        let mut events = SseStream::from_bytes_stream(bounded(body, reading.clone(), MAX_ANSWER));
        let end = loop {
            match events.next().await {
                Some(Ok(event)) => {
                    let share = reading.lock().take();
                    if let Some(id) = event.id.filter(|id| id.len() <= MAX_ID) {
                        position.last_event = Some(id);
                    }
                    let pause = event.retry.map_or(position.pause, Duration::from_millis);
                    position.pause = pause.min(LONGEST_PAUSE);
                    let text = Bytes::from(event.data.unwrap_or_default());
                    if let Some(answered) = self.message(&text, expected, share) {
                        return End::Answered(answered);
                    }
                }
                Some(Err(sse_stream::Error::Body(fault))) => match fault.downcast_ref::<BodyFault>() {
                    Some(fault @ (BodyFault::NoRoom(_) | BodyFault::TooLarge(_))) => {
                        return End::Answered(fault.attempt().into());
                    }
                    _ => break format!("body error: {fault}"),
                },
                Some(Err(error)) => break error.to_string(),
                None => break "the event stream ended before the answer".to_owned(),
            }
        };
        drop(reading.lock().take());
        End::Over(end)
    }

    /// The server's stream from this position on.
    async fn stream(&self, position: &Position) -> Result<Body, (Option<StatusCode>, String)> {
        let mut request = self
            .request(Method::GET)
            .header(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last_event) = &position.last_event {
            let last_event = HeaderValue::from_str(last_event);
            let last_event = last_event.map_err(|_| (None, "its event id is not a valid header value".to_owned()))?;
            request = request.header(LAST_EVENT, last_event);
        }
        let response = request.send().await.map_err(|error| (None, why(&error)))?;
        let response = Response::from(response);
        match (response.status(), Kind::labelled(response.headers())) {
            (StatusCode::OK, Kind::Events) => {
                Body::new(response, MAX_ANSWER).map_err(|fault| (Some(StatusCode::OK), fault.to_string()))
            }
            (status, _) => Err((
                Some(status),
                format!("resuming the stream was answered with HTTP {status}"),
            )),
        }
    }

    /// Reads the messages that a server with a session sends on a stream of its own. Ends if it offers no such stream.
    pub(crate) async fn listen(&self) {
        if !self.has_session() {
            return;
        }
        let reading = Reading::new(self.inbox.source.held());
        let mut position = Position::start();
        let mut was_open = false;
        let mut pause = RESUME_AFTER;
        loop {
            match self.stream(&position).await {
                Ok(body) => {
                    was_open = true;
                    self.events(body, None, &reading, &mut position).await;
                    pause = position.pause.max(RESUME_AFTER);
                }
                Err((Some(StatusCode::METHOD_NOT_ALLOWED), _)) => return,
                Err((Some(status), _)) if !was_open => {
                    log::line!(
                        self.inbox.source.log,
                        warn,
                        "the stream for the server's messages was answered with HTTP {status}; changes to its tools may be \
                         noticed late"
                    );
                    return;
                }
                // It is requested again.
                Err(_) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
            tokio::time::sleep(pause).await;
        }
    }
}

impl BodyFault {
    /// The outcome of a request whose answer could not be read for this reason.
    pub(super) fn attempt(&self) -> Attempt {
        let lost = match self {
            Self::NoRoom(_) => Lost::NoRoom,
            Self::Broken(_) => Lost::Connection,
            Self::TooLarge(_) | Self::Encoding(_) | Self::Compression(_) => Lost::Unreadable,
        };
        Attempt::Lost(lost, self.to_string())
    }
}

/// Maximum bytes of a refusal shown to an operator.
const SHOWN: usize = 256;
/// The longest pause that a server may request.
const LONGEST_REST: Duration = Duration::from_secs(60 * 60);

impl Http {
    /// The server's own error in an answer with this status.
    pub(super) fn error(&self, status: StatusCode, error: &RpcError) -> Answered {
        let code = error.code.map(|code| format!(" (code {code})")).unwrap_or_default();
        Answered {
            refusal: Some(Refusal {
                status,
                code: error.code,
                of_access: speaks_of_access(&error.message),
                asks_to_wait: false,
                words: self.shown(&format!("{}{code}", error.message)),
            }),
            attempt: Attempt::error(error, &self.inbox.source),
        }
    }

    fn shown(&self, words: &str) -> String {
        self.inbox.source.words(words, SHOWN).replace(['\n', '\t'], " ")
    }

    /// Reads an answer to the request `id` that is not 2xx.
    pub(super) async fn refusal(&self, body: Body, status: StatusCode, id: u32, held: &mut Held<'_>) -> Answered {
        if status.is_redirection() {
            return self.redirected(status, body.headers()).into();
        }
        let pause = retry_after(body.headers());
        if let Some(pause) = pause {
            self.inbox.background.rest(pause);
        }
        let body = whole(body, MAX_ERROR, held).await.unwrap_or_default();
        let mut error = None;
        let mut has_result = false;
        // Any other body is a text.
        let _ = message::read(&body, &mut |incoming| match incoming {
            Incoming::Answer(_, Says::Error(read)) => error = Some(read),
            Incoming::Answer(named, Says::Result(_)) => has_result |= named.may_be(id),
            _ => {}
        });
        if has_result {
            return Attempt::unreadable(format!("the server answered HTTP {status} with a `result`")).into();
        }
        let text = match &error {
            Some(error) => error.message.clone(),
            None => String::from_utf8_lossy(&body).into_owned(),
        };
        let said = format!("the server answered HTTP {status}");
        let code = error.as_ref().and_then(|error| error.code);
        let mut words = match text.trim() {
            "" => format!("HTTP {status}"),
            text => self.shown(&format!("HTTP {status}: {text}")),
        };
        if let Some(pause) = pause {
            words = format!("{words}; it asks clients to wait {} s", pause.as_secs());
        }
        let attempt = match &error {
            // The protocol says that the session is gone. From within a tool or a gateway, 404 does not say how far the
            // call came.
            _ if status == StatusCode::NOT_FOUND && self.has_session() => match code.is_some_and(says_not_begun) {
                true => Attempt::Stale(words.clone()),
                false => Attempt::Lost(Lost::Session, said),
            },
            // A protocol error is the server's own answer, whatever the status.
            Some(error) if error.code.is_some() && !is_auth(status) => Attempt::error(error, &self.inbox.source),
            // A 5xx from a gateway means that the outcome is unknown. So do two client errors: a timeout, and a client
            // that disconnected (nginx).
            _ if status.is_server_error() || matches!(status.as_u16(), 408 | 499) => {
                Attempt::Lost(Lost::Connection, said)
            }
            _ => Attempt::Refused(match pause {
                Some(pause) => format!("{said} and asks clients to wait {} s", pause.as_secs()),
                None => said,
            }),
        };
        Answered {
            attempt,
            refusal: Some(Refusal {
                status,
                code,
                of_access: is_auth(status) || speaks_of_access(&text),
                asks_to_wait: pause.is_some(),
                words,
            }),
        }
    }

    /// A redirect of a call.
    fn redirected(&self, status: StatusCode, headers: &HeaderMap) -> Attempt {
        match self.redirect(status, headers) {
            // Only these two request the same request at another address. Servers also use the others to show the
            // result of a POST.
            Ok(_) if !matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) => {
                Attempt::unreadable(format!("the server answered HTTP {status} without a result"))
            }
            // The next handshake finds the new address.
            Ok(_) => Attempt::Stale(format!("the server answered HTTP {status}: its address has changed")),
            Err(words) => Attempt::Refused(words),
        }
    }
}

/// The pause that a response requests, in seconds or as a date (RFC 9110 section 10.2.3), capped at one hour.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            at.duration_since(std::time::SystemTime::now()).ok()?
        }
    };
    Some(pause.min(LONGEST_REST)).filter(|pause| !pause.is_zero())
}

/// Does a text speak of a session or of credentials? It counts only where status and code do not say it (2xx, 5xx), and
/// only if a second answer speaks of them too.
fn speaks_of_access(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    [
        "session",
        "initiali",
        "auth",
        "token",
        "credential",
        "key",
        "expired",
        "denied",
        "forbidden",
    ]
    .iter()
    .any(|word| words.contains(word))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_pause_is_read_in_seconds_and_as_a_date() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(of("30"), Some(Duration::from_secs(30)));
        assert_eq!(of("999999999"), Some(LONGEST_REST));
        for none in ["0", "-1", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(of(none), None, "{none}");
        }
        let date = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(100));
        assert!((95..=100).contains(&of(&date).unwrap().as_secs()));
    }
}

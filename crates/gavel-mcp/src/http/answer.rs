//! Reads the answer to a request from an HTTP response, and the server's own stream.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use reqwest::header::{ACCEPT, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use sse_stream::SseStream;

use super::Http;
use super::body::{Body, BodyFault, MAX_ANSWER, bounded, whole};
use super::media::{self, Kind};
use crate::answers::{Held, Reading};
use crate::attempt::{Answered, Attempt, Lost};
use crate::domain::budget::Share;
use crate::inbox::{Flood, MAX_ID};
use crate::log;
use crate::message::{self, Id, Incoming, Says, Unreadable};
use crate::result::ERROR_BYTES;
use gavel_upstream::upstream::{Response, why};

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
        let (status, label) = (response.status(), media::labelled(response.headers()));
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
                let label = media::described(body.headers());
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
        match (response.status(), media::labelled(response.headers())) {
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
                        "no stream",
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

//! reqwest as rmcp's HTTP client: for everything that rmcp sends apart from calls, mainly the handshake and lists.
//!
//! rmcp's own client drops messages that serde rejects. This one reads them like all other messages (`message`), and
//! also records the session id. The server's unsolicited messages end here (`unsolicited`). Redirects on the same
//! origin are followed, because nothing that rmcp sends has an effect.

mod client;
mod events;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::BoxStream;
use reqwest::StatusCode;
use reqwest::header::HeaderValue;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId};
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpError, StreamableHttpPostResponse};
use sse_stream::Sse;
use url::Url;

use super::body::{Body, BodyFault, MAX_ANSWER, MAX_ERROR, whole};
use super::refused::{is_auth, retry_after};
use crate::adapters::mcp::fault::Fault;
use crate::adapters::mcp::message::{self, Message};
use crate::adapters::mcp::repaired::{self, Read};
use crate::adapters::mcp::unsolicited::Unsolicited;

/// Maximum bytes of an invalid answer shown to an operator.
const SHOWN: usize = 256;
const SESSION: &str = "mcp-session-id";
const EVENTS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// A client that remembers the session under which rmcp posts.
#[derive(Clone)]
pub(crate) struct Tap {
    client: reqwest::Client,
    session: Arc<Mutex<Option<Arc<str>>>>,
    /// The configured address, or the target of its redirects.
    url: Arc<Mutex<Url>>,
    /// Why the last answer was not usable.
    fault: Arc<Mutex<Option<Fault>>>,
    /// Was `initialize` sent?
    initializes: Arc<AtomicBool>,
    unsolicited: Arc<Unsolicited>,
}

type Failure = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

impl Tap {
    pub(crate) fn new(client: reqwest::Client, url: Url, unsolicited: Arc<Unsolicited>) -> Self {
        Self {
            client,
            session: Arc::default(),
            url: Arc::new(Mutex::new(url)),
            fault: Arc::default(),
            initializes: Arc::default(),
            unsolicited,
        }
    }

    /// The server's address.
    pub(crate) fn url(&self) -> Url {
        lock(&self.url).clone()
    }

    /// Why the last answer was not usable, if this side found that out.
    pub(crate) fn fault(&self) -> Option<Fault> {
        lock(&self.fault).clone()
    }

    /// Was `initialize` sent?
    pub(crate) fn has_initialized(&self) -> bool {
        self.initializes.load(Ordering::Relaxed)
    }

    /// The answer is not usable. `lasting` means that another request would not change that.
    fn failed(&self, words: impl Into<String>, lasting: bool) -> Failure {
        let fault = Fault {
            words: words.into(),
            is_lasting: lasting,
        };
        *lock(&self.fault) = Some(fault.clone());
        StreamableHttpError::UnexpectedServerResponse(fault.words.into())
    }

    fn unreadable(&self, fault: &BodyFault) -> Failure {
        let lasting = matches!(
            fault,
            BodyFault::Encoding(_) | BodyFault::Compression(_) | BodyFault::TooLarge(_)
        );
        self.failed(fault.to_string(), lasting)
    }

    /// The session id, if the server gave one.
    pub(crate) fn session(&self) -> Option<Arc<str>> {
        lock(&self.session).clone()
    }

    fn note(&self, session: Option<&Arc<str>>) {
        if let Some(session) = session {
            *lock(&self.session) = Some(session.clone());
        }
    }

    /// Reads this JSON as the answer to the request `id`, for rmcp.
    async fn json(&self, body: Body, id: &RequestId) -> Result<Message, Failure> {
        let mut held = self.unsolicited.source.held();
        let body = whole(body, MAX_ANSWER, &mut held)
            .await
            .map_err(|fault| self.unreadable(&fault))?;
        let charged = self.unsolicited.noise(body.len());
        charged.map_err(|flood| self.failed(flood.to_string(), false))?;
        let tree = message::tree_bytes(&body);
        let tree = tree.map_err(|error| self.failed(format!("the answer cannot be read: {error}"), true))?;
        held.add(tree)
            .map_err(|no_room| self.failed(no_room.to_string(), false))?;
        match repaired::answer(&body, id).map_err(|words| self.failed(words, true))? {
            Read::Answer(message) => {
                self.unsolicited.keep(&mut held);
                Ok(*message)
            }
            Read::Foreign(words) => Err(self.failed(words, true)),
            Read::Other if matches!(body.trim_ascii_start().first(), Some(b'{' | b'[')) => {
                Err(self.failed("the server answered with a message of its own", true))
            }
            Read::Other => Err(self.failed("the server answered with a body that is not JSON", true)),
        }
    }

    /// Reads an answer that is not 2xx. A protocol error is the server's own answer, whatever the status, unless the
    /// server rejects the credentials. A server of the session era may reject an unknown method with any text. rmcp
    /// receives a protocol error then too, and continues with the handshake.
    async fn refusal(
        &self,
        body: Body,
        status: StatusCode,
        message: &ClientJsonRpcMessage,
        in_session: bool,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let pause = retry_after(body.headers());
        if let Some(pause) = pause {
            self.unsolicited.background.rest(pause);
        }
        let mut held = self.unsolicited.source.held();
        let body = whole(body, MAX_ERROR, &mut held).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&body);
        let mut words = format!("HTTP {status}");
        if !text.trim().is_empty() {
            words = format!("{words}: {}", self.unsolicited.source.words(text.trim(), SHOWN));
        }
        if let Some(pause) = pause {
            words = format!("{words}; it asks clients to wait {} s", pause.as_secs());
        }
        if let ClientJsonRpcMessage::Request(request) = message
            && !is_auth(status)
            && pause.is_none()
        {
            let error = match repaired::answer(&body, &request.id) {
                Ok(Read::Answer(error)) if matches!(*error, Message::Error(_)) => Some(error),
                _ => None,
            };
            let may_be_unknown =
                matches!(request.request, ClientRequest::DiscoverRequest(_)) && status.is_client_error() && !in_session;
            let error = error.or_else(|| {
                let error = ErrorData::invalid_request(words.clone(), None);
                may_be_unknown.then(|| Box::new(Message::error(error, Some(request.id.clone()))))
            });
            if let Some(error) = error {
                return Ok(StreamableHttpPostResponse::Json(*error, None));
            }
        }
        Err(self.failed(words, false))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is complete before anything could panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream that is not read any further.
fn broken(why: impl std::error::Error + Send + Sync + 'static) -> SseError {
    SseError::Body(Box::new(why))
}

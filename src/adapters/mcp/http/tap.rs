//! reqwest as rmcp's HTTP client: for everything that rmcp sends apart from calls, mainly the handshake and lists.
//!
//! rmcp's own client drops messages that serde rejects. This one reads them like all other messages (`message`), and
//! also records the session id. The server's unsolicited messages end here (`unsolicited`). Redirects on the same
//! origin are followed, because nothing that rmcp sends has an effect.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use sse_stream::{Sse, SseStream};
use url::Url;

use super::answer::MAX_ANSWER;
use super::body::{Body, BodyFault, bounded, whole};
use super::media::{self, Kind};
use super::refusal::{MAX_ERROR, is_auth, retry_after};
use super::{IDENTITY, redirect};
use crate::adapters::mcp::answers::Reading;
use crate::adapters::mcp::connect::Fault;
use crate::adapters::mcp::log;
use crate::adapters::mcp::message::{self, Envelope, Message};
use crate::adapters::mcp::repaired::{self, Read};
use crate::adapters::mcp::secrets::place;
use crate::adapters::mcp::unsolicited::{Answer, Flood, MAX_ID, Unsolicited, Verdict};
use crate::adapters::upstream::{Response, why};

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

    /// The events of a response for rmcp: answers, and what its subscriptions need. `id` is the id of the answered
    /// request, if any. `post` is a request to the server under the same session.
    fn events(&self, body: Body, max: usize, id: Option<RequestId>, post: reqwest::RequestBuilder) -> Events {
        let unsolicited = self.unsolicited.clone();
        let tap = self.clone();
        let ended = self.clone();
        // A stream that does not belong to a request does not need to contain an answer.
        let answered = Arc::new(AtomicBool::new(id.is_none()));
        let is_answered = answered.clone();
        let reading = Reading::new(unsolicited.source.held());
        let events = SseStream::from_bytes_stream(bounded(body, reading.clone(), max));
        let events = events.map(move |event| {
            let mut event = event.inspect_err(|error| {
                if let SseError::Body(fault) = error
                    && let Some(fault) = fault.downcast_ref()
                {
                    tap.unreadable(fault);
                }
            })?;
            // Data that arrived in the same piece is counted with the event.
            let mut held = reading.lock();
            // rmcp skips events with other names. Here they are distinguished by their content.
            event.event = None;
            // rmcp keeps the id, so its length is limited.
            event.id = event.id.filter(|id| id.len() <= MAX_ID);
            let data = event.data.take().unwrap_or_default();
            let mut for_rmcp = own(&unsolicited, data, &post).map_err(broken)?;
            if let Some(data) = &for_rmcp {
                let tree = message::tree_bytes(data.as_bytes()).map_err(broken)?;
                held.add(tree).map_err(broken)?;
                unsolicited.keep(&mut held);
            }
            for_rmcp = match (for_rmcp, &id) {
                (Some(data), Some(id)) => match repaired::answer(data.as_bytes(), id) {
                    Ok(Read::Answer(message)) => {
                        answered.store(true, Ordering::Relaxed);
                        serde_json::to_string(&message).ok()
                    }
                    Ok(Read::Foreign(_)) => None,
                    Ok(Read::Other) => readable(data),
                    Err(words) => return Err(broken(tap.failed(words, true))),
                },
                (data, _) => data.and_then(readable),
            };
            drop(held.take());
            event.data = for_rmcp;
            Ok(event)
        });
        let end = stream::poll_fn(move |_| {
            if !is_answered.swap(true, Ordering::Relaxed) {
                ended.failed("the event stream ended before the answer", false);
            }
            Poll::Ready(None)
        });
        events.chain(end).boxed()
    }
}

/// The data of an event, if it is for rmcp. The server's own messages are handled here.
fn own(unsolicited: &Arc<Unsolicited>, data: String, post: &reqwest::RequestBuilder) -> Result<Option<String>, Flood> {
    let envelope = serde_json::from_str::<Envelope<'_>>(&data).ok();
    let envelope = envelope.filter(|envelope| !envelope.is_answer());
    let Some((id, method)) = envelope.and_then(|envelope| Some((envelope.id, envelope.method?))) else {
        unsolicited.noise(data.len())?;
        return Ok((!data.trim().is_empty()).then_some(data));
    };
    match unsolicited.heard(&method, id, data.len())? {
        Verdict::Dropped => return Ok(None),
        Verdict::Passed => {}
        Verdict::Answer(answer) => {
            send(unsolicited, answer, post);
            return Ok(None);
        }
    }
    Ok(Some(data))
}

/// The data in a form that rmcp can read; usually unchanged. A message that turns out to be a request once it can be
/// read is dropped.
fn readable(data: String) -> Option<String> {
    match serde_json::from_str::<Message>(&data) {
        Ok(Message::Request(_)) => None,
        Ok(_) => Some(data),
        Err(_) => match message::read(data.as_bytes()) {
            Ok(Message::Request(_)) | Err(_) => None,
            Ok(message) => serde_json::to_string(&message).ok(),
        },
    }
}

/// Posts an answer to a request of the server.
fn send(unsolicited: &Arc<Unsolicited>, answer: Answer, post: &reqwest::RequestBuilder) {
    let Some(post) = post.try_clone() else { return };
    let request = post.body(answer.body.clone());
    unsolicited.answer(answer, async move {
        if let Err(error) = request.send().await {
            tracing::debug!(error = why(&error), "an answer to the server was not delivered");
        }
    });
}

/// rmcp logs errors with all their content, and a URL may contain a secret.
fn bare<T>(result: Result<T, Failure>) -> Result<T, Failure> {
    result.map_err(|error| match error {
        StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
        other => other,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is complete before anything could panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream that is not read any further.
fn broken(why: impl std::error::Error + Send + Sync + 'static) -> SseError {
    SseError::Body(Box::new(why))
}

impl StreamableHttpClient for Tap {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session_id, auth_header, custom_headers, limits)
            .await
    }

    /// gavel gives rmcp no `auth_header`; credentials are among the configured headers. gavel's own body limits are no
    /// wider than rmcp's.
    async fn post_message_with_response_limits(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        self.note(session_id.as_ref());
        *lock(&self.fault) = None;
        if let ClientJsonRpcMessage::Request(request) = &message
            && matches!(request.request, ClientRequest::InitializeRequest(_))
        {
            self.initializes.store(true, Ordering::Relaxed);
        }
        let post = |url: Url, session: Option<&str>| {
            let mut headers: HeaderMap = custom_headers.clone().into_iter().collect();
            headers.insert(ACCEPT, EVENTS);
            headers.insert(ACCEPT_ENCODING, IDENTITY);
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            if let Some(session) = session.and_then(|session| HeaderValue::from_str(session).ok()) {
                headers.insert(SESSION, session);
            }
            self.client.post(url).headers(headers)
        };
        let mut redirects = 0;
        let response = loop {
            let from = self.url();
            let request = post(from.clone(), session_id.as_deref());
            let response = bare(request.json(&message).send().await.map_err(Failure::from))?;
            let status = response.status();
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                break Response::from(response);
            }
            let to = redirect::target(&from, status, response.headers());
            let to = to.map_err(|words| self.failed(words, true))?;
            redirects += 1;
            if redirects > redirect::MOST || status == StatusCode::SEE_OTHER {
                let words = format!("the server answered HTTP {status}, which leads to `{}`", place(&to));
                return Err(self.failed(words, true));
            }
            *lock(&self.url) = to;
        };
        let status = response.status();
        // A message that is not a request has no answer, whatever the server sends.
        let ClientJsonRpcMessage::Request(asked) = &message else {
            return match status.is_success() {
                true => Ok(StreamableHttpPostResponse::Accepted),
                false if status == StatusCode::NOT_FOUND && session_id.is_some() => {
                    Err(StreamableHttpError::SessionExpired)
                }
                false => Err(self.failed(format!("HTTP {status}"), false)),
            };
        };
        if status == StatusCode::NOT_FOUND && session_id.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let label = media::labelled(response.headers());
        let given = response.headers().get(SESSION);
        let given = given.and_then(|id| id.to_str().ok()).map(str::to_owned);
        let mut body = Body::of(response, MAX_ANSWER).map_err(|fault| self.unreadable(&fault))?;
        if !status.is_success() {
            return self.refusal(body, status, &message, session_id.is_some()).await;
        }
        // A subscription may be silent for a long time.
        let kind = match (&asked.request, label) {
            (ClientRequest::SubscriptionsListenRequest(_), Kind::Events) => Kind::Events,
            _ => body.kind(label).await.map_err(|fault| self.unreadable(&fault))?,
        };
        match kind {
            Kind::Json => Ok(StreamableHttpPostResponse::Json(
                self.json(body, &asked.id).await?,
                given,
            )),
            Kind::Events => {
                let answers = post(self.url(), given.as_deref().or(session_id.as_deref()));
                let events = self.events(body, limits.max_sse_event_size, Some(asked.id.clone()), answers);
                Ok(StreamableHttpPostResponse::Sse(events, given))
            }
            Kind::Empty => Err(self.failed(format!("the server answered HTTP {status} without a body"), true)),
            Kind::Other => {
                let label = media::described(body.headers());
                let words =
                    format!("the server answered HTTP {status} {label}, and with neither JSON nor an event stream");
                Err(self.failed(words, true))
            }
        }
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        let url = Arc::from(self.url().as_str());
        bare(
            self.client
                .delete_session(url, session_id, auth_header, custom_headers)
                .await,
        )
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, Failure> {
        self.get_stream_with_max_sse_event_size(uri, session_id, last_event_id, auth_header, custom_headers, MAX_ANSWER)
            .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        _: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<Events, Failure> {
        // rmcp requests a stream that ends at once again, as soon as the server allows.
        let asked = self.unsolicited.asked_again();
        asked.map_err(|flood| self.failed(flood.to_string(), false))?;
        let mut headers: HeaderMap = custom_headers.into_iter().collect();
        headers.insert(ACCEPT, EVENTS);
        headers.insert(ACCEPT_ENCODING, IDENTITY);
        let text = |text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| self.failed("its session or event id is not a valid header value", true))
        };
        if let Some(session) = &session_id {
            headers.insert(SESSION, text(session)?);
        }
        let mut get = headers.clone();
        if let Some(last) = &last_event_id {
            get.insert("last-event-id", text(last)?);
        }
        let response = self.client.get(self.url()).headers(get).send().await;
        let response = Response::from(bare(response.map_err(Failure::from))?);
        let status = response.status();
        match (status, media::labelled(response.headers())) {
            (StatusCode::METHOD_NOT_ALLOWED, _) => Err(StreamableHttpError::ServerDoesNotSupportSse),
            (status, Kind::Events) if status.is_success() => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                let answers = self.client.post(self.url()).headers(headers);
                let body = Body::of(response, MAX_ANSWER).map_err(|fault| self.unreadable(&fault))?;
                Ok(self.events(body, max_sse_event_size, None, answers))
            }
            _ => {
                let log = &self.unsolicited.source.log;
                log::line!(
                    *log,
                    warn,
                    "no stream",
                    "the stream for the server's messages was answered with HTTP {status}; changes to its tools may be \
                     noticed late"
                );
                Err(self.failed(format!("HTTP {status} without events"), false))
            }
        }
    }
}

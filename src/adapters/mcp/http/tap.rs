//! reqwest as rmcp's HTTP client: what rmcp sends beside the calls, handshake and lists above all.
//!
//! rmcp's own client drops what serde refuses; this one reads it as everything else is read (`message`), and listens in on the
//! session's id. What the server sends of its own accord ends here (`unsolicited`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use sse_stream::{Sse, SseStream};

use super::answer::{Kind, MAX_ANSWER, MAX_ERROR, is_auth, kind};
use super::body::{bounded, whole};
use crate::adapters::mcp::answers::Reading;
use crate::adapters::mcp::log;
use crate::adapters::mcp::message::{self, Envelope, Message};
use crate::adapters::mcp::unsolicited::{Answer, Flood, MAX_ID, Unsolicited, Verdict};
use crate::adapters::upstream::{Response, why};

/// What is shown to an operator of an answer that is none, in bytes.
const SHOWN: usize = 256;
const SESSION: &str = "mcp-session-id";
const EVENTS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// A client that remembers under which session rmcp posts.
#[derive(Clone)]
pub(crate) struct Tap {
    client: reqwest::Client,
    session: Arc<Mutex<Option<Arc<str>>>>,
    unsolicited: Arc<Unsolicited>,
}

type Failure = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

impl Tap {
    pub(crate) fn new(client: reqwest::Client, unsolicited: Arc<Unsolicited>) -> Self {
        Self {
            client,
            session: Arc::default(),
            unsolicited,
        }
    }

    /// The session's id, if the server gave one.
    pub(crate) fn session(&self) -> Option<Arc<str>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, session: Option<&Arc<str>>) {
        if let Some(session) = session {
            *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
        }
    }

    /// The answer to a request is this JSON; reads it for rmcp.
    async fn json(&self, response: Response) -> Result<Message, Failure> {
        let mut held = self.unsolicited.source.held();
        let body = whole(response, MAX_ANSWER, &mut held)
            .await
            .map_err(|fault| unexpected(fault.to_string()))?;
        self.charged(&body)?;
        let unreadable = |error| unexpected(format!("the answer cannot be read: {error}"));
        let tree = message::tree_bytes(&body).map_err(unreadable)?;
        held.add(tree).map_err(|no_room| unexpected(no_room.to_string()))?;
        let read = message::read(&body).map_err(unreadable)?;
        if matches!(read, Message::Request(_) | Message::Notification(_)) {
            return Err(unexpected("the server answered with a message of its own"));
        }
        self.unsolicited.keep(&mut held);
        Ok(read)
    }

    fn charged(&self, body: &[u8]) -> Result<(), Failure> {
        let charged = self.unsolicited.noise(body.len());
        charged.map_err(|flood| unexpected(flood.to_string()))
    }

    /// An answer that is not 2xx. An error of the protocol is the server's own word, whatever the status, but for credentials
    /// that it refuses. A server of the session era may refuse a method that it does not know in any words: to rmcp, who goes
    /// on with the handshake then, that is an error of the protocol too.
    async fn refusal(
        &self,
        response: Response,
        message: &ClientJsonRpcMessage,
        in_session: bool,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let (status, json) = (response.status(), matches!(kind(&response), Kind::Json));
        let mut held = self.unsolicited.source.held();
        let body = whole(response, MAX_ERROR, &mut held).await.unwrap_or_default();
        let error = match message::read(&body) {
            Ok(Message::Error(error)) if json => Some(error),
            _ => None,
        };
        let words = self.unsolicited.source.words(&String::from_utf8_lossy(&body), SHOWN);
        let words = format!("HTTP {status}: {words}");
        let answer = match (message, error) {
            _ if is_auth(status) => None,
            (ClientJsonRpcMessage::Request(request), error)
                if matches!(request.request, ClientRequest::DiscoverRequest(_))
                    && status.is_client_error()
                    && !in_session =>
            {
                let error = error.map_or_else(|| ErrorData::invalid_request(words.clone(), None), |error| error.error);
                Some(Message::error(error, Some(request.id.clone())))
            }
            (_, error) => error.map(Message::Error),
        };
        match answer {
            Some(message) => Ok(StreamableHttpPostResponse::Json(message, None)),
            None => Err(unexpected(words)),
        }
    }

    /// The events of a response for rmcp: answers, and what its subscriptions need. `post` makes a request to the server under
    /// the same session.
    fn events(&self, response: Response, max: usize, post: reqwest::RequestBuilder) -> Events {
        let unsolicited = self.unsolicited.clone();
        let reading = Reading::new(unsolicited.source.held());
        let events = SseStream::from_bytes_stream(bounded(response, reading.clone(), max));
        let events = events.map(move |event| {
            let mut event = event?;
            // What came behind it in one piece is counted with it.
            let mut held = reading.lock();
            // rmcp keeps it.
            event.id = event.id.filter(|id| id.len() <= MAX_ID);
            let data = event.data.take().unwrap_or_default();
            let mut for_rmcp = own(&unsolicited, data, &post).map_err(broken)?;
            if let Some(data) = &for_rmcp {
                let tree = message::tree_bytes(data.as_bytes()).map_err(broken)?;
                held.add(tree).map_err(broken)?;
                unsolicited.keep(&mut held);
            }
            for_rmcp = for_rmcp.and_then(readable);
            drop(held.take());
            event.data = for_rmcp;
            Ok(event)
        });
        events.boxed()
    }
}

/// The data of an event, if rmcp is to have it; what is the server's own is dealt with here.
fn own(unsolicited: &Arc<Unsolicited>, data: String, post: &reqwest::RequestBuilder) -> Result<Option<String>, Flood> {
    let envelope = serde_json::from_str::<Envelope<'_>>(&data);
    let Ok(Envelope {
        id,
        method: Some(method),
        ..
    }) = &envelope
    else {
        unsolicited.noise(data.len())?;
        return Ok((!data.trim().is_empty()).then_some(data));
    };
    match unsolicited.heard(method, *id, data.len())? {
        Verdict::Dropped => return Ok(None),
        Verdict::Passed => {}
        Verdict::Answer(answer) => {
            send(unsolicited, answer, post);
            return Ok(None);
        }
    }
    Ok(Some(data))
}

/// The data as rmcp can read it; nearly all is as it came. Nothing of what only looks like a request once it can be read.
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

/// rmcp logs errors with all they hold, and a URL may hold a secret.
fn bare<T>(result: Result<T, Failure>) -> Result<T, Failure> {
    result.map_err(|error| match error {
        StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
        other => other,
    })
}

fn unexpected(words: impl Into<String>) -> Failure {
    StreamableHttpError::UnexpectedServerResponse(words.into().into())
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

    /// gavel gives rmcp no `auth_header`; credentials are among the configured headers. Its own limits on bodies are no wider
    /// than rmcp's.
    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        self.note(session_id.as_ref());
        let post = |session: Option<&str>| {
            let mut headers: HeaderMap = custom_headers.clone().into_iter().collect();
            headers.insert(ACCEPT, EVENTS);
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            if let Some(session) = session.and_then(|session| HeaderValue::from_str(session).ok()) {
                headers.insert(SESSION, session);
            }
            self.client.post(&*uri).headers(headers)
        };
        let request = post(session_id.as_deref());
        let response = bare(request.json(&message).send().await.map_err(Failure::from))?;
        let response = Response::from(response);
        let status = response.status();
        // To what is no request there is no answer, whatever comes in its place.
        let asks = matches!(message, ClientJsonRpcMessage::Request(_));
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) || (status.is_success() && !asks) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && session_id.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let given = response.headers().get(SESSION);
        let given = given.and_then(|id| id.to_str().ok()).map(str::to_owned);
        if !status.is_success() {
            return self.refusal(response, &message, session_id.is_some()).await;
        }
        match kind(&response) {
            Kind::Json => Ok(StreamableHttpPostResponse::Json(self.json(response).await?, given)),
            Kind::Events => {
                let answers = post(given.as_deref().or(session_id.as_deref()));
                let events = self.events(response, limits.max_sse_event_size, answers);
                Ok(StreamableHttpPostResponse::Sse(events, given))
            }
            Kind::Other => Err(unexpected(format!("HTTP {status} without a result"))),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        bare(
            self.client
                .delete_session(uri, session_id, auth_header, custom_headers)
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
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<Events, Failure> {
        // A stream that ends at once is asked for again, as soon as the server says.
        let asked = self.unsolicited.asked_again();
        asked.map_err(|flood| unexpected(flood.to_string()))?;
        let mut headers: HeaderMap = custom_headers.into_iter().collect();
        headers.insert(ACCEPT, EVENTS);
        let text =
            |text: &str| HeaderValue::from_str(text).map_err(|_| unexpected("its session or event id is no header"));
        if let Some(session) = &session_id {
            headers.insert(SESSION, text(session)?);
        }
        let mut get = headers.clone();
        if let Some(last) = &last_event_id {
            get.insert("last-event-id", text(last)?);
        }
        let response = self.client.get(&*uri).headers(get).send().await;
        let response = Response::from(bare(response.map_err(Failure::from))?);
        let status = response.status();
        match (status, kind(&response)) {
            (StatusCode::METHOD_NOT_ALLOWED, _) => Err(StreamableHttpError::ServerDoesNotSupportSse),
            (status, Kind::Events) if status.is_success() => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                let answers = self.client.post(&*uri).headers(headers);
                Ok(self.events(response, max_sse_event_size, answers))
            }
            _ => {
                let log = &self.unsolicited.source.log;
                log::line!(
                    *log,
                    warn,
                    "no stream",
                    "the stream for the server's messages was answered with HTTP {status}; changes of its tools may be \
                     seen late"
                );
                Err(unexpected(format!("HTTP {status} without events")))
            }
        }
    }
}

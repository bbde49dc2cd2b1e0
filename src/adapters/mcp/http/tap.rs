//! reqwest as rmcp's HTTP client: what rmcp sends beside the calls, handshake and lists above all.
//!
//! rmcp's own client drops what serde refuses; this one reads it as everything else is read (`message`), and listens in on the
//! session's id.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::answer::{Kind, MAX_ANSWER, MAX_ERROR, is_auth, kind};
use super::body::{bounded, whole};
use crate::adapters::mcp::message::{self, Message};
use crate::adapters::upstream::Response;
use crate::domain::text::{capped, visible};

/// What is shown to an operator of an answer that is none, in bytes.
const SHOWN: usize = 256;
const SESSION: &str = "mcp-session-id";

/// A client that remembers under which session rmcp posts.
#[derive(Clone)]
pub(crate) struct Tap {
    client: reqwest::Client,
    session: Arc<Mutex<Option<Arc<str>>>>,
}

type Failure = StreamableHttpError<reqwest::Error>;

impl Tap {
    pub(crate) fn new(client: reqwest::Client) -> Self {
        Self {
            client,
            session: Arc::default(),
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
        self.post_message_with_max_sse_event_size(uri, message, session_id, auth_header, custom_headers, MAX_ANSWER)
            .await
    }

    /// gavel gives rmcp no `auth_header`; credentials are among the configured headers.
    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        self.note(session_id.as_ref());
        let mut request = self
            .client
            .post(&*uri)
            .headers(custom_headers.into_iter().collect())
            .header(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if let Some(session) = &session_id {
            request = request.header(SESSION, &**session);
        }
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
        let kind = kind(&response);
        if !status.is_success() {
            return refusal(response, &message, session_id.is_some(), matches!(kind, Kind::Json)).await;
        }
        match kind {
            Kind::Json => {
                let body = whole(response, MAX_ANSWER)
                    .await
                    .map_err(|fault| unexpected(fault.to_string()))?;
                // serde's words may quote the answer, its place does not.
                let read = message::read(&body).map_err(|error| {
                    unexpected(format!(
                        "the answer is no JSON-RPC message: {:?} at {}",
                        error.classify(),
                        error.column()
                    ))
                })?;
                Ok(StreamableHttpPostResponse::Json(read, given))
            }
            Kind::Events => {
                let since = Arc::new(AtomicUsize::new(0));
                let events = SseStream::from_bytes_stream(bounded(response, since.clone(), max_sse_event_size));
                let events = events.inspect(move |_| since.store(0, Ordering::Relaxed));
                Ok(StreamableHttpPostResponse::Sse(readable(events.boxed()), given))
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
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        self.get_stream_with_max_sse_event_size(uri, session_id, last_event_id, auth_header, custom_headers, MAX_ANSWER)
            .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let events = self
            .client
            .get_stream_with_max_sse_event_size(
                uri,
                session_id,
                last_event_id,
                auth_header,
                custom_headers,
                max_sse_event_size,
            )
            .await;
        bare(events).map(readable)
    }
}

/// An answer that is not 2xx. An error of the protocol is the server's own word, whatever the status, but for credentials
/// that it refuses. A server of the session era may refuse a method that it does not know in any words: to rmcp, who goes on
/// with the handshake then, that is an error of the protocol too.
async fn refusal(
    response: Response,
    message: &ClientJsonRpcMessage,
    in_session: bool,
    json: bool,
) -> Result<StreamableHttpPostResponse, Failure> {
    let status = response.status();
    let body = whole(response, MAX_ERROR).await.unwrap_or_default();
    let error = match message::read(&body) {
        Ok(Message::Error(error)) if json => Some(error),
        _ => None,
    };
    let words = visible(&String::from_utf8_lossy(&body));
    let words = format!("HTTP {status}: {}", capped(&words, SHOWN));
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

/// Events whose messages rmcp can read. Nearly all are as they came.
fn readable(events: BoxStream<'static, Result<Sse, SseError>>) -> BoxStream<'static, Result<Sse, SseError>> {
    let mended = |data: String| match serde_json::from_str::<Message>(&data) {
        Ok(_) => data,
        Err(_) => message::read(data.as_bytes())
            .ok()
            .and_then(|message| serde_json::to_string(&message).ok())
            .unwrap_or(data),
    };
    let events = events.map(move |event| {
        event.map(|mut event| {
            event.data = event.data.map(mended);
            event
        })
    });
    events.boxed()
}

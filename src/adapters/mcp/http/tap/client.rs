//! The requests that rmcp sends, over reqwest.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use reqwest::StatusCode;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest};
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use url::Url;

use super::super::body::{Body, MAX_ANSWER};
use super::super::media::{self, Kind};
use super::super::{IDENTITY, redirect};
use super::{EVENTS, Events, Failure, SESSION, Tap, lock};
use crate::adapters::mcp::log;
use crate::adapters::mcp::place::place;
use crate::adapters::upstream::Response;

impl Tap {
    /// Sends a request, and follows redirects on the same origin.
    async fn follow(&self, request: impl Fn(Url) -> reqwest::RequestBuilder) -> Result<Response, Failure> {
        let mut redirects = 0;
        loop {
            let from = self.url();
            let response = bare(request(from.clone()).send().await.map_err(Failure::from))?;
            let status = response.status();
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return Ok(Response::from(response));
            }
            let to = redirect::target(&from, status, response.headers());
            let to = to.map_err(|words| self.failed(words, true))?;
            redirects += 1;
            if redirects > redirect::MOST || status == StatusCode::SEE_OTHER {
                let words = format!("the server answered HTTP {status}, which leads to `{}`", place(&to));
                return Err(self.failed(words, true));
            }
            *lock(&self.url) = to;
        }
    }
}

/// rmcp logs errors with all their content, and a URL may contain a secret.
fn bare<T>(result: Result<T, Failure>) -> Result<T, Failure> {
    result.map_err(|error| match error {
        StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
        other => other,
    })
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
        let response = self
            .follow(|url| post(url, session_id.as_deref()).json(&message))
            .await?;
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

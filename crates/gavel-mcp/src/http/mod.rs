//! Streamable HTTP: each request is one POST, and its answer is JSON or a stream of events.

mod answer;
mod body;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::{Buf, Bytes};
use futures_util::FutureExt;
use gavel_upstream::handover::SendGate;
use gavel_upstream::upstream::{GatedBody, Limits, Plain, Response, is_loopback, why};
use memchr::memmem;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

use super::attempt::{Answered, Attempt, Lost, Outbound};
use super::connection::place;
use super::inbox::Inbox;
use crate::domain::budget::Held;
use crate::ports::tools::CallRequest;

/// Requests uncompressed bodies. Without this value, every encoding is acceptable (RFC 9110 section 12.5.3).
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
/// Maximum idle connections.
const CONCURRENT: usize = 256;
/// Idle connections are closed after this. A server may close an older one just as gavel uses it, and the call would be
/// in doubt. The shortest common keep-alive is 5 s (Node, actix, uvicorn).
const IDLE: Duration = Duration::from_secs(4);
/// Connect timeout.
const CONNECT: Duration = Duration::from_secs(5);
/// The limits for connections to a server on this machine.
const PLAIN: Limits = Limits {
    connect: CONNECT,
    idle: IDLE,
    kept: CONCURRENT,
};
/// Maximum redirects per request.
const REDIRECTS: u32 = 3;
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// A server over HTTP.
pub(super) struct Http {
    client: reqwest::Client,
    /// For a server on this machine.
    plain: Option<Arc<Plain>>,
    inbox: Arc<Inbox>,
    address: ArcSwap<Address>,
}

/// Where requests go. It changes only in the handshake, and by redirects of requests that are no calls.
#[derive(Clone)]
struct Address {
    url: Url,
    /// The same for [`Plain`].
    target: Option<hyper::Uri>,
    /// Headers of every message: the configured ones, media types, session, version.
    headers: HeaderMap,
}

impl Http {
    /// # Errors
    /// TLS could not be configured, or a configured header is invalid.
    pub(super) fn new(url: &Url, configured: &[(HeaderName, SecretString)], inbox: Arc<Inbox>) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in configured {
            // Marked as sensitive, so that it is not printed.
            let mut value =
                HeaderValue::from_str(value.expose_secret()).map_err(|_| format!("header {name} is invalid"))?;
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT_ENCODING, IDENTITY);
        Ok(Self {
            client: client(url)?,
            plain: Plain::new(url, PLAIN),
            inbox,
            address: ArcSwap::from_pointee(Address {
                url: url.clone(),
                target: Plain::target(url),
                headers,
            }),
        })
    }

    /// The same server before any handshake, over the same pool.
    pub(super) fn again(&self) -> Self {
        Self {
            client: self.client.clone(),
            plain: self.plain.clone(),
            inbox: self.inbox.clone(),
            address: ArcSwap::new(self.address.load_full()),
        }
    }

    /// From now on, every message names this protocol version.
    pub(super) fn negotiated(&self, version: &str) {
        if let Ok(version) = HeaderValue::from_str(version) {
            self.change(|address| drop(address.headers.insert(VERSION, version)));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Address)) {
        let mut address = Address::clone(&self.address.load());
        change(&mut address);
        self.address.store(Arc::new(address));
    }

    fn has_session(&self) -> bool {
        self.address.load().headers.contains_key(SESSION)
    }

    /// Sends a request, and waits for its answer.
    pub(super) async fn exchange(&self, request: Outbound<'_>, held: Held<'_>) -> Answered {
        let response = match self.post(&request).await {
            Ok(response) => response,
            Err(attempt) => return attempt.into(),
        };
        if request.method == "initialize"
            && let Some(session) = response.headers().get(SESSION)
        {
            let mut session = session.clone();
            session.set_sensitive(true);
            self.change(|address| drop(address.headers.insert(SESSION, session)));
        }
        self.read(response, request.id, held).await
    }

    /// Posts a request. One that is no call has no effect, so it follows redirects on the same origin.
    async fn post(&self, request: &Outbound<'_>) -> Result<Response, Attempt> {
        if request.call.is_some() {
            return self.send(request, request.gate).await;
        }
        for _ in 0..=REDIRECTS {
            let response = self.send(request, &SendGate::default()).await?;
            let status = response.status();
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return Ok(response);
            }
            let to = self.redirect(status, response.headers());
            let to = to.map_err(Attempt::unreadable)?;
            if status == StatusCode::SEE_OTHER {
                let words = format!("the server answered HTTP {status}, which leads to `{}`", place(&to));
                return Err(Attempt::unreadable(words));
            }
            self.change(|address| {
                address.target = Plain::target(&to);
                address.url = to;
            });
        }
        Err(Attempt::unreadable(format!(
            "the server redirects more than {REDIRECTS} times"
        )))
    }

    async fn send(&self, request: &Outbound<'_>, gate: &SendGate) -> Result<Response, Attempt> {
        let (address, body) = (self.address.load_full(), request.body.clone());
        let with_names = request.is_modern.then(|| {
            let mut headers = address.headers.clone();
            headers.insert("mcp-method", HeaderValue::from_static(request.method));
            if let Some(call) = request.call {
                add(&mut headers, call);
            }
            headers
        });
        let headers = with_names.as_ref().unwrap_or(&address.headers);
        let sent = match (&self.plain, &address.target) {
            (Some(plain), Some(target)) => {
                let posted = plain.post(target, headers, body.chain(Bytes::new()), gate).await;
                posted.map_err(|error| error.to_string())
            }
            _ => {
                let mut request = reqwest::Request::new(Method::POST, address.url.clone());
                request.headers_mut().clone_from(headers);
                *request.body_mut() = Some(reqwest::Body::wrap(GatedBody::new(body, gate)));
                let response = self.client.execute(request).await;
                response.map(Response::from).map_err(|error| why(&error))
            }
        };
        sent.map_err(|words| match gate.is_sent() {
            true => Attempt::Lost(Lost::Connection, words),
            false => Attempt::NotSent(Lost::Connection, words),
        })
    }

    /// The target of a redirect, which must have the same origin.
    ///
    /// # Errors
    /// A message: the target has another origin, which must not receive this origin's credentials, or there is no valid
    /// target.
    fn redirect(&self, status: StatusCode, headers: &HeaderMap) -> Result<Url, String> {
        let from = &self.address.load().url;
        let location = headers.get(LOCATION).and_then(|location| location.to_str().ok());
        let Some(to) = location.and_then(|location| from.join(location).ok()) else {
            return Err(format!(
                "the server answered HTTP {status} without a `location` that is an address"
            ));
        };
        if to.origin() == from.origin() {
            return Ok(to);
        }
        Err(format!(
            "the server answered HTTP {status}, which leads to `{}`; redirects to another origin are not followed; configure \
             the final address",
            place(&to)
        ))
    }

    fn request(&self, method: Method) -> reqwest::RequestBuilder {
        let address = self.address.load();
        let mut request = reqwest::Request::new(method, address.url.clone());
        request.headers_mut().clone_from(&address.headers);
        reqwest::RequestBuilder::from_parts(self.client.clone(), request)
    }

    /// Posts a message that has no answer.
    pub(super) fn notify(&self, body: String) -> impl Future<Output = Result<(), String>> + Send + 'static {
        let request = self.request(Method::POST).body(body);
        async move {
            let response = request.send().await.map_err(|error| why(&error))?;
            match response.status() {
                status if status.is_success() => Ok(()),
                status => Err(format!("HTTP {status}")),
            }
        }
    }

    /// The same, alongside everything else.
    pub(super) fn notify_aside(&self, body: String) -> impl Future<Output = ()> + Send + 'static {
        self.notify(body).map(|sent| {
            if let Err(error) = sent {
                tracing::debug!(error, "a message outside of a call was not delivered");
            }
        })
    }

    /// Ends the session, if there is one, alongside everything else.
    pub(super) fn close(&self) {
        if self.has_session() {
            let request = self.request(Method::DELETE);
            self.inbox.background.spawn(async move {
                // The server may not support it, and forgets the session at some time anyway.
                let _ = request.send().await;
            });
        }
    }
}

/// A pooled client for one server, without retries and redirects.
fn client(url: &Url) -> Result<reqwest::Client, String> {
    // If a provider is already installed, that one is used; gavel has only one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(CONCURRENT);
    if is_loopback(url) {
        // A proxy from the environment is not used for this machine.
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| error.to_string())
}

/// Adds the headers.
fn add(headers: &mut HeaderMap, call: &CallRequest<'_>) {
    insert(headers, HeaderName::from_static("mcp-name"), &call.tool.name);
    let schema = call.tool.input.original().get();
    // Few tools use this, and parsing a schema costs more than the call.
    if memmem::find(schema.as_bytes(), br#""x-mcp-header""#).is_some()
        && let Ok(schema) = serde_json::from_str(schema)
        && let Ok(arguments) = serde_json::from_str(call.arguments.get())
    {
        arguments_of(headers, &schema, &arguments);
    }
}

/// The arguments of one level of `properties`. Absent, null and structured values have no header.
fn arguments_of(headers: &mut HeaderMap, schema: &Value, arguments: &Value) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let Some(argument) = arguments.get(name) else { continue };
        let header = property.get("x-mcp-header").and_then(Value::as_str);
        if let Some(header) = header.filter(|header| !header.is_empty())
            && let Some(text) = plain(argument)
            && let Ok(header) = HeaderName::try_from(format!("mcp-param-{header}"))
        {
            insert(headers, header, &text);
        }
        arguments_of(headers, property, argument);
    }
}

fn plain(argument: &Value) -> Option<Cow<'_, str>> {
    match argument {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Bool(_) | Value::Number(_) => Some(Cow::Owned(argument.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(&encoded(text)) {
        headers.insert(name, value);
    }
}

/// Encodes text for a header: as base64 if it would not arrive unchanged, or would look like base64.
fn encoded(text: &str) -> Cow<'_, str> {
    let visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let stripped = text.starts_with(' ') || text.ends_with(' ');
    let marked = text.starts_with("=?base64?") && text.ends_with("?=");
    if visible && !stripped && !marked {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("=?base64?{}?=", BASE64_STANDARD.encode(text)))
}

/// Longest label that is reported, in bytes.
const SHOWN: usize = 100;

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Json,
    Events,
    /// The body is empty.
    Empty,
    Other,
}

impl Kind {
    /// The kind according to the label.
    fn labelled(headers: &HeaderMap) -> Self {
        let label = label(headers);
        let media = label.split(';').next().unwrap_or_default().trim();
        let kind = media.split_once('/').map(|(_, kind)| kind).unwrap_or_default();
        match kind {
            "event-stream" => Self::Events,
            "json" | "json-rpc" | "jsonrpc" | "jsonrequest" | "x-json" => Self::Json,
            _ if kind.ends_with("+json") => Self::Json,
            _ => Self::Other,
        }
    }

    /// The kind according to the first bytes: a body that begins as JSON is JSON, whatever its label. White space alone
    /// says nothing.
    fn begun(self, bytes: &[u8]) -> Self {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        const FIELDS: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];
        match bytes.trim_ascii_start() {
            [] => Self::Empty,
            [b'{' | b'[', ..] => Self::Json,
            begun if FIELDS.iter().any(|field| begun.starts_with(field)) => Self::Events,
            _ => self,
        }
    }
}

/// The label for an operator.
fn described(headers: &HeaderMap) -> String {
    match label(headers) {
        label if label.is_empty() => "without a `content-type`".to_owned(),
        label => format!("as `{}`", &label[..label.floor_char_boundary(SHOWN)]),
    }
}

fn label(headers: &HeaderMap) -> String {
    let label = headers.get(CONTENT_TYPE).and_then(|label| label.to_str().ok());
    label.unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod headers_tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn text_that_no_header_carries_as_it_is_is_encoded() {
        for (text, expected) in [
            ("", ""),
            ("us-west 1", "us-west 1"),
            (" a", "=?base64?IGE=?="),
            ("a\t", "=?base64?YQk=?="),
            ("ä", "=?base64?w6Q=?="),
            ("a\r\nb: c", "=?base64?YQ0KYjogYw==?="),
            ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ] {
            assert_eq!(encoded(text), expected, "{text:?}");
        }
    }

    #[test]
    fn arguments_are_found_at_every_level_of_properties_and_nowhere_else() {
        let asks = |kind: &str, header: &str| json!({"type": kind, "x-mcp-header": header});
        let schema = json!({"properties": {
            "a": asks("string", "A"), "b": asks("integer", "B"), "c": asks("boolean", "C"),
            "none": asks("string", "None"), "null": asks("string", "Null"), "list": asks("array", "List"),
            "bad": asks("string", "a b"), "empty": asks("string", ""),
            "in": {"properties": {"d": asks("string", "D")}},
            "items": {"type": "array", "items": {"properties": {"e": asks("string", "E")}}},
        }});
        let arguments = json!({"a": "x", "b": -7, "c": true, "null": null, "list": ["y"], "bad": "z", "empty": "z",
            "in": {"d": "ü"}, "items": [{"e": "f"}]});
        let mut headers = HeaderMap::new();
        arguments_of(&mut headers, &schema, &arguments);
        let mut found: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        found.sort_unstable();
        let expected = [
            ("mcp-param-a", "x"),
            ("mcp-param-b", "-7"),
            ("mcp-param-c", "true"),
            ("mcp-param-d", "=?base64?w7w=?="),
        ];
        assert_eq!(found, expected);
    }
}

#[cfg(test)]
mod media_tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_body_is_known_by_its_label_in_any_case_and_by_how_it_begins() {
        for (label, body, kind) in [
            ("application/json", "{}", Kind::Json),
            ("Application/JSON; charset=UTF-8", "{}", Kind::Json),
            ("application/vnd.api+json", "{}", Kind::Json),
            ("text/json", "\u{feff} [", Kind::Json),
            ("TEXT/Event-Stream", "data: {}", Kind::Events),
            ("text/event-stream", "\n\n:", Kind::Events),
            // The label and the body differ in kind.
            ("text/event-stream", "{}", Kind::Json),
            ("application/json", "event: message\n", Kind::Events),
            ("text/html", "{", Kind::Json),
            ("", "data: {}", Kind::Events),
            ("text/html", "<html>", Kind::Other),
            ("", "no", Kind::Other),
            ("application/json", "nope", Kind::Json),
            ("text/event-stream", "", Kind::Empty),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, label.parse().unwrap());
            assert_eq!(Kind::labelled(&headers).begun(body.as_bytes()), kind, "{label} {body}");
        }
    }
}

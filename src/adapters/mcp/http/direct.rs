//! Sends `tools/call` as one POST (the parent module explains why).

mod answer;
mod refusal;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use rmcp::model::{ClientCapabilities, Implementation, ProtocolVersion, RequestMetaObject};
use url::Url;

use self::refusal::Answered;
use super::{IDENTITY, PLAIN, headers};
use crate::adapters::handover::SendGate;
use crate::adapters::mcp::answers::Held;
use crate::adapters::mcp::attempt::{Attempt, Lost, Outgoing};
use crate::adapters::mcp::meta;
use crate::adapters::mcp::unsolicited::Unsolicited;
use crate::adapters::upstream::{GatedBody, Plain, Response, why};

/// rmcp counts the ids of a session from 0. These begin higher, so that no two requests share an id.
const FIRST_ID: u32 = 1 << 30;

/// The direct path to a server, valid for one session.
pub(crate) struct Direct {
    client: reqwest::Client,
    /// For calls to a server on this machine.
    plain: Option<(Arc<Plain>, hyper::Uri)>,
    url: Url,
    /// Headers of every message: the configured ones, session, version, media types.
    headers: HeaderMap,
    session: bool,
    /// For the 2026-07-28 era: there is no session, and every request identifies the client with these members of
    /// `_meta`. JSON text that ends with a comma.
    modern: Option<String>,
    ids: AtomicU32,
    unsolicited: Arc<Unsolicited>,
    /// When it was made.
    since: Instant,
    /// When the server last listed its tools between calls, in milliseconds after `since`; 0 means never.
    listed_ms: AtomicU64,
}

impl Direct {
    /// `session` is the id from the server, `headers` the configured ones.
    ///
    /// # Errors
    /// The session id is not a valid header value.
    pub(crate) fn new(
        client: reqwest::Client,
        url: Url,
        mut headers: HeaderMap,
        session: Option<&str>,
        version: &ProtocolVersion,
        client_info: &Implementation,
        unsolicited: Arc<Unsolicited>,
    ) -> Result<Self, String> {
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT_ENCODING, IDENTITY);
        let version_header = HeaderValue::from_str(version.as_str())
            .map_err(|_| "its version is not a valid header value".to_owned())?;
        headers.insert("mcp-protocol-version", version_header);
        if let Some(session) = session {
            let mut id =
                HeaderValue::from_str(session).map_err(|_| "its session id is not a valid header value".to_owned())?;
            id.set_sensitive(true);
            headers.insert("mcp-session-id", id);
        }
        let modern = if version.has_initialize() {
            None
        } else {
            Some(modern_meta(version, client_info)?)
        };
        Ok(Self {
            client,
            plain: Plain::new(&url, PLAIN).zip(Plain::target(&url)),
            url,
            headers,
            session: session.is_some(),
            modern,
            ids: AtomicU32::new(FIRST_ID),
            unsolicited,
            since: Instant::now(),
            listed_ms: AtomicU64::new(0),
        })
    }

    fn has_session(&self) -> bool {
        self.session
    }

    fn url(&self) -> &Url {
        &self.url
    }

    /// Makes the call. If the future is dropped or the call is given up, the server is notified.
    pub(crate) async fn call(self: &Arc<Self>, call: &Outgoing<'_>) -> Attempt {
        let id = self.next_id();
        let body = match self.encode(id, call) {
            Ok(body) => body,
            Err(error) => return Attempt::NotSent(Lost::Connection, error),
        };
        let gate = SendGate::under(call.request.hold);
        let held = Held::of_call(&self.unsolicited.source.answers, call.request.tenant, call.request.user);
        let mut abandoned = Abandoned {
            direct: self,
            id,
            gate: &gate,
            armed: true,
        };
        // A call that was already given up is not sent, so this is checked first.
        let answered = tokio::select! {
            biased;
            lost = call.given_up() => call.give_up(lost, &gate).into(),
            answered = async {
                match self.post(body.into(), call, &gate).await {
                    Ok(response) => self.read(response, id, held).await,
                    Err(words) if gate.is_sent() => Attempt::Lost(Lost::Connection, words).into(),
                    Err(_) if !call.may_be_sent() => call.lease_lost().into(),
                    Err(words) => Attempt::NotSent(Lost::Connection, words).into(),
                }
            } => {
                abandoned.armed = matches!(answered.attempt, Attempt::Lost(..));
                answered
            }
        };
        drop(abandoned);
        self.confirmed(answered, call).await
    }

    /// Requests the list of tools, which changes nothing. Its content is ignored.
    async fn ask_for_tools(&self) -> Answered {
        let id = self.next_id();
        let mut request = self.request(reqwest::Method::POST);
        let meta = self.modern.as_deref().map(|members| members.trim_end_matches(','));
        if meta.is_some() {
            request = request.header("mcp-method", HeaderValue::from_static("tools/list"));
        }
        let meta = meta
            .map(|members| format!(r#""_meta":{{{members}}}"#))
            .unwrap_or_default();
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{{meta}}}}}"#);
        match request.body(body).send().await {
            Ok(response) => self.read(response.into(), id, self.unsolicited.source.held()).await,
            Err(error) => Attempt::Lost(Lost::Connection, why(&error)).into(),
        }
    }

    async fn post(&self, body: Bytes, call: &Outgoing<'_>, gate: &SendGate) -> Result<Response, String> {
        let modern = self.modern.as_ref().map(|_| {
            let mut headers = self.headers.clone();
            headers::add(&mut headers, call.request);
            headers
        });
        let headers = modern.as_ref().unwrap_or(&self.headers);
        if let Some((plain, target)) = &self.plain {
            let posted = plain.post(target, headers, body, gate).await;
            return posted.map_err(|error| error.to_string());
        }
        let mut request = reqwest::Request::new(reqwest::Method::POST, self.url.clone());
        request.headers_mut().clone_from(headers);
        *request.body_mut() = Some(reqwest::Body::wrap(GatedBody::new(body, gate)));
        let response = self.client.execute(request).await;
        response.map(Response::from).map_err(|error| why(&error))
    }

    fn next_id(&self) -> u32 {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        if id >= i32::MAX as u32 {
            // Ids stay positive 32-bit numbers, which every server can read.
            self.ids.store(FIRST_ID, Ordering::Relaxed);
        }
        id
    }

    fn request(&self, method: reqwest::Method) -> reqwest::RequestBuilder {
        let mut request = reqwest::Request::new(method, self.url.clone());
        request.headers_mut().clone_from(&self.headers);
        reqwest::RequestBuilder::from_parts(self.client.clone(), request)
    }

    /// The request as text. The arguments are copied unchanged.
    fn encode(&self, id: u32, call: &Outgoing<'_>) -> Result<Vec<u8>, String> {
        let arguments = call.arguments.get();
        let mut body = Vec::with_capacity(512 + arguments.len());
        let text =
            |body: &mut Vec<u8>, text: &str| serde_json::to_writer(body, text).map_err(|error| error.to_string());
        write!(
            body,
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"_meta":{{"#
        )
        .map_err(|error| error.to_string())?;
        if let Some(modern) = &self.modern {
            body.extend_from_slice(modern.as_bytes());
        }
        let mut result = Ok(());
        meta::each(call, |key, value| {
            if result.is_ok() {
                result = text(&mut body, key).and_then(|()| {
                    body.push(b':');
                    text(&mut body, value)
                });
                body.push(b',');
            }
        });
        result?;
        // The comma after the last member.
        body.pop();
        body.extend_from_slice(br#"},"name":"#);
        text(&mut body, &call.request.tool.name)?;
        body.extend_from_slice(br#","arguments":"#);
        body.extend_from_slice(arguments.as_bytes());
        body.extend_from_slice(b"}}");
        Ok(body)
    }

    /// Sends a message without waiting for an answer.
    fn aside(&self, body: String) -> impl Future<Output = ()> + Send + 'static {
        let request = self.request(reqwest::Method::POST).body(body);
        async move {
            if let Err(error) = request.send().await {
                tracing::debug!(error = why(&error), "a message outside of a call was not delivered");
            }
        }
    }
}

fn modern_meta(version: &ProtocolVersion, client_info: &Implementation) -> Result<String, String> {
    let meta =
        RequestMetaObject::with_client_context(version.clone(), client_info.clone(), ClientCapabilities::default());
    let text = serde_json::to_string(&meta).map_err(|error| error.to_string())?;
    let members = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    members
        .map(|members| format!("{members},"))
        .ok_or_else(|| "metadata is not an object".to_owned())
}

/// Notifies the server that no caller waits for the answer any more: in the session era with a notification, in the
/// stateless era with the closed connection.
struct Abandoned<'a> {
    direct: &'a Direct,
    id: u32,
    gate: &'a SendGate,
    armed: bool,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        // This also covers a dropped future of the call: a request that has not been sent yet stays unsent.
        if self.armed && self.gate.give_up() && self.direct.modern.is_none() {
            let cancelled = self.direct.aside(format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":"given up"}}}}"#,
                self.id
            ));
            self.direct.unsolicited.background.spawn(cancelled);
        }
    }
}

//! `tools/call` as one POST (see the module's front page for why).

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use rmcp::model::{ClientCapabilities, Implementation, ProtocolVersion, RequestMetaObject};
use url::Url;

use super::refusal::Answered;
use super::{IDENTITY, PLAIN, headers};
use crate::adapters::mcp::answers::Held;
use crate::adapters::mcp::attempt::{Attempt, Lost, Outgoing};
use crate::adapters::mcp::meta;
use crate::adapters::mcp::unsolicited::Unsolicited;
use crate::adapters::upstream::{Plain, Response, Taken, Watched, why};

/// rmcp counts the ids of a session from 0; ours begin here, so that no two requests share one.
const FIRST_ID: u32 = 1 << 30;

/// The direct way to a server, good for one session.
pub(crate) struct Direct {
    client: reqwest::Client,
    /// For calls to a server on this machine.
    plain: Option<(Arc<Plain>, hyper::Uri)>,
    url: Url,
    /// Of every message: the configured ones, session, version, media types.
    headers: HeaderMap,
    session: bool,
    /// The 2026-07-28 era: no session, and every request says who is asking, in these members of `_meta`; JSON text that
    /// ends with a comma.
    modern: Option<String>,
    ids: AtomicU32,
    pub(super) unsolicited: Arc<Unsolicited>,
    /// When it was made.
    pub(super) since: Instant,
    /// When, in milliseconds after that, the server has last listed its tools in between; 0: never.
    pub(super) listed_ms: AtomicU64,
}

impl Direct {
    /// `session` is the id the server gave, `headers` the configured ones.
    ///
    /// # Errors
    /// The session's id is no header.
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
        let version_header =
            HeaderValue::from_str(version.as_str()).map_err(|_| "its version is no header".to_owned())?;
        headers.insert("mcp-protocol-version", version_header);
        if let Some(session) = session {
            let mut id = HeaderValue::from_str(session).map_err(|_| "its session id is no header".to_owned())?;
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

    pub(super) fn has_session(&self) -> bool {
        self.session
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Makes the call. When the future is dropped, or the call given up, the server is told.
    pub(crate) async fn call(self: &Arc<Self>, call: &Outgoing<'_>) -> Attempt {
        let id = self.next_id();
        let body = match self.encode(id, call) {
            Ok(body) => body,
            Err(error) => return Attempt::NotSent(Lost::Connection, error),
        };
        let taken = Taken::under(call.request.hold);
        let held = Held::of_call(&self.unsolicited.source.answers, call.request.tenant, call.request.user);
        let mut abandoned = Abandoned {
            direct: self,
            id,
            taken: &taken,
            armed: true,
        };
        // What is given up is not begun, so that is asked first.
        let answered = tokio::select! {
            biased;
            lost = call.given_up() => given_up(lost, call, &taken).into(),
            answered = async {
                match self.post(body.into(), call, &taken).await {
                    Ok(response) => self.read(response, id, held).await,
                    Err(words) if taken.get() => Attempt::Lost(Lost::Connection, words).into(),
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

    /// Asks for the list of tools, which changes nothing; what is listed is not looked at.
    pub(super) async fn ask_for_tools(&self) -> Answered {
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

    async fn post(&self, body: Bytes, call: &Outgoing<'_>, taken: &Taken) -> Result<Response, String> {
        let modern = self.modern.as_ref().map(|_| {
            let mut headers = self.headers.clone();
            headers::add(&mut headers, call.request);
            headers
        });
        let headers = modern.as_ref().unwrap_or(&self.headers);
        if let Some((plain, target)) = &self.plain {
            let posted = plain.post(target, headers, body, taken).await;
            return posted.map_err(|error| error.to_string());
        }
        let mut request = reqwest::Request::new(reqwest::Method::POST, self.url.clone());
        request.headers_mut().clone_from(headers);
        *request.body_mut() = Some(reqwest::Body::wrap(Watched::new(body, taken)));
        let response = self.client.execute(request).await;
        response.map(Response::from).map_err(|error| why(&error))
    }

    fn next_id(&self) -> u32 {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        if id >= i32::MAX as u32 {
            // Ids stay positive in 32 bits, which every server can read.
            self.ids.store(FIRST_ID, Ordering::Relaxed);
        }
        id
    }

    pub(super) fn request(&self, method: reqwest::Method) -> reqwest::RequestBuilder {
        let mut request = reqwest::Request::new(method, self.url.clone());
        request.headers_mut().clone_from(&self.headers);
        reqwest::RequestBuilder::from_parts(self.client.clone(), request)
    }

    /// The request as text; arguments are copied as they are.
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

    /// Sends a message that nobody waits for.
    pub(super) fn aside(&self, body: String) -> impl Future<Output = ()> + Send + 'static {
        let request = self.request(reqwest::Method::POST).body(body);
        async move {
            if let Err(error) = request.send().await {
                tracing::debug!(error = why(&error), "a message beside a call was not delivered");
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

fn given_up(lost: Lost, call: &Outgoing<'_>, taken: &Taken) -> Attempt {
    let words = lost.words(call.request.timeout);
    if taken.give_up() {
        Attempt::Lost(lost, words)
    } else {
        Attempt::NotSent(lost, format!("{words}, before it could be sent"))
    }
}

/// Tells the server that nobody waits for the answer any more: in the session era by a
/// notification, in the stateless one the closed connection says it.
struct Abandoned<'a> {
    direct: &'a Direct,
    id: u32,
    taken: &'a Taken,
    armed: bool,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        // Also where the future of the call was dropped: what is still to be sent then is not.
        if self.armed && self.taken.give_up() && self.direct.modern.is_none() {
            let cancelled = self.direct.aside(format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":"given up"}}}}"#,
                self.id
            ));
            self.direct.unsolicited.beside.spawn(cancelled);
        }
    }
}

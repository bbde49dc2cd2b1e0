//! The HTTP client of gavel's API. Every command that has a route uses it: with `--server` for a remote gavel, else for
//! the service that the command starts for itself.
//!
//! A command names the path of its route, such as `v1/sessions/ID`, and the type of the answer, which is one of
//! [`crate::api`]. [`Events`] is the stream of a run or a session, [`Refused`] a server's refusal as text.

use std::time::{Duration, Instant};
use std::{fmt, io};

use anyhow::{Context, anyhow, bail};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use reqwest::header::{ACCEPT, HeaderValue, IF_MATCH, LOCATION, RETRY_AFTER};
use reqwest::{RequestBuilder, Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};
use tokio_util::io::StreamReader;
use url::Url;

use crate::api::Page;
use crate::api::spelling::is_camel;
use crate::app::OwnService;
use crate::cli::exit::Usage;
use crate::config::Dotenv;
use crate::domain::ids::UserId;
use crate::domain::text::capped;

/// How long a remote server may wait for a run.
const WAIT: Duration = Duration::from_secs(600);
/// How long the service of this process may: the longest run.
const OWN_WAIT: Duration = Duration::from_secs(24 * 3600);
/// What an answer may take beyond the wait. Together with [`WAIT`] it is longer than any chat deadline.
const MARGIN: Duration = Duration::from_secs(20);
const CONNECT: Duration = Duration::from_secs(5);
/// The waits before a read is repeated.
const REPEATS: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];
/// The acting user, if no token names one.
const ACTING_USER: &str = "x-gavel-user";

/// The acting user if none is named, as in the HTTP API.
const LOCAL: &str = "local";

/// What a list is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Query {
    pub(super) page_size: u32,
    pub(super) page_token: Option<String>,
    pub(super) filter: Option<String>,
    pub(super) order_by: Option<String>,
}

/// How long the server waits for the run that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    No,
    /// Until it has begun, and its events can be followed: in the process itself, or with a background worker of the
    /// server.
    Begun,
    /// As `Begun`. If the command names no user, what is created belongs to the user `local`.
    Created,
    /// Until it waits or has ended.
    Ended,
}

/// A gavel, and the user for whom the command acts.
pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    key: Option<SecretString>,
    user: Option<UserId>,
    /// Whether it is the service of this process. That has no background workers: it drives a run that a caller waits
    /// for.
    own: bool,
}

impl Client {
    /// For the server at `base`, such as `http://localhost:8080`, with the key of the environment.
    pub(super) fn new(base: &str, user: Option<UserId>) -> anyhow::Result<Self> {
        let base = Url::parse(base)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                let url = "give an http:// or https:// URL, such as http://localhost:8080";
                Usage(format!("--server {base:?}: {url}"))
            })?;
        Ok(Self {
            http: http().build()?,
            base,
            key: key()?,
            user,
            own: false,
        })
    }

    /// For the service of this process.
    pub(super) fn of_own(service: &OwnService, user: Option<UserId>) -> anyhow::Result<Self> {
        Ok(Self {
            // A proxy for outgoing requests must not get those to this process, with their key. There is no TLS, so no
            // certificates, which take longer to load than a command takes.
            http: http().no_proxy().tls_certs_only([]).build()?,
            base: Url::parse(&service.url())?,
            key: Some(service.key().clone()),
            user,
            own: true,
        })
    }

    /// Gets the JSON under a path. A read may be repeated: after a broken connection, and when the server asks for it.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.get_with(path, &[]).await
    }

    /// As [`Client::get`], with a query.
    pub(super) async fn get_with<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> anyhow::Result<T> {
        let url = self.url(path, query);
        let mut repeats = REPEATS.iter();
        loop {
            let answer = self.json(self.http.get(url.clone())).await;
            match (answer, repeats.next()) {
                (Err(error), Some(pause)) if is_passing(&error) => tokio::time::sleep(*pause).await,
                (answer, _) => return answer,
            }
        }
    }

    /// A page of the list under a path, as the API answers it: a `P`.
    pub(super) async fn page<P: DeserializeOwned, T>(&self, path: &str, query: &Query) -> anyhow::Result<Page<T>>
    where
        Page<T>: From<P>,
    {
        let [size, order, token] = match is_camel(path) {
            true => ["pageSize", "orderBy", "pageToken"],
            false => ["page_size", "order_by", "page_token"],
        };
        let parameters = parameters([
            (size, Some(query.page_size.to_string())),
            ("filter", query.filter.clone()),
            (order, query.order_by.clone()),
            (token, query.page_token.clone()),
        ]);
        self.get_with::<P>(path, &parameters).await.map(Page::from)
    }

    /// All objects of the list under a path, page by page.
    pub(super) async fn all<P: DeserializeOwned, T>(&self, path: &str, mut query: Query) -> anyhow::Result<Vec<T>>
    where
        Page<T>: From<P>,
    {
        let mut all = Vec::new();
        loop {
            let page = self.page::<P, T>(path, &query).await?;
            all.extend(page.items);
            query.page_token = page.next_page_token;
            if query.page_token.is_none() {
                return Ok(all);
            }
        }
    }

    /// Posts `body` and returns the JSON answer, after the server has waited.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
        wait: Wait,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let prefer = match wait {
            Wait::Begun | Wait::Created if self.own => "wait=0".to_owned(),
            Wait::No | Wait::Begun | Wait::Created => "respond-async".to_owned(),
            Wait::Ended => format!("wait={}", self.wait().as_secs()),
        };
        let mut request = self
            .http
            .post(self.url(path, query))
            .json(body)
            .header("prefer", prefer);
        if wait == Wait::Created && self.own && self.user.is_none() {
            request = request.header(ACTING_USER, LOCAL);
        }
        self.json(request).await
    }

    /// Replaces version `version` of what is under a path.
    pub(super) async fn put<T: DeserializeOwned>(&self, path: &str, version: u32, body: &Value) -> anyhow::Result<T> {
        let request = self.http.put(self.url(path, &[])).json(body);
        self.json(request.header(IF_MATCH, format!("\"{version}\""))).await
    }

    /// Deletes the resource under a path.
    pub(super) async fn delete(&self, path: &str) -> anyhow::Result<()> {
        let whole = self.whole(self.http.delete(self.url(path, &[]))).await?;
        match whole.status.is_success() {
            true => Ok(()),
            false => Err(self.refused(whole)),
        }
    }

    /// The events under a path, from the first.
    pub(super) fn events(&self, path: String) -> Events<'_> {
        Events {
            client: self,
            path,
            after: None,
            lines: None,
            lost: None,
            pause: PAUSES[0],
        }
    }

    /// Requests a decision, and returns its body.
    ///
    /// # Errors
    /// There is none; the error has the problem document's own text.
    pub(super) async fn decide(&self, body: &Value) -> anyhow::Result<Value> {
        let whole = self.whole(self.http.post(self.url("v1/chat", &[])).json(body)).await?;
        // The answer has a decision whatever its status (429, 503).
        match serde_json::from_str::<Value>(&whole.text) {
            Ok(body) if body.get("decision_type").is_some() => Ok(body),
            // A message that is rejected is no invalid usage of the command.
            _ => Err(anyhow!("{:#}", self.refused(whole))),
        }
    }

    /// Any request for a user. Returns the status, and the JSON of the body, if there is one.
    pub(super) async fn any(&self, request: gavel_eval::Request<'_>) -> anyhow::Result<(u16, Value)> {
        let mut sent = self
            .http
            .request(request.method.parse()?, self.base.join(&request.path)?);
        sent = sent.header(ACTING_USER, request.user);
        if let Some((name, value)) = &request.header {
            sent = sent.header(*name, value);
        }
        if let Some(body) = &request.body {
            sent = sent.json(body);
        }
        let whole = self.whole(sent).await?;
        let body = match whole.text.as_str() {
            "" => Value::Null,
            text => serde_json::from_str(text).with_context(|| format!("{} answered no JSON", whole.url))?,
        };
        Ok((whole.status.as_u16(), body))
    }

    /// An answer of any length, for its reader to take piece by piece.
    pub(super) async fn download(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<Response> {
        let response = self.send(self.http.get(self.url(path, query))).await?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(self.refused(Whole::read(response).await?)),
        }
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> anyhow::Result<T> {
        let whole = self.whole(request).await?;
        if !whole.status.is_success() {
            return Err(self.refused(whole));
        }
        serde_json::from_str(&whole.text).map_err(|error| match error.is_data() {
            true => {
                anyhow::Error::new(error).context(format!("{} gave another answer than this gavel reads", whole.url))
            }
            false => anyhow!(
                "{} answered {} without JSON; check that --server names a gavel",
                whole.url,
                whole.status
            ),
        })
    }

    async fn whole(&self, request: RequestBuilder) -> anyhow::Result<Whole> {
        Whole::read(self.send(request.timeout(self.wait() + MARGIN)).await?).await
    }

    async fn send(&self, mut request: RequestBuilder) -> anyhow::Result<Response> {
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.expose_secret());
        }
        if let Some(user) = &self.user {
            let value = HeaderValue::from_bytes(user.as_str().as_bytes());
            let value = value.context("--user contains a character that a header must not contain")?;
            request = request.header(ACTING_USER, value);
        }
        let sent = request.send().await;
        let response = sent
            .map_err(reqwest::Error::without_url)
            .with_context(|| format!("{self} does not answer"))?;
        if response.status().is_redirection() {
            let to = response.headers().get(LOCATION);
            let to = to.map_or_else(|| "no address".into(), |to| String::from_utf8_lossy(to.as_bytes()));
            let words = format!(
                "{self} answered {} and redirects to {:?}. Redirects are not followed, since the message and the key \
                 would go there. If you mean that server, give it to --server",
                response.status(),
                capped(&to, 500)
            );
            return Err(Refused {
                status: response.status(),
                code: None,
                words,
            }
            .into());
        }
        Ok(response)
    }

    /// How long the server may wait for a run.
    fn wait(&self) -> Duration {
        if self.own { OWN_WAIT } else { WAIT }
    }

    fn url(&self, path: &str, query: &[(&str, String)]) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}/{path}", self.base.path().trim_end_matches('/')));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    fn refused(&self, answer: Whole) -> anyhow::Error {
        answer.refused(&self.to_string(), self.key.is_some())
    }
}

/// The parameters that are given.
pub(super) fn parameters<const N: usize>(all: [(&'static str, Option<String>); N]) -> Vec<(&'static str, String)> {
    all.into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// A name as one segment of a path: the name of a project may have a `/`.
pub(super) fn segment(name: &str) -> PercentEncode<'_> {
    const NOT_PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
    utf8_percent_encode(name, NOT_PLAIN)
}

/// The server's URL as the user named it.
impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.base.as_str().trim_end_matches('/'))
    }
}

/// A stream of events may last longer than any answer may take, so each request sets its own limit. Redirects are
/// refused: the message and the key would go to a server that the user did not name.
fn http() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .redirect(reqwest::redirect::Policy::none())
}

/// `None` for what does not exist, or is hidden from the caller.
pub(super) fn seen<T>(answer: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match answer {
        Ok(seen) => Ok(Some(seen)),
        Err(error) if Refused::in_error(&error).is_some_and(|refused| matches!(refused.status.as_u16(), 403 | 404)) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether the same read may succeed a moment later. A server that cannot be reached at all is reported at once.
fn is_passing(error: &anyhow::Error) -> bool {
    if let Some(refused) = error.downcast_ref::<Refused>() {
        return refused.status == StatusCode::SERVICE_UNAVAILABLE;
    }
    let sent = error.chain().find_map(|cause| cause.downcast_ref::<reqwest::Error>());
    sent.is_some_and(|error| error.is_request() && !error.is_connect() && !error.is_timeout())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_its_url() {
        // Another test may already have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        for base in ["http://h:1/gavel/", "http://h:1/gavel"] {
            let client = Client::new(base, None).unwrap();
            assert_eq!(client.to_string(), "http://h:1/gavel");
            assert_eq!(client.url("a/b c?d", &[]).as_str(), "http://h:1/gavel/a/b%20c%3Fd");
            let named = client.url(&format!("a/{}/b", segment("my-team/ä%")), &[]);
            assert_eq!(named.as_str(), "http://h:1/gavel/a/my-team%2F%C3%A4%25/b");
        }
        for invalid in ["localhost:8080", "", "ftp://h", "http://"] {
            assert!(Client::new(invalid, None).is_err(), "{invalid}");
        }
    }
}

/// The variable with the key or token to send; `…_FILE` names a file that holds it.
const KEY: &str = "GAVEL_API_KEY";

/// The key of the environment, or else of `.env`.
fn key() -> anyhow::Result<Option<SecretString>> {
    match key_of(&|name| std::env::var(name).ok())? {
        Some(key) => Ok(Some(key)),
        None => {
            let dotenv = Dotenv::read()?;
            key_of(&|name| dotenv.variable(name))
        }
    }
}

fn key_of(variable: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Option<SecretString>> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let by_file = format!("{KEY}_FILE");
    match (set(KEY), set(&by_file)) {
        (Some(_), Some(_)) => bail!("{KEY} and {by_file} are both given; keep one of the two"),
        (Some(key), None) => Ok(Some(SecretString::from(key))),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(&path).with_context(|| format!("{by_file}: {path} cannot be read"))?;
            Ok(Some(SecretString::from(text.trim_end())))
        }
        (None, None) => Ok(None),
    }
}

/// Most bytes of an answer. A page of runs with all their messages is about a hundredth of that.
const MOST_BYTES: usize = 64 << 20;

/// The server's own explanation why it refused.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub(super) struct Refused {
    pub(crate) status: StatusCode,
    /// `code` of the problem document, if the answer is one.
    code: Option<String>,
    words: String,
}

impl Refused {
    /// The refusal that an error is, if it is one.
    pub(crate) fn in_error(error: &anyhow::Error) -> Option<&Self> {
        error.downcast_ref()
    }

    /// Is the error a refusal with this code?
    pub(crate) fn has_code(error: &anyhow::Error, code: &str) -> bool {
        Self::in_error(error).is_some_and(|refused| refused.code.as_deref() == Some(code))
    }

    /// Is the request itself invalid, whatever the state of the server?
    pub(crate) fn is_invalid_request(error: &anyhow::Error) -> bool {
        Self::has_code(error, "invalid_request") || Self::has_code(error, "not_grantable")
    }
}

/// A complete answer.
struct Whole {
    status: StatusCode,
    url: Url,
    /// Seconds, from the `retry-after` header.
    retry_after: Option<u64>,
    text: String,
}

impl Whole {
    async fn read(mut response: Response) -> anyhow::Result<Self> {
        let (status, url) = (response.status(), response.url().clone());
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        let mut bytes = Vec::new();
        loop {
            let piece = response.chunk().await.map_err(reqwest::Error::without_url);
            let Some(piece) = piece.with_context(|| format!("the answer of {url} was cut off"))? else {
                break;
            };
            if bytes.len() + piece.len() > MOST_BYTES {
                bail!(
                    "the answer of {url} has more than {} MiB and was not read completely",
                    MOST_BYTES >> 20
                );
            }
            bytes.extend_from_slice(&piece);
        }
        let text = String::from_utf8(bytes).with_context(|| format!("the answer of {url} is not UTF-8 text"))?;
        Ok(Self {
            status,
            url,
            retry_after,
            text,
        })
    }

    /// The refusal of `server`, with what a user of the command line can do about it.
    fn refused(self, server: &str, with_key: bool) -> anyhow::Error {
        let Self { status, url, .. } = self;
        let body: Option<Value> = serde_json::from_str(&self.text).ok();
        let Some((mut words, code)) = body.as_ref().and_then(problem) else {
            let what = match body {
                Some(_) => "",
                None => " without JSON; check that --server names a gavel",
            };
            return anyhow!("{url} answered {status}{what}");
        };
        if status == StatusCode::UNAUTHORIZED {
            words.push_str(&match with_key {
                true => format!("\n  {KEY} (or {KEY}_FILE) does not hold a valid key or token of {server}"),
                false => format!("\n  give a key or token of {server} in {KEY}, or the path of its file in {KEY}_FILE"),
            });
        }
        if words.contains("X-Gavel-User") {
            words.push_str(match code.as_deref() {
                Some("user_mismatch") => "\n  a command sends it with --user: leave that out",
                _ => "\n  a command sends it with --user NAME",
            });
        }
        if let Some(seconds) = self.retry_after {
            words.push_str(&format!("\n  try again in {seconds} s"));
        }
        Refused { status, code, words }.into()
    }
}

/// An RFC 9457 document as text, and its code.
fn problem(body: &Value) -> Option<(String, Option<String>)> {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
    let mut words = text(body, "detail").or_else(|| text(body, "title"))?;
    for error in body.get("errors").and_then(Value::as_array).into_iter().flatten() {
        if let (Some(pointer), Some(detail)) = (text(error, "pointer"), text(error, "detail")) {
            words.push_str(&format!("\n  {pointer}: {detail}"));
        }
    }
    Some((words, text(body, "code")))
}

#[cfg(test)]
mod refused_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_problem_is_shown_with_every_field() {
        let body = json!({"title": "t", "detail": "the request is not valid", "errors": [{"pointer": "/message", "detail": "must not be empty"}]});
        assert_eq!(
            problem(&body).unwrap(),
            (
                "the request is not valid\n  /message: must not be empty".to_owned(),
                None
            )
        );
        assert!(problem(&json!({"status": 404})).is_none());
    }

    #[test]
    fn a_refusal_says_when_to_try_again() {
        let refused = |retry_after| {
            let answer = Whole {
                status: StatusCode::TOO_MANY_REQUESTS,
                url: "http://h:1".parse().unwrap(),
                retry_after,
                text: json!({"detail": "Over the quota.", "code": "rate_limited"}).to_string(),
            };
            answer.refused("http://h:1", false).to_string()
        };
        assert_eq!(refused(Some(7)), "Over the quota.\n  try again in 7 s");
        assert_eq!(refused(None), "Over the quota.");
    }
}

/// A connection that delivers no event and no heartbeat for this long counts as dead. The server sends a heartbeat
/// every 10 s.
const SILENCE: Duration = Duration::from_secs(45);
/// The longest line, in bytes. An event has the result of one tool call at most.
const MOST_LINE: usize = 32 << 20;
/// Waits between two attempts to reconnect: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];
/// How long an unavailable server is retried.
const PATIENCE: Duration = Duration::from_secs(120);

/// The next input.
pub(super) enum Received {
    Event(Value),
    /// The connection is lost; the stream will reconnect.
    Lost(String),
}

/// The stream.
pub(super) struct Events<'a> {
    client: &'a Client,
    path: String,
    /// The id of the last event.
    after: Option<String>,
    /// The lines of the connection, if there is one.
    lines: Option<BoxStream<'static, Result<String, LinesCodecError>>>,
    /// When the connection was lost.
    lost: Option<Instant>,
    pause: Duration,
}

impl Events<'_> {
    /// Returns the next event. The last has the type `end`, or `result`; do not call this after it. Cancel safe: dropping the future
    /// loses no event.
    ///
    /// # Errors
    /// There are no more events.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Received> {
        match self.event().await {
            Ok(event) => Ok(Received::Event(event)),
            Err(Break::Final(error)) => Err(error),
            Err(Break::Lost(error)) => {
                let reason = format!("{error:#}");
                self.lines = None;
                let since = *self.lost.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    return Err(error).context("the server is unavailable");
                }
                Ok(Received::Lost(reason))
            }
        }
    }

    async fn event(&mut self) -> Result<Value, Break> {
        loop {
            let Some(lines) = &mut self.lines else {
                self.join().await?;
                continue;
            };
            let line = tokio::time::timeout(SILENCE, lines.next()).await;
            let line = match line
                .context("the server sends nothing")?
                .context("the server ended the stream")?
            {
                Err(LinesCodecError::MaxLineLengthExceeded) => {
                    let words = format!("the server sent a line of more than {} MiB", MOST_LINE >> 20);
                    return Err(Break::Final(anyhow!(words)));
                }
                line => line.context("the stream was cut off")?,
            };
            if let Some(event) = self.read(&line)? {
                return Ok(event);
            }
        }
    }

    async fn join(&mut self) -> Result<(), Break> {
        if self.lost.is_some() {
            tokio::time::sleep(self.pause).await;
            self.pause = (self.pause * 2).min(PAUSES[1]);
        }
        match self.connect().await {
            Ok(response) => {
                let bytes = response.bytes_stream();
                let bytes = bytes.map_err(|error| io::Error::other(error.without_url()));
                let codec = LinesCodec::new_with_max_length(MOST_LINE);
                self.lines = Some(FramedRead::new(StreamReader::new(bytes), codec).boxed());
                Ok(())
            }
            // The server's refusal of the request is final; unavailability or overload is not.
            Err(error) if is_final(&error) => Err(Break::Final(error)),
            Err(error) => Err(Break::Lost(error)),
        }
    }

    /// A stream of JSON lines, starting after the last event.
    async fn connect(&self) -> anyhow::Result<Response> {
        let request = self.client.http.get(self.client.url(&self.path, &[]));
        let mut request = request.header(ACCEPT, "application/x-ndjson");
        if let Some(after) = &self.after {
            request = request.header("last-event-id", after);
        }
        let response = self.client.send(request).await?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(self.client.refused(Whole::read(response).await?)),
        }
    }

    /// The event of a line; `None` for a heartbeat.
    fn read(&mut self, line: &str) -> Result<Option<Value>, Break> {
        let event: Value = serde_json::from_str(line).context("the stream has a line that is not JSON")?;
        let kind = event["type"].as_str();
        if kind != Some("error") {
            (self.lost, self.pause) = (None, PAUSES[0]);
        }
        match kind {
            Some("heartbeat") => Ok(None),
            Some("error") => {
                let words = problem(&event["problem"]).map(|(words, _)| words);
                Err(anyhow::anyhow!(words.unwrap_or_else(|| "the server gave up".to_owned())).into())
            }
            _ => {
                self.after = event["id"].as_str().map(str::to_owned).or_else(|| self.after.take());
                Ok(Some(event))
            }
        }
    }
}

/// Why there is no event.
enum Break {
    /// A new attempt may succeed.
    Lost(anyhow::Error),
    Final(anyhow::Error),
}

impl From<anyhow::Error> for Break {
    fn from(error: anyhow::Error) -> Self {
        Self::Lost(error)
    }
}

fn is_final(error: &anyhow::Error) -> bool {
    Refused::in_error(error).is_some_and(|refused| {
        let status = refused.status;
        status.is_redirection() || (status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS)
    })
}

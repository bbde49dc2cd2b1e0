//! HTTP client for a remote gavel.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use reqwest::header::{ACCEPT, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{RequestBuilder, Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

use super::exit::Usage;
use crate::config::Dotenv;
use crate::domain::ids::UserId;
use crate::domain::text::capped;

/// Longer than any chat deadline.
const TIMEOUT: Duration = Duration::from_secs(620);
/// How long the server may wait for a run.
const WAIT: Duration = Duration::from_secs(600);
const CONNECT: Duration = Duration::from_secs(5);
/// Most bytes of an answer. A page of runs with all their messages is about a hundredth of that.
const MOST_BYTES: usize = 64 << 20;
/// The variable with the key or token to send; `…_FILE` names a file that holds it.
pub(super) const KEY: &str = "GAVEL_API_KEY";
/// The acting user, if no token names one (DESIGN.md section 9, Callers).
const ACTING_USER: &str = "x-gavel-user";

/// A remote gavel.
pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    key: Option<SecretString>,
}

/// The server's own explanation why it refused.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    /// `code` of the problem document, if the answer is one.
    pub(super) code: Option<String>,
    words: String,
}

impl Client {
    /// For the server at `base`, such as `http://localhost:8080`.
    pub(super) fn new(base: &str) -> anyhow::Result<Self> {
        let base = Url::parse(base)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                let url = "give an http:// or https:// URL, such as http://localhost:8080";
                Usage(format!("--server {base:?}: {url}"))
            })?;
        // A stream of events may last longer than any answer may take, so each request sets its own limit. Redirects
        // are refused (`send`): the message and the key would go to a server that the user did not name.
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self {
            http,
            base,
            key: key()?,
        })
    }

    /// Returns the decision's body; the error has the problem document's own text.
    pub(super) async fn decide(&self, body: &Value) -> anyhow::Result<String> {
        let url = self.url(&["v1", "chat"]);
        let response = self
            .send(self.http.post(url.clone()).json(body).timeout(TIMEOUT))
            .await?;
        let whole = whole(response).await?;
        let status = whole.status;
        // The answer has a decision whatever its status (429, 503).
        match serde_json::from_str::<Value>(&whole.text) {
            // JSON may have carriage returns between values, which must not reach the output.
            Ok(body) if body.get("decision_type").is_some() => Ok(match whole.text.contains('\r') {
                true => body.to_string(),
                false => whole.text,
            }),
            Ok(body) if status.is_success() => Err(problem(&body).map_or_else(
                || anyhow!("{url} answered {status} without a decision"),
                |(words, _)| anyhow!(words),
            )),
            _ => Err(self.refused(&url, whole)),
        }
    }

    /// Gets the JSON under a path.
    pub(super) async fn get(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        user: Option<&UserId>,
    ) -> anyhow::Result<Value> {
        let request = self.http.get(with(self.url(path), query));
        self.json(acting(request, user)?).await
    }

    /// Posts `body` and returns the JSON answer. Does not wait for long work (`respond-async`).
    pub(super) async fn post(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        user: Option<&UserId>,
        body: &Value,
    ) -> anyhow::Result<Value> {
        let request = self.http.post(with(self.url(path), query)).json(body);
        self.json(acting(request, user)?.header("prefer", "respond-async"))
            .await
    }

    /// Like [`Client::post`], but waits for the result.
    pub(super) async fn post_and_wait(
        &self,
        path: &[&str],
        user: Option<&UserId>,
        body: &Value,
    ) -> anyhow::Result<Value> {
        let request = self.http.post(self.url(path)).json(body);
        let wait = format!("wait={}", WAIT.as_secs());
        self.json(acting(request, user)?.header("prefer", wait)).await
    }

    /// Deletes the resource under a path.
    pub(super) async fn delete(&self, path: &[&str], user: Option<&UserId>) -> anyhow::Result<()> {
        let url = self.url(path);
        let request = acting(self.http.delete(url.clone()), user)?.timeout(TIMEOUT);
        let answer = whole(self.send(request).await?).await?;
        match answer.status.is_success() {
            true => Ok(()),
            false => Err(self.refused(&url, answer)),
        }
    }

    /// A stream of JSON lines under a path, starting after the event with the id `after`.
    pub(super) async fn lines(
        &self,
        path: &[&str],
        user: Option<&UserId>,
        after: Option<&str>,
    ) -> anyhow::Result<Response> {
        let url = self.url(path);
        let mut request = acting(self.http.get(url.clone()), user)?.header(ACCEPT, "application/x-ndjson");
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let response = self.send(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refused(&url, whole(response).await?))
    }

    async fn json(&self, request: RequestBuilder) -> anyhow::Result<Value> {
        let response = self.send(request.timeout(TIMEOUT)).await?;
        let url = response.url().clone();
        let whole = whole(response).await?;
        if !whole.status.is_success() {
            return Err(self.refused(&url, whole));
        }
        match serde_json::from_str(&whole.text) {
            Ok(body) => Ok(body),
            Err(_) => bail!(
                "{url} answered {} without JSON; check that --server names a gavel",
                whole.status
            ),
        }
    }

    async fn send(&self, mut request: RequestBuilder) -> anyhow::Result<Response> {
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.expose_secret());
        }
        let sent = request.send().await;
        let response = sent
            .map_err(reqwest::Error::without_url)
            .with_context(|| format!("{self} does not answer"))?;
        if response.status().is_redirection() {
            let to = response
                .headers()
                .get(LOCATION)
                .map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned());
            let words = format!(
                "{self} answered {} and redirects to {}. Redirects are not followed, since the message and the key would go \
                 there. If you mean that server, give it to --server",
                response.status(),
                to.map_or_else(|| "no address".to_owned(), |to| format!("{:?}", capped(&to, 500)))
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

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    fn refused(&self, url: &Url, answer: Whole) -> anyhow::Error {
        let status = answer.status;
        let body: Option<Value> = serde_json::from_str(&answer.text).ok();
        let Some((mut words, code)) = body.as_ref().and_then(problem) else {
            let what = if body.is_some() {
                ""
            } else {
                " without JSON; check that --server names a gavel"
            };
            return anyhow!("{url} answered {status}{what}");
        };
        if status == StatusCode::UNAUTHORIZED {
            words.push_str(&match self.key {
                Some(_) => format!("\n  {KEY} (or {KEY}_FILE) does not hold a valid key or token of {self}"),
                None => format!("\n  give a key or token of {self} in {KEY}, or the path of its file in {KEY}_FILE"),
            });
        }
        if words.contains("X-Gavel-User") {
            words.push_str("\n  a command sends it with --user NAME");
        }
        if let Some(seconds) = answer.retry_after {
            words.push_str(&format!("\n  try again in {seconds} s"));
        }
        Refused { status, code, words }.into()
    }
}

/// The server's URL as the user named it.
impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.base.as_str().trim_end_matches('/'))
    }
}

fn with(mut url: Url, query: &[(&str, &str)]) -> Url {
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

fn acting(request: RequestBuilder, user: Option<&UserId>) -> anyhow::Result<RequestBuilder> {
    let Some(user) = user else { return Ok(request) };
    let value = HeaderValue::from_bytes(user.as_str().as_bytes());
    Ok(request.header(
        ACTING_USER,
        value.context("--user contains a character that a header must not contain")?,
    ))
}

/// A complete answer.
struct Whole {
    status: StatusCode,
    /// Seconds, from the `retry-after` header.
    retry_after: Option<u64>,
    text: String,
}

async fn whole(mut response: Response) -> anyhow::Result<Whole> {
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
    Ok(Whole {
        status,
        retry_after,
        text,
    })
}

/// An RFC 9457 document as text, and its code.
pub(super) fn problem(body: &Value) -> Option<(String, Option<String>)> {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
    let mut words = text(body, "detail").or_else(|| text(body, "title"))?;
    for error in body.get("errors").and_then(Value::as_array).into_iter().flatten() {
        if let (Some(pointer), Some(detail)) = (text(error, "pointer"), text(error, "detail")) {
            words.push_str(&format!("\n  {pointer}: {detail}"));
        }
    }
    Some((words, text(body, "code")))
}

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_problem_is_told_with_every_field() {
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
        // Another test may already have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let refused = |retry_after| {
            let answer = Whole {
                status: StatusCode::TOO_MANY_REQUESTS,
                retry_after,
                text: json!({"detail": "Over the quota.", "code": "rate_limited"}).to_string(),
            };
            let client = Client::new("http://h:1").unwrap();
            client.refused(&client.url(&[]), answer).to_string()
        };
        assert_eq!(refused(Some(7)), "Over the quota.\n  try again in 7 s");
        assert_eq!(refused(None), "Over the quota.");
    }

    #[test]
    fn a_server_is_named_by_its_url() {
        // Another test may already have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        for base in ["http://h:1/gavel/", "http://h:1/gavel"] {
            let client = Client::new(base).unwrap();
            assert_eq!(client.to_string(), "http://h:1/gavel");
            assert_eq!(client.url(&["a", "b c/d"]).as_str(), "http://h:1/gavel/a/b%20c%2Fd");
        }
        for wrong in ["localhost:8080", "", "ftp://h", "http://"] {
            assert!(Client::new(wrong).is_err(), "{wrong}");
        }
    }
}

//! The HTTP client of gavel's API. Every command that has a route uses it: with `--server` for a remote gavel, else for
//! the service that the command starts for itself.
//!
//! `routes` has a function for each route, `plans` those of planning sessions, `events` the stream of a run or a session,
//! `refused` a server's refusal as text. What is sent and answered are the types of [`crate::api`].

mod events;
mod key;
mod plans;
pub(super) mod refused;
mod routes;

use std::fmt;
use std::time::Duration;

use anyhow::{Context, anyhow};
use reqwest::header::{ACCEPT, HeaderValue, LOCATION};
use reqwest::{RequestBuilder, Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

pub(super) use self::events::Received;
pub(super) use self::refused::Refused;
use self::refused::Whole;
pub(super) use self::routes::{NewRun, Query};
use super::exit::Usage;
use crate::app::OwnService;
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
            key: key::key()?,
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
    async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &[(&str, String)]) -> anyhow::Result<T> {
        let url = with(self.url(path), query);
        let mut repeats = REPEATS.iter();
        loop {
            let answer = self.json(self.http.get(url.clone())).await;
            match (answer, repeats.next()) {
                (Err(error), Some(pause)) if is_passing(&error) => tokio::time::sleep(*pause).await,
                (answer, _) => return answer,
            }
        }
    }

    /// Posts `body` and returns the JSON answer, after the server has waited as `prefer` says.
    async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        prefer: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let request = self.http.post(with(self.url(path), query)).json(body);
        self.json(request.header("prefer", prefer)).await
    }

    /// Deletes the resource under a path.
    async fn delete(&self, path: &[&str]) -> anyhow::Result<()> {
        let whole = self.whole(self.http.delete(self.url(path))).await?;
        match whole.status.is_success() {
            true => Ok(()),
            false => Err(self.refused(whole)),
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

    /// A stream of JSON lines under a path, starting after the event with the id `after`.
    async fn lines(&self, path: &[&str], after: Option<&str>) -> anyhow::Result<Response> {
        let mut request = self.http.get(self.url(path)).header(ACCEPT, "application/x-ndjson");
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let response = self.send(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refused(Whole::read(response).await?))
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
            return Err(Refused::of(response.status(), words).into());
        }
        Ok(response)
    }

    /// How long the server may wait for a run.
    fn wait(&self) -> Duration {
        if self.own { OWN_WAIT } else { WAIT }
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    fn refused(&self, answer: Whole) -> anyhow::Error {
        answer.refused(&self.to_string(), self.key.is_some())
    }
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

fn with(mut url: Url, query: &[(&str, String)]) -> Url {
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
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
            assert_eq!(client.url(&["a", "b c/d"]).as_str(), "http://h:1/gavel/a/b%20c%2Fd");
        }
        for invalid in ["localhost:8080", "", "ftp://h", "http://"] {
            assert!(Client::new(invalid, None).is_err(), "{invalid}");
        }
    }
}

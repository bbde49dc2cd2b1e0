//! GitHub's REST API: which requests are repeated, what is waited for, and whose turn it is to change something.

mod cache;
pub(crate) mod refusal;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use gavel_mcp_base::ToolError;
use reqwest::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, LINK, LOCATION};
use reqwest::{Method, Request};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use self::cache::Cache;
use self::refusal::refusal;
pub(crate) use self::writes::Turn;
use self::writes::wait_until;
use crate::auth::Tokens;
use crate::error::{Code, unavailable};
use crate::settings::{Git, Settings};
pub(crate) use gavel_mcp_base::http::{Http, Lost, Reply, Retries, at};

/// The most attempts of a read that fails.
pub(crate) const ATTEMPTS: u32 = 3;
/// The most redirects of a read.
const REDIRECTS: usize = 3;
/// A rate limit that ends at once is still waited for, so that it cannot make a busy loop.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// A client for GitHub.
#[derive(Debug)]
pub(crate) struct GitHub {
    http: Http,
    pub(crate) tokens: Tokens,
    api: Url,
    /// How git is configured in containers, if there is a container engine.
    pub(crate) git: Option<Git>,
    cache: Cache,
    /// When the last request with an effect ended.
    writes: tokio::sync::Mutex<Option<Instant>>,
}

impl GitHub {
    pub(crate) fn new(settings: Settings) -> anyhow::Result<Self> {
        let Settings {
            credentials,
            api,
            git,
            timeout: _,
        } = settings;
        let http = connections()?;
        Ok(Self {
            tokens: Tokens::new(credentials, http.clone(), api.clone())?,
            http,
            api,
            git,
            cache: Cache::default(),
            writes: tokio::sync::Mutex::default(),
        })
    }

    /// An address of the API.
    pub(crate) fn url(&self, segments: &[&str]) -> Url {
        at(&self.api, segments)
    }

    /// Reads one object; `what` is its name in errors.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        url: &Url,
        deadline: Instant,
        what: &str,
    ) -> Result<T, ToolError> {
        let reply = self.read(url, deadline).await?;
        accepted(&reply, what)
    }

    /// Reads one object that may not exist.
    pub(crate) async fn find<T: DeserializeOwned>(
        &self,
        url: &Url,
        deadline: Instant,
        what: &str,
    ) -> Result<Option<T>, ToolError> {
        let reply = self.read(url, deadline).await?;
        match reply.status.as_u16() {
            404 | 410 => Ok(None),
            _ => accepted(&reply, what).map(Some),
        }
    }

    /// Sends a GET and follows redirects. Returns the answer, whatever its status is, unless it says nothing about what
    /// was asked.
    pub(crate) async fn read(&self, url: &Url, deadline: Instant) -> Result<Arc<Reply>, ToolError> {
        let mut url = url.clone();
        for _ in 0..=REDIRECTS {
            let reply = self.fetch(&url, deadline).await?;
            let Some(target) = redirect(&reply, &url) else {
                return Ok(reply);
            };
            self.guard(&target)?;
            url = target;
        }
        Err(unusable("GitHub redirects this request too often."))
    }

    /// Rejects an address to which the credentials must not be sent.
    fn guard(&self, url: &Url) -> Result<(), ToolError> {
        match is_same_host(url, &self.api) {
            true => Ok(()),
            false => Err(unusable("GitHub refers to another host, which is not followed.")),
        }
    }

    /// Sends a GET until it is answered. Faults are repeated a few times, rate limits are waited for.
    async fn fetch(&self, url: &Url, deadline: Instant) -> Result<Arc<Reply>, ToolError> {
        let kept = self.cache.get(url);
        let mut access = self.tokens.access(deadline).await?;
        let (mut retries, mut renewed) = (Retries::new(ATTEMPTS, deadline), false);
        loop {
            let mut request = new_request(Method::GET, url.clone(), None);
            if let Some(tag) = kept.as_ref().and_then(|kept| kept.headers.get(ETAG)) {
                request.headers_mut().insert(IF_NONE_MATCH, tag.clone());
            }
            access.authorize(&mut request);
            let reply = match self.http.send(request, deadline).await {
                Ok(reply) => Some(reply),
                Err(Lost::NotSent | Lost::Unknown) => None,
                Err(Lost::TooLarge) => {
                    return Err(ToolError::new(
                        Code::TooLarge,
                        "GitHub's answer is larger than this server reads.",
                    ));
                }
            };
            let limit = reply.as_ref().and_then(rate_limit);
            match reply {
                Some(reply) if reply.status == 304 && kept.is_some() => return kept.ok_or_else(unavailable),
                Some(reply) if reply.status == 401 && !renewed => {
                    renewed = true;
                    match self.tokens.renewed(&access, deadline).await? {
                        Some(other) => access = other,
                        None => return Ok(Arc::new(reply)),
                    }
                }
                Some(reply) if limit.is_none() && !is_transient(&reply) => {
                    let reply = Arc::new(reply);
                    self.cache.keep(url, &reply);
                    return Ok(reply);
                }
                reply => match limit {
                    Some(limit) => wait_until(Instant::now() + limit.max(LEAST_WAIT), deadline, limit).await?,
                    None if retries.again(reply.as_ref()).await => {}
                    None => return Err(unavailable()),
                },
            }
        }
    }
}

/// A failure that may not occur for a later read. Other failures of GitHub's are reported as they are.
fn is_transient(reply: &Reply) -> bool {
    matches!(reply.status.as_u16(), 502..=504)
}

/// The object of a successful answer. An answer that cannot be parsed counts as missing.
fn accepted<T: DeserializeOwned>(reply: &Reply, what: &str) -> Result<T, ToolError> {
    match reply.status.is_success() {
        true => reply.json().ok_or_else(unavailable),
        false => Err(refusal(reply, what)),
    }
}

fn unusable(words: &str) -> ToolError {
    ToolError::new(Code::Unavailable, words)
}

/// The version of the REST API that this server is written for.
const API_VERSION: &str = "2022-11-28";
/// How long a connection may be silent, so that a call's time suffices for a second attempt.
const SILENCE: Duration = Duration::from_secs(10);
/// Larger than any expected answer, in bytes: a tree of 100,000 entries.
const MAX_ANSWER: usize = 32 << 20;

/// The connections to GitHub.
fn connections() -> anyhow::Result<Http> {
    let agent = concat!("gavel-mcp-github/", env!("CARGO_PKG_VERSION"));
    Http::new("GitHub", agent, MAX_ANSWER, Some(SILENCE))
}

/// A request without credentials, with a body in JSON.
pub(crate) fn new_request(method: Method, url: Url, body: Option<&Value>) -> Request {
    let mut request = Request::new(method, url);
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static("application/vnd.github+json"));
    headers.insert("x-github-api-version", HeaderValue::from_static(API_VERSION));
    if let Some(body) = body {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *request.body_mut() = Some(body.to_string().into());
    }
    request
}

/// The next page of a list (`Link: <URL>; rel="next"`).
fn next_page(reply: &Reply, from: &Url) -> Option<Url> {
    let header = reply.headers.get(LINK)?.to_str().ok()?;
    header.split(',').find_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let is_next = parameters.split(';').any(|parameter| {
            let parameter = parameter.trim();
            parameter == "rel=\"next\"" || parameter == "rel=next"
        });
        is_next.then(|| from.join(target).ok()).flatten()
    })
}

/// The target of a redirect.
fn redirect(reply: &Reply, from: &Url) -> Option<Url> {
    if !matches!(reply.status.as_u16(), 301 | 302 | 307 | 308) {
        return None;
    }
    from.join(reply.headers.get(LOCATION)?.to_str().ok()?).ok()
}

/// Whether credentials for `home` may be sent to `url`.
fn is_same_host(url: &Url, home: &Url) -> bool {
    url.origin() == home.origin() && url.username().is_empty() && url.password().is_none()
}

#[cfg(test)]
mod links_tests {
    use reqwest::StatusCode;
    use reqwest::header::{HeaderMap, HeaderValue};

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    #[test]
    fn the_next_page_is_the_link_with_that_name() {
        let from = url("https://api.example/user/repos?page=1");
        let next = |link: &'static str| {
            let reply = Reply {
                status: StatusCode::OK,
                headers: HeaderMap::from_iter([(LINK, HeaderValue::from_static(link))]),
                body: Vec::new(),
            };
            next_page(&reply, &from).map(|url| url.to_string())
        };
        let pages = "<https://api.example/x?page=9>; rel=\"last\", </x?page=2>; rel=\"next\"";
        assert_eq!(next(pages).as_deref(), Some("https://api.example/x?page=2"));
        assert_eq!(next("<https://api.example/x?page=1>; rel=\"prev\""), None);
        assert_eq!(next("garbage"), None);
    }

    #[test]
    fn another_scheme_port_or_user_is_another_host() {
        let home = url("https://api.example/api/v3");
        assert!(is_same_host(&url("https://api.example:443/repositories/7"), &home));
        for other in [
            "http://api.example/x",
            "https://api.example:444/x",
            "https://evil.example/x",
            "https://api.example.evil.example/x",
            "https://me@api.example/x",
            "data:,x",
        ] {
            assert!(!is_same_host(&url(other), &home), "{other}");
        }
    }
}

/// How long to wait if GitHub does not say it.
const ASSUMED_WAIT: Duration = Duration::from_secs(60);
/// The longest wait that is believed.
const LONGEST_WAIT: u64 = 86_400;

/// How long a rate limit lasts; `None` if the answer is something else.
pub(crate) fn rate_limit(reply: &Reply) -> Option<Duration> {
    let exhausted = reply.header("x-ratelimit-remaining") == Some("0");
    let said = reply.retry_after();
    let limited = match reply.status.as_u16() {
        429 => true,
        // A 403 without these headers is a limit only if it says so; usually it is a missing permission.
        403 => exhausted || said.is_some() || mentions_limit(&reply.body),
        _ => false,
    };
    if !limited {
        return None;
    }
    let reset = || {
        let at: i64 = reply.header("x-ratelimit-reset")?.trim().parse().ok()?;
        let wait = u64::try_from(at - Utc::now().timestamp()).unwrap_or(0) + 1;
        Some(Duration::from_secs(wait.min(LONGEST_WAIT)))
    };
    Some(said.or_else(|| exhausted.then(reset).flatten()).unwrap_or(ASSUMED_WAIT))
}

fn mentions_limit(body: &[u8]) -> bool {
    let start = &body[..body.len().min(4096)];
    String::from_utf8_lossy(start).to_lowercase().contains("rate limit")
}

#[cfg(test)]
mod limits_tests {
    use reqwest::StatusCode;
    use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn wait(status: u16, headers: &[(&'static str, &str)], body: &str) -> Option<u64> {
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_str(value).expect("a value"),
            )
        });
        let reply = Reply {
            status: StatusCode::from_u16(status).expect("a status"),
            headers: HeaderMap::from_iter(headers),
            body: body.as_bytes().to_vec(),
        };
        rate_limit(&reply).map(|wait| wait.as_secs())
    }

    #[test]
    fn each_form_of_a_rate_limit_has_its_wait() {
        let soon = (Utc::now().timestamp() + 20).to_string();
        let reset = wait(
            403,
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &soon)],
            "{}",
        );
        assert!(reset.is_some_and(|seconds| (18..=21).contains(&seconds)), "{reset:?}");
        assert_eq!(wait(403, &[("retry-after", "7")], "{}"), Some(7));
        assert_eq!(wait(429, &[("retry-after", "7")], "{}"), Some(7));
        assert_eq!(wait(429, &[("x-ratelimit-remaining", "0")], "{}"), Some(60));
        assert_eq!(wait(429, &[], "{}"), Some(60));
        assert_eq!(
            wait(403, &[], r#"{"message":"You have exceeded a secondary rate limit"}"#),
            Some(60)
        );
        assert_eq!(
            wait(
                403,
                &[("x-ratelimit-remaining", "12")],
                r#"{"message":"Resource not accessible"}"#
            ),
            None
        );
        assert_eq!(wait(500, &[("retry-after", "7")], "{}"), None);
        // A reset that has passed, and one that is absurd.
        let (past, never) = ("1", u64::MAX.to_string());
        assert_eq!(
            wait(
                403,
                &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", past)],
                "{}"
            ),
            Some(1)
        );
        assert_eq!(wait(403, &[("retry-after", &never)], "{}"), Some(LONGEST_WAIT));
    }
}

/// The most entries of a page.
const PER_PAGE: &str = "100";

/// The pages of a list that were not read yet.
#[derive(Debug)]
pub(crate) struct Pages<'a> {
    github: &'a GitHub,
    next: Option<Url>,
    deadline: Instant,
    what: &'a str,
}

impl<'a> Pages<'a> {
    /// A list from its first page on; `what` is its name in errors.
    pub(crate) fn of(github: &'a GitHub, mut first: Url, deadline: Instant, what: &'a str) -> Self {
        first.query_pairs_mut().append_pair("per_page", PER_PAGE);
        Self {
            github,
            next: Some(first),
            deadline,
            what,
        }
    }

    /// Whether every page was read.
    pub(crate) fn are_all_read(&self) -> bool {
        self.next.is_none()
    }

    /// The next page; `None` after the last one.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ToolError> {
        let Some(url) = self.next.take() else {
            return Ok(None);
        };
        let reply = self.github.read(&url, self.deadline).await?;
        let page = accepted(&reply, self.what)?;
        if let Some(next) = next_page(&reply, &url) {
            self.github.guard(&next)?;
            self.next = Some(next);
        }
        Ok(Some(page))
    }

    /// All entries, at most `max` and from at most `pages` pages; and whether there are more.
    pub(crate) async fn entries<T: DeserializeOwned>(
        mut self,
        pages: usize,
        max: usize,
    ) -> Result<(Vec<T>, bool), ToolError> {
        let mut all = Vec::new();
        for _ in 0..pages {
            match self.next::<Vec<T>>().await? {
                Some(page) => all.extend(page),
                None => break,
            }
        }
        let more = all.len() > max || !self.are_all_read();
        all.truncate(max);
        Ok((all, more))
    }
}

//! GitHub's REST API: which requests are repeated, what is waited for, and whose turn it is to change something.

mod cache;
pub(crate) mod http;
pub(crate) mod limits;
mod links;
mod pages;
pub(crate) mod refusal;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use gavel_mcp_base::ToolError;
use reqwest::Method;
use reqwest::header::{ETAG, IF_NONE_MATCH};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use url::Url;

pub(crate) use self::pages::Pages;
pub(crate) use self::writes::Turn;

use self::cache::Cache;
use self::http::{Http, Lost, Reply, at, new_request};
use self::refusal::refusal;
use crate::auth::Tokens;
use crate::error::{Code, rate_limited, unavailable};
use crate::settings::{Git, Settings};

/// The most attempts of a read that fails.
const ATTEMPTS: u32 = 3;
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
        let http = http::connections(&api)?;
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
            let Some(target) = links::redirect(&reply, &url) else {
                return Ok(reply);
            };
            self.guard(&target)?;
            url = target;
        }
        Err(unusable("GitHub redirects this request too often."))
    }

    /// Rejects an address to which the credentials must not be sent.
    fn guard(&self, url: &Url) -> Result<(), ToolError> {
        match links::is_same_host(url, &self.api) {
            true => Ok(()),
            false => Err(unusable("GitHub refers to another host, which is not followed.")),
        }
    }

    /// Sends a GET until it is answered. Faults are repeated a few times, rate limits are waited for.
    async fn fetch(&self, url: &Url, deadline: Instant) -> Result<Arc<Reply>, ToolError> {
        let kept = self.cache.get(url);
        let mut access = self.tokens.access(deadline).await?;
        let (mut faults, mut renewed) = (0, false);
        loop {
            let mut request = new_request(Method::GET, url.clone());
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
            let limit = reply.as_ref().and_then(limits::limit);
            let (wait, error) = match reply {
                Some(reply) if reply.status == 304 && kept.is_some() => return kept.ok_or_else(unavailable),
                Some(reply) if reply.status == 401 && !renewed => {
                    renewed = true;
                    match self.tokens.renewed(&access, deadline).await? {
                        Some(other) => access = other,
                        None => return Ok(Arc::new(reply)),
                    }
                    continue;
                }
                Some(reply) if limit.is_none() && !is_transient(&reply) => {
                    let reply = Arc::new(reply);
                    self.cache.keep(url, &reply);
                    return Ok(reply);
                }
                reply => {
                    faults += u32::from(limit.is_none());
                    match limit {
                        Some(limit) => (limit.max(LEAST_WAIT), rate_limited(limit)),
                        None => (limits::pause(faults, reply.as_ref()), unavailable()),
                    }
                }
            };
            if faults == ATTEMPTS || Instant::now() + wait >= deadline {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
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

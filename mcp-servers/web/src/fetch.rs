//! One fetch: from a URL, through its redirects, to a page.

use std::time::Duration;

use futures_util::future::join_all;
use gavel_mcp_base::ToolError;
use tokio::time::timeout;
use url::Url;

use crate::error;
use crate::guard::Guard;
use crate::http::Http;
use crate::page::{self, Page};
use crate::redirects;
use crate::robots::Robots;
use crate::search::Source;
use crate::work::Workers;

/// Fetches pages.
#[derive(Debug)]
pub(crate) struct Fetcher {
    pub(crate) guard: Guard,
    pub(crate) http: Http,
    /// None if the operator ignores robots.txt.
    pub(crate) robots: Option<Robots>,
    pub(crate) workers: Workers,
    /// For the whole of a fetch: names, redirects, robots.txt, the page, and its conversion.
    pub(crate) limit: Duration,
}

/// A page, with how it was reached.
#[derive(Debug, Clone)]
pub(crate) struct Fetched {
    pub(crate) url: Url,
    /// The URLs that redirected, in order.
    pub(crate) redirects: Vec<Url>,
    pub(crate) page: Page,
}

/// The path of Google's links to what a search found.
const GROUNDING: &str = "/grounding-api-redirect/";
/// How long all of these links may take.
const COMPLETING: Duration = Duration::from_secs(5);

impl Fetcher {
    /// Replaces Google's links, which lead to a page by a redirect, by the pages' own URLs, at one look each. A link
    /// that does not redirect in time, or not to a URL that may be requested, stays as it is.
    pub(crate) async fn complete(&self, sources: &mut [Source]) {
        let links = sources.iter_mut().filter(|source| source.url.contains(GROUNDING));
        let looks = links.map(|source| async {
            if let Some(url) = self.look(&source.url).await {
                source.url = url.into();
            }
        });
        // Those that are done in time remain done.
        let _ = timeout(COMPLETING, join_all(looks)).await;
    }

    async fn look(&self, link: &str) -> Option<Url> {
        let target = self.guard.admit(self.guard.url(link).ok()?).await.ok()?;
        let response = self.http.get(&target).await.ok()?;
        redirects::next(&self.guard, &target.url, &response, 0).ok()?
    }

    /// Fetches a page. Errors are those of this server's closed set.
    pub(crate) async fn fetch(&self, url: &str) -> Result<Fetched, ToolError> {
        let fetched = timeout(self.limit, self.follow(url)).await;
        fetched.unwrap_or_else(|_| Err(error::timeout(self.limit)))
    }

    async fn follow(&self, url: &str) -> Result<Fetched, ToolError> {
        let mut url = self.guard.url(url)?;
        let mut redirected = Vec::new();
        loop {
            let target = self.guard.admit(url).await?;
            if let Some(robots) = &self.robots {
                robots.check(&target, &self.guard, &self.http, &self.workers).await?;
            }
            let response = self.http.get(&target).await?;
            let next = redirects::next(&self.guard, &target.url, &response, redirected.len())?;
            let Some(next) = next else {
                let page = page::read(target.url.clone(), response, &self.workers).await?;
                return Ok(Fetched {
                    url: target.url,
                    redirects: redirected,
                    page,
                });
            };
            redirected.push(target.url);
            url = next;
        }
    }
}

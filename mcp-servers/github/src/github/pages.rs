//! Lists, page by page.

use gavel_mcp_base::ToolError;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use url::Url;

use super::{GitHub, accepted, links};

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
        if let Some(next) = links::next(&reply, &url) {
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

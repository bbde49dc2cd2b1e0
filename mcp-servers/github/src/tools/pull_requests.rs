//! `listPullRequests` and `readPullRequest`

use std::sync::Arc;

use gavel_mcp_base::{Fault, Kind, Tool, ToolError, invalid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Service;
use super::{MAX_REF, Repo, reference};
use crate::call::Call;
use crate::github::{GitHub, Pages};
use crate::wire::{ListedPullRequest, PullRequest, WirePullRequest};

const MAX: usize = 300;
const MAX_PAGES: usize = 3;

const ABOUT_LIST: &str = "\
List the pull requests of a repository, the newest first, without their bodies, at most 300. truncated says that there \
are more: narrow the list by head, base or state.";

const ABOUT_READ: &str = "\
Read one pull request: its title, body, state, branches and author. pullRequest is null when there is none with this \
number.";

#[derive(Deserialize, JsonSchema)]
struct Which {
    #[serde(flatten)]
    repo: Repo,
    /// Only from this branch: feature-x, or octocat:feature-x for a branch of a fork.
    #[schemars(length(min = 1, max = 300))]
    head: Option<String>,
    /// Only into this branch.
    #[schemars(length(min = 1, max = MAX_REF))]
    base: Option<String>,
    /// Only in this state. open when left out.
    #[schemars(extend("enum" = ["open", "closed", "all"]))]
    state: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Listed {
    pull_requests: Vec<ListedPullRequest>,
    /// Whether there are more than these.
    truncated: bool,
}

/// One pull request of a repository.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Named {
    #[serde(flatten)]
    pub(super) repo: Repo,
    /// The number of the pull request.
    #[schemars(range(min = 1))]
    pub(super) pr_number: u32,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Read {
    /// null when there is no such pull request.
    pull_request: Option<PullRequest>,
}

pub(super) fn list_tool() -> Tool<Service> {
    super::tool("listPullRequests", "List pull requests", ABOUT_LIST, Kind::Reads, list)
}

pub(super) fn read_tool() -> Tool<Service> {
    super::tool("readPullRequest", "Read a pull request", ABOUT_READ, Kind::Reads, read)
}

/// A head with its owner, as GitHub's filter takes it.
pub(super) fn owned_head(repo: &Repo, head: &str) -> String {
    match head.contains(':') {
        true => head.to_owned(),
        false => format!("{}:{head}", repo.owner),
    }
}

/// A branch, possibly after the owner of a fork and a colon.
pub(super) fn head(given: String) -> Result<String, ToolError> {
    let parts: Vec<_> = given.split(':').collect();
    let plain =
        |part: &&str| !part.is_empty() && !part.contains(|each: char| each.is_whitespace() || each.is_control());
    if parts.len() > 2 || !parts.iter().all(plain) {
        let rule = "has to be a branch (feature-x), or an owner and a branch (octocat:feature-x)";
        return Err(invalid("head", rule));
    }
    Ok(given)
}

async fn list(github: Arc<GitHub>, which: Which, call: Call) -> Result<Listed, Fault> {
    let repo = which.repo.checked()?;
    let mut url = repo.url(&github, &["pulls"]);
    {
        let mut query = url.query_pairs_mut();
        query.append_pair("state", which.state.as_deref().unwrap_or("open"));
        if let Some(given) = which.head {
            query.append_pair("head", &owned_head(&repo, &head(given)?));
        }
        if let Some(base) = which.base {
            query.append_pair("base", &reference("base", base)?);
        }
    }
    let pages = Pages::of(&github, url, call.deadline, "The repository");
    let (found, truncated) = pages.entries::<WirePullRequest>(MAX_PAGES, MAX).await?;
    let pull_requests = found.into_iter().map(WirePullRequest::without_body).collect();
    Ok(Listed {
        pull_requests,
        truncated,
    })
}

async fn read(github: Arc<GitHub>, named: Named, call: Call) -> Result<Read, Fault> {
    let repo = named.repo.checked()?;
    let url = repo.url(&github, &["pulls", &named.pr_number.to_string()]);
    let found: Option<WirePullRequest> = github.find(&url, call.deadline, "The pull request").await?;
    Ok(Read {
        pull_request: found.map(WirePullRequest::whole),
    })
}

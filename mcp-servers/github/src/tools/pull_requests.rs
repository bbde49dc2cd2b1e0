//! `listPullRequests`, `readPullRequest`, `updatePullRequest` and `closePullRequest`

use std::sync::Arc;

use gavel_mcp_base::{Fault, Kind, Tool, ToolError, invalid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::change::{self, Closed, Numbered};
use super::create_pull_request::Made;
use super::{MAX_REF, Repo, Service, reference};
use crate::call::Call;
use crate::github::{GitHub, Pages};
use crate::wire::{ListedPullRequest, PullRequest};

const MAX: usize = 300;
const MAX_PAGES: usize = 3;

const ABOUT_LIST: &str = "\
List the pull requests of a repository, the newest first, without their bodies, at most 300. truncated says that there \
are more: narrow the list by head, base or state.";

const ABOUT_READ: &str = "\
Read one pull request: its title, body, state, branches and author. pullRequest is null when there is none with this \
number.";

const ABOUT_UPDATE: &str = "\
Change the title, body, base branch or state of a pull request. Only what updates names is changed. It cannot be merged \
by this.";

const ABOUT_CLOSE: &str = "\
Close a pull request without merging it. One that is closed or merged already stays as it is.";

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

impl Named {
    fn checked(self) -> Result<Numbered, ToolError> {
        Ok(Numbered {
            what: "The pull request",
            list: "pulls",
            repo: self.repo.checked()?,
            number: self.pr_number,
        })
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Read {
    /// null when there is no such pull request.
    pull_request: Option<PullRequest>,
}

#[derive(Deserialize, JsonSchema)]
struct Update {
    #[serde(flatten)]
    named: Named,
    /// What to change; at least one of these.
    updates: Updates,
}

#[derive(Default, PartialEq, Deserialize, JsonSchema)]
struct Updates {
    /// The new title.
    #[schemars(length(min = 1, max = super::MAX_TITLE))]
    title: Option<String>,
    /// The new body, in Markdown, in place of the whole old one.
    #[schemars(extend("x-exact" = true))]
    body: Option<String>,
    /// The branch that receives the changes from now on.
    #[schemars(length(min = 1, max = MAX_REF))]
    base: Option<String>,
    /// Reopen it, or close it.
    #[schemars(extend("enum" = ["open", "closed"]))]
    state: Option<String>,
}

pub(super) fn list_tool() -> Tool<Service> {
    super::tool("listPullRequests", "List pull requests", ABOUT_LIST, Kind::Reads, list)
}

pub(super) fn read_tool() -> Tool<Service> {
    super::tool("readPullRequest", "Read a pull request", ABOUT_READ, Kind::Reads, read)
}

pub(super) fn update_tool() -> Tool<Service> {
    let tool = super::tool(
        "updatePullRequest",
        "Update a pull request",
        ABOUT_UPDATE,
        Kind::Updates,
        update,
    );
    let closes = json!({ "closePullRequest": { "updates.state": ["closed"] } });
    let scope = json!({ "prNumber": "session.created", "updates.base": "session.base" });
    tool.with_settings(json!({ "amountsTo": closes, "scope": scope }))
}

pub(super) fn close_tool() -> Tool<Service> {
    let tool = super::tool(
        "closePullRequest",
        "Close a pull request",
        ABOUT_CLOSE,
        Kind::Removes,
        close,
    );
    tool.with_settings(json!({ "approval": "required" }))
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
    let (pull_requests, truncated) = pages.entries(MAX_PAGES, MAX).await?;
    Ok(Listed {
        pull_requests,
        truncated,
    })
}

async fn read(github: Arc<GitHub>, named: Named, call: Call) -> Result<Read, Fault> {
    let named = named.checked()?;
    let pull_request = github.find(&named.url(&github), call.deadline, named.what).await?;
    Ok(Read { pull_request })
}

async fn update(github: Arc<GitHub>, arguments: Update, call: Call) -> Result<Made, Fault> {
    let named = arguments.named.checked()?;
    let updates = super::some_update(arguments.updates, "title, body, base, state")?;
    let base = updates.base.map(|base| reference("base", base)).transpose()?;
    let changes = [("title", updates.title), ("base", base), ("state", updates.state)];
    let changes = changes.map(|(name, value)| (name, value.map(Value::from)));
    let body = updates.body.as_deref().map(super::valid_body).transpose()?;
    let pull_request = change::update(&github, &call, &named, body, super::given(changes)).await?;
    Ok(Made { pull_request })
}

async fn close(github: Arc<GitHub>, named: Named, call: Call) -> Result<Closed, Fault> {
    change::close(&github, &call, &named.checked()?).await
}

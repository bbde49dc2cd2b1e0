//! `listPullRequests` and `readPullRequest`

use gavel_mcp_base::{Answer, Arguments, ToolError};
use rmcp::model::{JsonObject, Tool};
use serde_json::json;

use super::schema::{self, Kind};
use super::target::{Repo, number};
use crate::call::Call;
use crate::github::{GitHub, Pages};
use crate::wire::{PullRequest, WirePullRequest};

pub(super) const LIST: &str = "listPullRequests";
pub(super) const READ: &str = "readPullRequest";

const MAX: usize = 300;
const MAX_PAGES: usize = 3;

const ABOUT_LIST: &str = "\
List the pull requests of a repository, the newest first, without their bodies, at most 300. truncated says that there \
are more: narrow the list by head, base or state.";

const ABOUT_READ: &str = "\
Read one pull request: its title, body, state, branches and author. pullRequest is null when there is none with this \
number.";

pub(super) fn list_tool() -> Tool {
    let arguments = schema::of_repository(json!({
        "head": schema::text("Only from this branch: feature-x, or octocat:feature-x for a branch of a fork."),
        "base": schema::text("Only into this branch."),
        "state": schema::choice(&["open", "closed", "all"], "Only in this state. open when left out.")
    }));
    let listed = json!({ "type": "array", "items": schema::listed_pull_request() });
    let truncated = schema::truncated("Whether there are more than these.");
    schema::tool(
        LIST,
        "List pull requests",
        ABOUT_LIST,
        Kind::Reads,
        (arguments, &["owner", "repo"]),
        &[("pullRequests", listed), ("truncated", truncated)],
    )
}

pub(super) fn read_tool() -> Tool {
    let arguments = schema::of_repository(json!({ "prNumber": schema::number("pull request") }));
    let pull_request = schema::nullable(schema::pull_request(), "null when there is no such pull request.");
    schema::tool(
        READ,
        "Read a pull request",
        ABOUT_READ,
        Kind::Reads,
        (arguments, &["owner", "repo", "prNumber"]),
        &[("pullRequest", pull_request)],
    )
}

/// A head with its owner, as GitHub's filter takes it.
pub(super) fn owned_head(repo: &Repo, head: &str) -> String {
    match head.contains(':') {
        true => head.to_owned(),
        false => format!("{}:{head}", repo.owner),
    }
}

/// A branch, possibly after the owner of a fork and a colon.
pub(super) fn head(arguments: &Arguments) -> Result<Option<String>, ToolError> {
    let Some(given) = arguments.visible_text("head", 300)? else {
        return Ok(None);
    };
    let parts: Vec<_> = given.split(':').collect();
    let plain =
        |part: &&str| !part.is_empty() && !part.contains(|each: char| each.is_whitespace() || each.is_control());
    if parts.len() > 2 || !parts.iter().all(plain) {
        let rule = "has to be a branch (feature-x), or an owner and a branch (octocat:feature-x)";
        return Err(gavel_mcp_base::invalid("head", rule));
    }
    Ok(Some(given))
}

pub(super) async fn list(arguments: Option<JsonObject>, github: &GitHub, call: &Call) -> Result<Answer, ToolError> {
    let arguments = Arguments::new(arguments, &["owner", "repo", "head", "base", "state"])?;
    let repo = Repo::parse(&arguments)?;
    let states = [("open", "open"), ("closed", "closed"), ("all", "all")];
    let mut url = repo.url(github, &["pulls"]);
    {
        let mut query = url.query_pairs_mut();
        query.append_pair("state", arguments.choice("state", &states)?.unwrap_or("open"));
        if let Some(head) = head(&arguments)? {
            query.append_pair("head", &owned_head(&repo, &head));
        }
        if let Some(base) = super::target::reference(&arguments, "base")? {
            query.append_pair("base", &base);
        }
    }
    let pages = Pages::of(github, url, call.deadline, "The repository");
    let (found, truncated) = pages.entries::<WirePullRequest>(MAX_PAGES, MAX).await?;
    let listed: Vec<PullRequest> = found.into_iter().map(WirePullRequest::without_body).collect();
    Ok(Answer::of(&json!({ "pullRequests": listed, "truncated": truncated })))
}

pub(super) async fn read(arguments: Option<JsonObject>, github: &GitHub, call: &Call) -> Result<Answer, ToolError> {
    let arguments = Arguments::new(arguments, &["owner", "repo", "prNumber"])?;
    let repo = Repo::parse(&arguments)?;
    let url = repo.url(github, &["pulls", &number(&arguments, "prNumber")?]);
    let found: Option<WirePullRequest> = github.find(&url, call.deadline, "The pull request").await?;
    Ok(Answer::of(&json!({ "pullRequest": found.map(WirePullRequest::whole) })))
}

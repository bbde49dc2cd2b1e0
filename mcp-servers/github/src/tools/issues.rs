//! `readIssue`

use gavel_mcp_base::{Answer, Arguments, ToolError};
use rmcp::model::{JsonObject, Tool};
use serde_json::json;

use super::schema::{self, Kind};
use super::target::{Repo, number};
use crate::call::Call;
use crate::github::GitHub;
use crate::wire::{Issue, WireIssue};

pub(super) const READ: &str = "readIssue";

const ABOUT: &str = "\
Read one issue: its title, body, state, labels and author. issue is null when there is none with this number; a pull \
request is not an issue.";

pub(super) fn tool() -> Tool {
    let arguments = schema::of_repository(json!({ "issueNumber": schema::number("issue") }));
    let issue = schema::nullable(schema::issue(), "null when there is no such issue.");
    schema::tool(
        READ,
        "Read an issue",
        ABOUT,
        Kind::Reads,
        (arguments, &["owner", "repo", "issueNumber"]),
        &[("issue", issue)],
    )
}

/// GitHub's issues include its pull requests, which this server treats as absent here: a call for an issue must not
/// reach a pull request.
pub(super) async fn find(
    github: &GitHub,
    call: &Call,
    repo: &Repo,
    number: &str,
) -> Result<Option<WireIssue>, ToolError> {
    let url = repo.url(github, &["issues", number]);
    let found: Option<WireIssue> = github.find(&url, call.deadline, "The issue").await?;
    Ok(found.filter(|issue| issue.pull_request.is_none()))
}

pub(super) async fn read(arguments: Option<JsonObject>, github: &GitHub, call: &Call) -> Result<Answer, ToolError> {
    let arguments = Arguments::new(arguments, &["owner", "repo", "issueNumber"])?;
    let repo = Repo::parse(&arguments)?;
    let number = number(&arguments, "issueNumber")?;
    let found = find(github, call, &repo, &number).await?;
    Ok(Answer::of(&json!({ "issue": found.map(Issue::from) })))
}

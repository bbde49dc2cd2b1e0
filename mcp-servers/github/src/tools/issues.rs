//! `readIssue`

use std::sync::Arc;

use gavel_mcp_base::{Fault, Kind, Tool, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Repo;
use super::Service;
use crate::call::Call;
use crate::github::GitHub;
use crate::wire::{Issue, WireIssue};

const ABOUT: &str = "\
Read one issue: its title, body, state, labels and author. issue is null when there is none with this number; a pull \
request is not an issue.";

/// One issue of a repository.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Named {
    #[serde(flatten)]
    pub(super) repo: Repo,
    /// The number of the issue.
    #[schemars(range(min = 1))]
    pub(super) issue_number: u32,
}

#[derive(Serialize, JsonSchema)]
struct Read {
    /// null when there is no such issue.
    issue: Option<Issue>,
}

pub(super) fn tool() -> Tool<Service> {
    super::tool("readIssue", "Read an issue", ABOUT, Kind::Reads, read)
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

async fn read(github: Arc<GitHub>, named: Named, call: Call) -> Result<Read, Fault> {
    let repo = named.repo.checked()?;
    let found = find(&github, &call, &repo, &named.issue_number.to_string()).await?;
    Ok(Read {
        issue: found.map(Issue::from),
    })
}

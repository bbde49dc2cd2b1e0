//! `readIssue`, `updateIssue` and `closeIssue`

use std::sync::Arc;

use gavel_mcp_base::{Fault, Kind, Tool, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::change::{self, Closed, Numbered};
use super::create_issue::Made;
use super::{Repo, Service};
use crate::call::Call;
use crate::github::GitHub;
use crate::wire::Issue;

const ABOUT_READ: &str = "\
Read one issue: its title, body, state, labels and author. issue is null when there is none with this number; a pull \
request is not an issue.";

const ABOUT_UPDATE: &str = "\
Change the title, body, state, labels or assignees of an issue. Only what updates names is changed; labels and \
assignees replace all that it has. A pull request is not an issue.";

const ABOUT_CLOSE: &str = "Close an issue. One that is closed already stays as it is. A pull request is not an issue.";

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

impl Named {
    fn checked(self) -> Result<Numbered, ToolError> {
        Ok(Numbered {
            what: "The issue",
            list: "issues",
            repo: self.repo.checked()?,
            number: self.issue_number,
        })
    }
}

#[derive(Deserialize, JsonSchema)]
struct Update {
    #[serde(flatten)]
    named: Named,
    /// What to change; at least one of these.
    updates: Updates,
}

#[derive(Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Updates {
    /// The new title.
    #[schemars(length(min = 1, max = super::MAX_TITLE))]
    title: Option<String>,
    /// The new body, in Markdown, in place of the whole old one.
    #[schemars(extend("x-exact" = true))]
    body: Option<String>,
    /// Reopen it, or close it.
    #[schemars(extend("enum" = ["open", "closed"]))]
    state: Option<String>,
    /// Why, together with state.
    #[schemars(extend("enum" = ["completed", "not_planned", "duplicate", "reopened"]))]
    state_reason: Option<String>,
    /// All its labels from now on; an empty list removes them.
    #[schemars(length(max = 100), inner(length(min = 1, max = 50)))]
    labels: Option<Vec<String>>,
    /// All its assignees from now on, by login; an empty list removes them.
    #[schemars(length(max = 10), inner(length(min = 1, max = 100)))]
    assignees: Option<Vec<String>>,
}

#[derive(Serialize, JsonSchema)]
struct Read {
    /// null when there is no such issue.
    issue: Option<Issue>,
}

pub(super) fn read_tool() -> Tool<Service> {
    super::tool("readIssue", "Read an issue", ABOUT_READ, Kind::Reads, read)
}

pub(super) fn update_tool() -> Tool<Service> {
    let tool = super::tool("updateIssue", "Update an issue", ABOUT_UPDATE, Kind::Updates, update);
    let closes = json!({ "closeIssue": { "updates.state": ["closed"] } });
    tool.with_settings(json!({ "amountsTo": closes, "scope": { "issueNumber": "session.created" } }))
}

pub(super) fn close_tool() -> Tool<Service> {
    let tool = super::tool("closeIssue", "Close an issue", ABOUT_CLOSE, Kind::Removes, close);
    tool.with_settings(json!({ "approval": "required" }))
}

async fn read(github: Arc<GitHub>, named: Named, call: Call) -> Result<Read, Fault> {
    let named = named.checked()?;
    let found: Option<Issue> = github.find(&named.url(&github), call.deadline, named.what).await?;
    // A call for an issue must not reach a pull request, which GitHub lists among them.
    let issue = found.filter(|issue| !issue.is_pull_request);
    Ok(Read { issue })
}

async fn update(github: Arc<GitHub>, arguments: Update, call: Call) -> Result<Made, Fault> {
    let named = arguments.named.checked()?;
    let updates = super::some_update(arguments.updates, "title, body, state, stateReason, labels, assignees")?;
    let labels = super::valid_names("labels", updates.labels)?;
    let assignees = super::valid_names("assignees", updates.assignees)?;
    let changes = [
        ("title", updates.title.map(Value::from)),
        ("state", updates.state.map(Value::from)),
        ("state_reason", updates.state_reason.map(Value::from)),
        ("labels", labels.map(Value::from)),
        ("assignees", assignees.map(Value::from)),
    ];
    let body = updates.body.as_deref().map(super::valid_body).transpose()?;
    let issue = change::update(&github, &call, &named, body, super::given(changes)).await?;
    Ok(Made { issue })
}

async fn close(github: Arc<GitHub>, named: Named, call: Call) -> Result<Closed, Fault> {
    change::close(&github, &call, &named.checked()?).await
}

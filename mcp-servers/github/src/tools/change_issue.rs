//! `updateIssue` and `closeIssue`

use std::sync::Arc;

use gavel_mcp_base::{Fault, Kind, Tool};
use reqwest::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Repo;
use super::create_issue::Made;
use super::issues::{self, Named};
use super::{Service, refused};
use crate::call::Call;
use crate::error::not_found;
use crate::github::{GitHub, Turn};
use crate::marker::Marker;
use crate::wire::WireIssue;

const WHAT: &str = "The issue";

const ABOUT_UPDATE: &str = "\
Change the title, body, state, labels or assignees of an issue. Only what updates names is changed; labels and \
assignees replace all that it has. A pull request is not an issue.";

const ABOUT_CLOSE: &str = "Close an issue. One that is closed already stays as it is. A pull request is not an issue.";

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

/// The answer of each tool that closes something.
#[derive(Serialize, JsonSchema)]
pub(super) struct Closed {
    /// Always true. It may have been closed before.
    pub(super) closed: bool,
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

async fn update(github: Arc<GitHub>, arguments: Update, call: Call) -> Result<Made, Fault> {
    let (github, call) = (&*github, &call);
    let (repo, number) = (
        arguments.named.repo.checked()?,
        arguments.named.issue_number.to_string(),
    );
    let updates = super::some_update(arguments.updates, "title, body, state, stateReason, labels, assignees")?;
    let mut changes = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        changes.extend(value.map(|value| (name.to_owned(), value)));
    };
    set("title", updates.title.map(Value::from));
    set("state", updates.state.map(Value::from));
    set("state_reason", updates.state_reason.map(Value::from));
    set("labels", super::valid_names("labels", updates.labels)?.map(Value::from));
    set(
        "assignees",
        super::valid_names("assignees", updates.assignees)?.map(Value::from),
    );
    let body = updates.body.as_deref().map(super::valid_body).transpose()?;
    let (mut turn, old) = started(github, call, &repo, &number).await?;
    if let Some(body) = body {
        // The marker of the call that created it stays.
        let marker = Marker::found_in(old.body.as_deref().unwrap_or_default());
        let new = marker.map_or(body.clone(), |marker| marker.added_to(&body));
        changes.insert("body".to_owned(), new.into());
    }
    let changed = change(github, &mut turn, call, (&repo, &number), changes).await?;
    Ok(Made { issue: changed.into() })
}

async fn close(github: Arc<GitHub>, named: Named, call: Call) -> Result<Closed, Fault> {
    let (github, call) = (&*github, &call);
    let (repo, number) = (named.repo.checked()?, named.issue_number.to_string());
    let (mut turn, old) = started(github, call, &repo, &number).await?;
    if old.state != "closed" {
        let closed = Map::from_iter([("state".to_owned(), "closed".into())]);
        change(github, &mut turn, call, (&repo, &number), closed).await?;
    }
    Ok(Closed { closed: true })
}

/// The issue before the change. It is looked up, so that the number of a pull request changes nothing.
async fn started<'a>(
    github: &'a GitHub,
    call: &Call,
    repo: &Repo,
    number: &str,
) -> Result<(Turn<'a>, WireIssue), Fault> {
    let turn = github.turn(call.deadline).await;
    let turn = turn.map_err(|error| call.before_looking(error))?;
    let found = issues::find(github, call, repo, number).await;
    let found = found.map_err(|error| call.before_looking(error))?;
    let found = found.ok_or_else(|| {
        not_found(WHAT).and("If the number is that of a pull request, use the tools for pull requests.")
    })?;
    Ok((turn, found))
}

/// A further attempt makes the same change again, which has the same result.
async fn change(
    github: &GitHub,
    turn: &mut Turn<'_>,
    call: &Call,
    (repo, number): (&Repo, &str),
    changes: Map<String, Value>,
) -> Result<WireIssue, Fault> {
    let url = repo.url(github, &["issues", number]);
    let sent = github.write(turn, call, Method::PATCH, url, &changes.into()).await;
    let reply = sent.map_err(|fault| call.natural(fault))?;
    if !reply.status.is_success() {
        return Err(refused(github, call, repo, &reply, WHAT).await.into());
    }
    reply
        .json()
        .ok_or_else(|| call.unsettled("GitHub's answer cannot be read"))
}

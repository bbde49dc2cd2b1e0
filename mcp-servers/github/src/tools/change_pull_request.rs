//! `updatePullRequest` and `closePullRequest`

use std::sync::Arc;

use gavel_mcp_base::{Fault, Kind, Tool, ToolError};
use reqwest::Method;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::change_issue::Closed;
use super::create_pull_request::Made;
use super::pull_requests::Named;
use super::{MAX_REF, Repo, reference};
use super::{Service, refused};
use crate::call::Call;
use crate::error::not_found;
use crate::github::{GitHub, Turn};
use crate::marker::Marker;
use crate::wire::WirePullRequest;

const WHAT: &str = "The pull request";

const ABOUT_UPDATE: &str = "\
Change the title, body, base branch or state of a pull request. Only what updates names is changed. It cannot be merged \
by this.";

const ABOUT_CLOSE: &str = "\
Close a pull request without merging it. One that is closed or merged already stays as it is.";

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

async fn update(github: Arc<GitHub>, arguments: Update, call: Call) -> Result<Made, Fault> {
    let (github, call) = (&*github, &call);
    let (repo, number) = (arguments.named.repo.checked()?, arguments.named.pr_number.to_string());
    let updates = super::some_update(arguments.updates, "title, body, base, state")?;
    let mut changes = Map::new();
    let base = updates.base.map(|base| reference("base", base)).transpose()?;
    for (name, value) in [("title", updates.title), ("base", base), ("state", updates.state)] {
        changes.extend(value.map(|value| (name.to_owned(), value.into())));
    }
    let body = updates.body.as_deref().map(super::valid_body).transpose()?;
    let mut turn = started(github, call).await?;
    if let Some(body) = body {
        // The marker of the call that created it stays.
        let old = find(github, call, &repo, &number).await?.body.unwrap_or_default();
        let new = Marker::found_in(&old).map_or(body.clone(), |marker| marker.added_to(&body));
        changes.insert("body".to_owned(), new.into());
    }
    let changed = change(github, &mut turn, call, (&repo, &number), changes).await?;
    Ok(Made {
        pull_request: changed.whole(),
    })
}

async fn close(github: Arc<GitHub>, named: Named, call: Call) -> Result<Closed, Fault> {
    let (github, call) = (&*github, &call);
    let (repo, number) = (named.repo.checked()?, named.pr_number.to_string());
    let mut turn = started(github, call).await?;
    if find(github, call, &repo, &number).await?.state != "closed" {
        let closed = Map::from_iter([("state".to_owned(), "closed".into())]);
        change(github, &mut turn, call, (&repo, &number), closed).await?;
    }
    Ok(Closed { closed: true })
}

async fn started<'a>(github: &'a GitHub, call: &Call) -> Result<Turn<'a>, Fault> {
    let turn = github.turn(call.deadline).await;
    turn.map_err(|error| call.before_looking(error))
}

async fn find(github: &GitHub, call: &Call, repo: &Repo, number: &str) -> Result<WirePullRequest, Fault> {
    let url = repo.url(github, &["pulls", number]);
    let found = github.find(&url, call.deadline, WHAT).await;
    let found = found.map_err(|error: ToolError| call.before_looking(error))?;
    found.ok_or_else(|| not_found(WHAT).into())
}

/// A further attempt makes the same change again, which has the same result.
async fn change(
    github: &GitHub,
    turn: &mut Turn<'_>,
    call: &Call,
    (repo, number): (&Repo, &str),
    changes: Map<String, Value>,
) -> Result<WirePullRequest, Fault> {
    let url = repo.url(github, &["pulls", number]);
    let sent = github.write(turn, call, Method::PATCH, url, &changes.into()).await;
    let reply = sent.map_err(|fault| call.natural(fault))?;
    if !reply.status.is_success() {
        return Err(refused(github, call, repo, &reply, WHAT).await.into());
    }
    reply
        .json()
        .ok_or_else(|| call.unsettled("GitHub's answer cannot be read"))
}

//! `updatePullRequest` and `closePullRequest`

use gavel_mcp_base::{Answer, Arguments, ToolError};
use reqwest::Method;
use rmcp::model::{JsonObject, Tool};
use serde_json::{Map, Value, json};

use super::schema::{self, Kind};
use super::target::{Repo, number, reference};
use super::{fields, refused};
use crate::call::Call;
use crate::error::{Fault, not_found};
use crate::github::http::parsed;
use crate::github::{GitHub, Turn};
use crate::marker::Marker;
use crate::wire::WirePullRequest;

pub(super) const UPDATE: &str = "updatePullRequest";
pub(super) const CLOSE: &str = "closePullRequest";

const UPDATES: [&str; 4] = ["title", "body", "base", "state"];
const WHAT: &str = "The pull request";

const ABOUT_UPDATE: &str = "\
Change the title, body, base branch or state of a pull request. Only what updates names is changed. It cannot be merged \
by this.";

const ABOUT_CLOSE: &str = "\
Close a pull request without merging it. One that is closed or merged already stays as it is.";

pub(super) fn update_tool() -> Tool {
    let updates = json!({
        "type": "object",
        "description": "What to change; at least one of these.",
        "properties": {
            "title": schema::text("The new title."),
            "body": schema::text("The new body, in Markdown, in place of the whole old one."),
            "base": schema::text("The branch that receives the changes from now on."),
            "state": schema::choice(&["open", "closed"], "Reopen it, or close it.")
        },
        "additionalProperties": false
    });
    let arguments = schema::of_repository(json!({ "prNumber": schema::number("pull request"), "updates": updates }));
    let tool = schema::tool(
        UPDATE,
        "Update a pull request",
        ABOUT_UPDATE,
        Kind::Updates,
        (arguments, &["owner", "repo", "prNumber", "updates"]),
        &[("pullRequest", schema::pull_request())],
    );
    let closes = json!({ "closePullRequest": { "updates.state": ["closed"] } });
    let scope = json!({ "prNumber": "session.created", "updates.base": "session.base" });
    schema::saying(tool, json!({ "amountsTo": closes, "scope": scope }))
}

pub(super) fn close_tool() -> Tool {
    let arguments = schema::of_repository(json!({ "prNumber": schema::number("pull request") }));
    let tool = schema::tool(
        CLOSE,
        "Close a pull request",
        ABOUT_CLOSE,
        Kind::Closes,
        (arguments, &["owner", "repo", "prNumber"]),
        &[("closed", schema::closed())],
    );
    schema::saying(tool, json!({ "approval": "required" }))
}

pub(super) async fn update(arguments: Option<JsonObject>, github: &GitHub, call: &Call) -> Result<Answer, Fault> {
    let arguments = Arguments::new(arguments, &["owner", "repo", "prNumber", "updates"])?;
    let repo = Repo::parse(&arguments)?;
    let number = number(&arguments, "prNumber")?;
    let updates = fields::updates(&arguments, &UPDATES)?;
    let mut changes = Map::new();
    if let Some(title) = fields::new_title(&updates)? {
        changes.insert("title".to_owned(), title.into());
    }
    if let Some(base) = reference(&updates, "base")? {
        changes.insert("base".to_owned(), base.into());
    }
    if let Some(state) = fields::state(&updates)? {
        changes.insert("state".to_owned(), state.into());
    }
    let body = fields::body(&updates)?;
    let mut turn = started(github, call).await?;
    if let Some(body) = body {
        // The marker of the call that created it stays.
        let old = find(github, call, &repo, &number).await?.body.unwrap_or_default();
        let new = Marker::found_in(&old).map_or(body.clone(), |marker| marker.added_to(&body));
        changes.insert("body".to_owned(), new.into());
    }
    let changed = change(github, &mut turn, call, (&repo, &number), changes).await?;
    Ok(Answer::of(&json!({ "pullRequest": changed.whole() })))
}

pub(super) async fn close(arguments: Option<JsonObject>, github: &GitHub, call: &Call) -> Result<Answer, Fault> {
    let arguments = Arguments::new(arguments, &["owner", "repo", "prNumber"])?;
    let repo = Repo::parse(&arguments)?;
    let number = number(&arguments, "prNumber")?;
    let mut turn = started(github, call).await?;
    if find(github, call, &repo, &number).await?.state != "closed" {
        let closed = Map::from_iter([("state".to_owned(), "closed".into())]);
        change(github, &mut turn, call, (&repo, &number), closed).await?;
    }
    Ok(Answer::of(&json!({ "closed": true })))
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
    parsed(&reply).ok_or_else(|| call.unsettled("GitHub's answer cannot be read"))
}

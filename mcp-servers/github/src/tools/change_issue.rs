//! `updateIssue` and `closeIssue`

use gavel_mcp_base::{Answer, Arguments};
use reqwest::Method;
use rmcp::model::{JsonObject, Tool};
use serde_json::{Map, Value, json};

use super::schema::{self, Kind};
use super::target::{Repo, number};
use super::{fields, issues, refused};
use crate::call::Call;
use crate::error::{Fault, not_found};
use crate::github::http::parsed;
use crate::github::{GitHub, Turn};
use crate::marker::Marker;
use crate::wire::{Issue, WireIssue};

pub(super) const UPDATE: &str = "updateIssue";
pub(super) const CLOSE: &str = "closeIssue";

const UPDATES: [&str; 6] = ["title", "body", "state", "stateReason", "labels", "assignees"];
const REASONS: [&str; 4] = ["completed", "not_planned", "duplicate", "reopened"];
const WHAT: &str = "The issue";

const ABOUT_UPDATE: &str = "\
Change the title, body, state, labels or assignees of an issue. Only what updates names is changed; labels and \
assignees replace all that it has. A pull request is not an issue.";

const ABOUT_CLOSE: &str = "Close an issue. One that is closed already stays as it is. A pull request is not an issue.";

pub(super) fn update_tool() -> Tool {
    let updates = json!({
        "type": "object",
        "description": "What to change; at least one of these.",
        "properties": {
            "title": schema::text("The new title."),
            "body": schema::text("The new body, in Markdown, in place of the whole old one."),
            "state": schema::choice(&["open", "closed"], "Reopen it, or close it."),
            "stateReason": schema::choice(&REASONS, "Why, together with state."),
            "labels": schema::names("All its labels from now on; an empty list removes them."),
            "assignees": schema::names("All its assignees from now on, by login; an empty list removes them.")
        },
        "additionalProperties": false
    });
    let arguments = schema::of_repository(json!({ "issueNumber": schema::number("issue"), "updates": updates }));
    let tool = schema::tool(
        UPDATE,
        "Update an issue",
        ABOUT_UPDATE,
        Kind::Updates,
        (arguments, &["owner", "repo", "issueNumber", "updates"]),
        &[("issue", schema::issue())],
    );
    let closes = json!({ "closeIssue": { "updates.state": ["closed"] } });
    schema::saying(
        tool,
        json!({ "amountsTo": closes, "scope": { "issueNumber": "session.created" } }),
    )
}

pub(super) fn close_tool() -> Tool {
    let arguments = schema::of_repository(json!({ "issueNumber": schema::number("issue") }));
    let tool = schema::tool(
        CLOSE,
        "Close an issue",
        ABOUT_CLOSE,
        Kind::Closes,
        (arguments, &["owner", "repo", "issueNumber"]),
        &[("closed", schema::closed())],
    );
    schema::saying(tool, json!({ "approval": "required" }))
}

pub(super) async fn update(arguments: Option<JsonObject>, github: &GitHub, call: &Call) -> Result<Answer, Fault> {
    let arguments = Arguments::new(arguments, &["owner", "repo", "issueNumber", "updates"])?;
    let repo = Repo::parse(&arguments)?;
    let number = number(&arguments, "issueNumber")?;
    let updates = fields::updates(&arguments, &UPDATES)?;
    let mut changes = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        changes.extend(value.map(|value| (name.to_owned(), value)));
    };
    set("title", fields::new_title(&updates)?.map(Value::from));
    set("state", fields::state(&updates)?.map(Value::from));
    let reasons = REASONS.map(|reason| (reason, reason));
    set(
        "state_reason",
        updates.choice("stateReason", &reasons)?.map(Value::from),
    );
    set("labels", fields::labels(&updates)?.map(Value::from));
    set("assignees", fields::assignees(&updates)?.map(Value::from));
    let body = fields::body(&updates)?;
    let (mut turn, old) = started(github, call, &repo, &number).await?;
    if let Some(body) = body {
        // The marker of the call that created it stays.
        let marker = Marker::found_in(old.body.as_deref().unwrap_or_default());
        let new = marker.map_or(body.clone(), |marker| marker.added_to(&body));
        changes.insert("body".to_owned(), new.into());
    }
    let changed = change(github, &mut turn, call, (&repo, &number), changes).await?;
    Ok(Answer::of(&json!({ "issue": Issue::from(changed) })))
}

pub(super) async fn close(arguments: Option<JsonObject>, github: &GitHub, call: &Call) -> Result<Answer, Fault> {
    let arguments = Arguments::new(arguments, &["owner", "repo", "issueNumber"])?;
    let repo = Repo::parse(&arguments)?;
    let number = number(&arguments, "issueNumber")?;
    let (mut turn, old) = started(github, call, &repo, &number).await?;
    if old.state != "closed" {
        let closed = Map::from_iter([("state".to_owned(), "closed".into())]);
        change(github, &mut turn, call, (&repo, &number), closed).await?;
    }
    Ok(Answer::of(&json!({ "closed": true })))
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
    parsed(&reply).ok_or_else(|| call.unsettled("GitHub's answer cannot be read"))
}

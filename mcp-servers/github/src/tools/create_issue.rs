//! `createIssue`

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use gavel_mcp_base::{Answer, Arguments, Moment, ToolError};
use reqwest::Method;
use rmcp::model::{JsonObject, Tool};
use serde_json::json;
use tokio::time::Instant;

use super::schema::{self, Kind};
use super::target::Repo;
use super::{fields, refused};
use crate::call::Call;
use crate::error::{Fault, unavailable};
use crate::github::http::parsed;
use crate::github::{GitHub, Pages};
use crate::marker::Marker;
use crate::wire::{Issue, WireIssue};

pub(super) const NAME: &str = "createIssue";

/// How many issues since the first attempt are looked at, in pages of 100.
const MAX_PAGES: usize = 10;
/// How far GitHub's clock may be behind the caller's, in microseconds. The marker decides, so a long time does no harm.
const SKEW: i64 = 15 * 60 * 1_000_000;
/// A new issue appears in the list with a delay, so the list is read twice.
const LOOKS: u32 = 2;
const BETWEEN_LOOKS: Duration = Duration::from_secs(3);

const ABOUT: &str = "\
Open an issue in a repository. Labels that do not exist yet are created; without write access GitHub drops them.";

pub(super) fn tool() -> Tool {
    let arguments = schema::of_repository(json!({
        "title": schema::text("The title, one line."),
        "body": schema::text("The text, in Markdown."),
        "labels": schema::names("The names of its labels.")
    }));
    let tool = schema::tool(
        NAME,
        "Open an issue",
        ABOUT,
        Kind::Creates,
        (arguments, &["owner", "repo", "title"]),
        &[("issue", schema::issue())],
    );
    schema::saying(tool, json!({ "creates": { "issueNumber": "issue.number" } }))
}

pub(super) async fn carry_out(arguments: Option<JsonObject>, github: &GitHub, call: &Call) -> Result<Answer, Fault> {
    let arguments = Arguments::new(arguments, &["owner", "repo", "title", "body", "labels"])?;
    let repo = Repo::parse(&arguments)?;
    let mut body = json!({ "title": fields::title(&arguments)? });
    let text = fields::body(&arguments)?.unwrap_or_default();
    body["body"] = match &call.marker {
        Some(marker) => marker.added_to(&text).into(),
        None => text.into(),
    };
    if let Some(labels) = fields::labels(&arguments)? {
        body["labels"] = labels.into();
    }
    let turn = github.turn(call.deadline).await;
    let mut turn = turn.map_err(|error| call.before_looking(error))?;
    if let (Some(first), Some(marker)) = (call.first_attempt, &call.marker) {
        let found = look(github, call, &repo, marker, first).await;
        if let Some(found) = found.map_err(|error| call.before_looking(error))? {
            return Ok(answer(found));
        }
    }
    let url = repo.url(github, &["issues"]);
    let reply = github.write(&mut turn, call, Method::POST, url, &body).await?;
    if !reply.status.is_success() {
        return Err(refused(github, call, &repo, &reply, "The repository").await.into());
    }
    let made: WireIssue = parsed(&reply).ok_or_else(|| call.unsettled("GitHub's answer cannot be read"))?;
    Ok(answer(made))
}

/// The issue that an earlier attempt created.
async fn look(
    github: &GitHub,
    call: &Call,
    repo: &Repo,
    marker: &Marker,
    first: Moment,
) -> Result<Option<WireIssue>, ToolError> {
    for look in 1..=LOOKS {
        if let Some(found) = look_at_list(github, call, repo, marker, Moment(first.0 - SKEW)).await? {
            return Ok(Some(found));
        }
        if look < LOOKS {
            let then = Instant::now() + BETWEEN_LOOKS;
            if then >= call.deadline {
                return Err(unavailable());
            }
            tokio::time::sleep_until(then).await;
        }
    }
    Ok(None)
}

/// The newest issues come first, so the list ends with the first one that is older than the call.
async fn look_at_list(
    github: &GitHub,
    call: &Call,
    repo: &Repo,
    marker: &Marker,
    since: Moment,
) -> Result<Option<WireIssue>, ToolError> {
    let mut url = repo.url(github, &["issues"]);
    url.query_pairs_mut()
        .append_pair("state", "all")
        .append_pair("sort", "created")
        .append_pair("direction", "desc")
        .append_pair("since", &text(since));
    let mut pages = Pages::of(github, url, call.deadline, "The repository");
    for _ in 0..MAX_PAGES {
        let Some(page) = pages.next::<Vec<WireIssue>>().await? else {
            return Ok(None);
        };
        for issue in page {
            if marker.is_in(issue.body.as_deref()) && issue.pull_request.is_none() {
                return Ok(Some(issue));
            }
            if Moment::parse(&issue.created_at).is_some_and(|created| created < since) {
                return Ok(None);
            }
        }
    }
    match pages.are_all_read() {
        true => Ok(None),
        // Too many to say that it is not among them.
        false => Err(unavailable()),
    }
}

fn text(moment: Moment) -> String {
    let moment = DateTime::<Utc>::from_timestamp_micros(moment.0).unwrap_or_default();
    moment.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn answer(made: WireIssue) -> Answer {
    Answer::of(&json!({ "issue": Issue::from(made) }))
}

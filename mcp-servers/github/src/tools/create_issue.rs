//! `createIssue`

use std::sync::Arc;
use std::time::Duration;

use gavel_mcp_base::{Fault, Kind, Moment, Tool, ToolError};
use reqwest::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use super::Repo;
use super::{Service, refused};
use crate::call::Call;
use crate::error::unavailable;
use crate::github::{GitHub, Pages};
use crate::marker::Marker;
use crate::wire::Issue;

/// How many issues since the first attempt are looked at, in pages of 100.
const MAX_PAGES: usize = 10;
/// How far GitHub's clock may be behind the caller's, in microseconds. The marker decides, so a long time does no harm.
const SKEW: i64 = 15 * 60 * 1_000_000;
/// A new issue appears in the list with a delay, so the list is read twice.
const LOOKS: u32 = 2;
const BETWEEN_LOOKS: Duration = Duration::from_secs(3);

const ABOUT: &str = "\
Open an issue in a repository. Labels that do not exist yet are created; without write access GitHub drops them.";

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    #[serde(flatten)]
    repo: Repo,
    /// The title, one line.
    #[schemars(length(min = 1, max = super::MAX_TITLE))]
    title: String,
    /// The text, in Markdown.
    #[serde(default)]
    #[schemars(extend("x-exact" = true))]
    body: String,
    /// The names of its labels.
    #[schemars(length(max = 100), inner(length(min = 1, max = 50)))]
    labels: Option<Vec<String>>,
}

/// The answer of each tool that makes or changes an issue.
#[derive(Serialize, JsonSchema)]
pub(super) struct Made {
    pub(super) issue: Issue,
}

pub(super) fn tool() -> Tool<Service> {
    let tool = super::tool("createIssue", "Open an issue", ABOUT, Kind::Creates, create);
    tool.with_settings(json!({ "creates": { "issueNumber": "issue.number" } }))
}

async fn create(github: Arc<GitHub>, arguments: Arguments, call: Call) -> Result<Made, Fault> {
    let (github, call) = (&*github, &call);
    let repo = arguments.repo.checked()?;
    let text = call.marked(super::valid_body(&arguments.body)?);
    let mut body = json!({ "title": arguments.title, "body": text });
    if let Some(labels) = super::valid_names("labels", arguments.labels)? {
        body["labels"] = labels.into();
    }
    let turn = github.turn(call.deadline).await;
    let mut turn = turn.map_err(|error| call.before_looking(error))?;
    if let (Some(first), Some(marker)) = (call.first_attempt, &call.marker) {
        let found = look(github, call, &repo, marker, first).await;
        if let Some(issue) = found.map_err(|error| call.before_looking(error))? {
            return Ok(Made { issue });
        }
    }
    let url = repo.url(github, &["issues"]);
    let reply = github.write(&mut turn, call, Method::POST, url, &body).await?;
    if !reply.status.is_success() {
        return Err(refused(github, call, &repo, &reply, "The repository").await.into());
    }
    let issue = call.made(&reply)?;
    Ok(Made { issue })
}

/// The issue that an earlier attempt created.
async fn look(
    github: &GitHub,
    call: &Call,
    repo: &Repo,
    marker: &Marker,
    first: Moment,
) -> Result<Option<Issue>, ToolError> {
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
) -> Result<Option<Issue>, ToolError> {
    let mut url = repo.url(github, &["issues"]);
    url.query_pairs_mut()
        .append_pair("state", "all")
        .append_pair("sort", "created")
        .append_pair("direction", "desc")
        .append_pair("since", &since.text());
    let mut pages = Pages::of(github, url, call.deadline, "The repository");
    for _ in 0..MAX_PAGES {
        let Some(page) = pages.next::<Vec<Issue>>().await? else {
            return Ok(None);
        };
        for issue in page {
            if marker.is_in(issue.text.whole.as_deref()) && !issue.is_pull_request {
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

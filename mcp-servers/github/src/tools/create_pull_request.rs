//! `createPullRequest`

use std::sync::Arc;

use gavel_mcp_base::{Fault, Kind, Tool, ToolError};
use reqwest::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{MAX_REF, Repo, reference};
use super::{Service, pull_requests, refused};
use crate::call::Call;
use crate::error::Code;
use crate::github::refusal::says_exists;
use crate::github::{GitHub, Pages};
use crate::wire::PullRequest;

/// Pull requests of one head into one base, in all states: 300.
const MAX_PAGES: usize = 3;
const MAX: usize = 300;

const ABOUT: &str = "\
Open a pull request that asks to merge the branch head into the branch base. Both branches exist already, and head has \
commits that base lacks. If one is open for them, the error already_exists has its number.";

#[derive(Deserialize, JsonSchema)]
struct Request {
    #[serde(flatten)]
    repo: Repo,
    /// The title, one line.
    #[schemars(length(min = 1, max = super::MAX_TITLE))]
    title: String,
    /// The branch with the changes: feature-x, or octocat:feature-x for a branch of a fork.
    #[schemars(length(min = 1, max = 300))]
    head: String,
    /// The branch that receives the changes, usually the default branch.
    #[schemars(length(min = 1, max = MAX_REF))]
    base: String,
    /// What it changes and why, in Markdown.
    #[serde(default)]
    #[schemars(extend("x-exact" = true))]
    body: String,
}

/// The answer of each tool that makes or changes a pull request.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Made {
    pub(super) pull_request: PullRequest,
}

pub(super) fn tool() -> Tool<Service> {
    let tool = super::tool("createPullRequest", "Open a pull request", ABOUT, Kind::Creates, create);
    tool.with_settings(json!({
        "scope": { "head": "session.branch", "base": "session.base" },
        "creates": { "prNumber": "pullRequest.number" }
    }))
}

async fn create(github: Arc<GitHub>, given: Request, call: Call) -> Result<Made, Fault> {
    let (github, call) = (&*github, &call);
    let request = Request {
        repo: given.repo.checked()?,
        title: given.title,
        head: pull_requests::head(given.head)?,
        base: reference("base", given.base)?,
        body: super::valid_body(&given.body)?,
    };
    let looked = async {
        let turn = github.turn(call.deadline).await?;
        let found = match call.first_attempt {
            None => None,
            Some(_) => look(github, call, &request).await?,
        };
        Ok((turn, found))
    };
    let (mut turn, found) = looked.await.map_err(|error| call.before_looking(error))?;
    if let Some(found) = found {
        return settled(found);
    }
    let text = call.marked(request.body.clone());
    let body = json!({ "title": request.title, "head": request.head, "base": request.base, "body": text });
    let url = request.repo.url(github, &["pulls"]);
    let reply = github.write(&mut turn, call, Method::POST, url, &body).await?;
    if reply.status.is_success() {
        let pull_request = call.made(&reply)?;
        return Ok(Made { pull_request });
    }
    if says_exists(&reply) {
        // Another attempt may have been faster than this one.
        let found = look(github, call, &request).await;
        return match found {
            Ok(Some(found)) => settled(found),
            Ok(None) => Err(already_exists().into()),
            Err(error) if call.marker.is_some() => {
                let why = format!("a pull request exists and could not be looked up ({})", error.code());
                Err(call.unsettled(&why))
            }
            Err(_) => Err(already_exists().into()),
        };
    }
    Err(refused(github, call, &request.repo, &reply, "The repository")
        .await
        .into())
}

/// A pull request of this head and base.
enum Found {
    /// This call's, in whatever state it is now.
    Own(Box<PullRequest>),
    /// Another one, which is open. Closed ones are no obstacle.
    Other(Box<PullRequest>),
}

async fn look(github: &GitHub, call: &Call, request: &Request) -> Result<Option<Found>, ToolError> {
    let mut url = request.repo.url(github, &["pulls"]);
    url.query_pairs_mut()
        .append_pair("state", "all")
        .append_pair("head", &pull_requests::owned_head(&request.repo, &request.head))
        .append_pair("base", &request.base);
    let pages = Pages::of(github, url, call.deadline, "The repository");
    let (mut all, _) = pages.entries(MAX_PAGES, MAX).await?;
    let branch = request.head.rsplit(':').next().unwrap_or_default();
    // GitHub ignores a filter that it does not understand.
    all.retain(|PullRequest { listed, .. }| listed.head.r#ref == branch && listed.base.r#ref == request.base);
    if let Some(marker) = &call.marker
        && let Some(at) = all.iter().position(|found| marker.is_in(found.text.whole.as_deref()))
    {
        return Ok(Some(Found::Own(Box::new(all.swap_remove(at)))));
    }
    let other = all.into_iter().find(|found| found.listed.state == "open");
    Ok(other.map(|other| Found::Other(Box::new(other))))
}

fn settled(found: Found) -> Result<Made, Fault> {
    match found {
        Found::Own(found) => Ok(Made { pull_request: *found }),
        Found::Other(other) => Err(already_exists()
            .with("number", other.listed.number)
            .with("htmlUrl", other.listed.html_url)
            .into()),
    }
}

fn already_exists() -> ToolError {
    let words = "A pull request of this head into this base is open, which this call did not create. Nothing was done.";
    ToolError::new(Code::AlreadyExists, words)
}

//! `createPullRequest`

use gavel_mcp_base::{Answer, Arguments, ToolError, missing};
use reqwest::Method;
use rmcp::model::{JsonObject, Tool};
use serde_json::json;

use super::schema::{self, Kind};
use super::target::{Repo, reference};
use super::{fields, pull_requests, refused};
use crate::call::Call;
use crate::error::{Code, Fault};
use crate::github::http::parsed;
use crate::github::refusal::says_exists;
use crate::github::{GitHub, Pages};
use crate::wire::WirePullRequest;

pub(super) const NAME: &str = "createPullRequest";

/// Pull requests of one head into one base, in all states: 300.
const MAX_PAGES: usize = 3;
const MAX: usize = 300;

const ABOUT: &str = "\
Open a pull request that asks to merge the branch head into the branch base. Both branches exist already, and head has \
commits that base lacks. If one is open for them, the error already_exists has its number.";

pub(super) fn tool() -> Tool {
    let arguments = schema::of_repository(json!({
        "title": schema::text("The title, one line."),
        "head": schema::text("The branch with the changes: feature-x, or octocat:feature-x for a branch of a fork."),
        "base": schema::text("The branch that receives the changes, usually the default branch."),
        "body": schema::text("What it changes and why, in Markdown.")
    }));
    let tool = schema::tool(
        NAME,
        "Open a pull request",
        ABOUT,
        Kind::Creates,
        (arguments, &["owner", "repo", "title", "head", "base"]),
        &[("pullRequest", schema::pull_request())],
    );
    let scope = json!({ "head": "session.branch", "base": "session.base" });
    schema::saying(
        tool,
        json!({ "scope": scope, "creates": { "prNumber": "pullRequest.number" } }),
    )
}

struct Request {
    repo: Repo,
    title: String,
    head: String,
    base: String,
    body: Option<String>,
}

fn parse(arguments: Option<JsonObject>) -> Result<Request, ToolError> {
    let arguments = Arguments::new(arguments, &["owner", "repo", "title", "head", "base", "body"])?;
    Ok(Request {
        repo: Repo::parse(&arguments)?,
        title: fields::title(&arguments)?,
        head: pull_requests::head(&arguments)?.ok_or_else(|| missing("head"))?,
        base: reference(&arguments, "base")?.ok_or_else(|| missing("base"))?,
        body: fields::body(&arguments)?,
    })
}

pub(super) async fn carry_out(arguments: Option<JsonObject>, github: &GitHub, call: &Call) -> Result<Answer, Fault> {
    let request = parse(arguments)?;
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
    let mut body = json!({ "title": request.title, "head": request.head, "base": request.base });
    let text = request.body.clone().unwrap_or_default();
    body["body"] = match &call.marker {
        Some(marker) => marker.added_to(&text).into(),
        None => text.into(),
    };
    let url = request.repo.url(github, &["pulls"]);
    let reply = github.write(&mut turn, call, Method::POST, url, &body).await?;
    if reply.status.is_success() {
        let made: WirePullRequest = parsed(&reply).ok_or_else(|| call.unsettled("GitHub's answer cannot be read"))?;
        return Ok(answer(made));
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
    Own(Box<WirePullRequest>),
    /// Another one, which is open. Closed ones are no obstacle.
    Other(Box<WirePullRequest>),
}

async fn look(github: &GitHub, call: &Call, request: &Request) -> Result<Option<Found>, ToolError> {
    let mut url = request.repo.url(github, &["pulls"]);
    url.query_pairs_mut()
        .append_pair("state", "all")
        .append_pair("head", &pull_requests::owned_head(&request.repo, &request.head))
        .append_pair("base", &request.base);
    let pages = Pages::of(github, url, call.deadline, "The repository");
    let (mut all, _) = pages.entries::<WirePullRequest>(MAX_PAGES, MAX).await?;
    let branch = request.head.rsplit(':').next().unwrap_or_default();
    // GitHub ignores a filter that it does not understand.
    all.retain(|found| found.head.r#ref == branch && found.base.r#ref == request.base);
    if let Some(marker) = &call.marker
        && let Some(at) = all.iter().position(|found| marker.is_in(found.body.as_deref()))
    {
        return Ok(Some(Found::Own(Box::new(all.swap_remove(at)))));
    }
    let other = all.into_iter().find(|found| found.state == "open");
    Ok(other.map(|other| Found::Other(Box::new(other))))
}

fn settled(found: Found) -> Result<Answer, Fault> {
    match found {
        Found::Own(found) => Ok(answer(*found)),
        Found::Other(other) => Err(already_exists()
            .with("number", other.number)
            .with("htmlUrl", other.html_url)
            .into()),
    }
}

fn already_exists() -> ToolError {
    let words = "A pull request of this head into this base is open, which this call did not create. Nothing was done.";
    ToolError::new(Code::AlreadyExists, words)
}

fn answer(made: WirePullRequest) -> Answer {
    Answer::of(&json!({ "pullRequest": made.whole() }))
}

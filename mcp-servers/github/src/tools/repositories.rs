//! `listRepositories` and `retrieveRepository`

use gavel_mcp_base::{Answer, Arguments, ToolError};
use rmcp::model::{JsonObject, Tool};
use serde::Deserialize;
use serde_json::json;

use super::schema::{self, Kind};
use super::target::Repo;
use crate::call::Call;
use crate::github::{GitHub, Pages};
use crate::wire::{Repository, WireRepository};

pub(super) const LIST: &str = "listRepositories";
pub(super) const RETRIEVE: &str = "retrieveRepository";

const MAX: usize = 1000;
/// Of 100 entries each.
const MAX_PAGES: usize = 10;

const ABOUT_LIST: &str = "\
List the repositories that can be used with the server's GitHub account, sorted by full name, at most 1000. \
truncated says that there are more; retrieveRepository finds those too.";

const ABOUT_RETRIEVE: &str = "\
Look up one repository: its default branch, its addresses, whether it is private or archived. repository is null when \
it does not exist or the server's GitHub account cannot see it. A renamed repository is found under its old name and \
shown with its new one.";

pub(super) fn list_tool() -> Tool {
    let repositories = json!({ "type": "array", "items": schema::repository() });
    let truncated = schema::truncated("Whether there are more than these.");
    let results = [("repositories", repositories), ("truncated", truncated)];
    let tool = schema::tool(
        LIST,
        "List repositories",
        ABOUT_LIST,
        Kind::Reads,
        (json!({}), &[]),
        &results,
    );
    schema::saying(tool, json!({ "repositories": true }))
}

pub(super) fn retrieve_tool() -> Tool {
    let arguments = (schema::of_repository(json!({})), ["owner", "repo"].as_slice());
    let repository = schema::nullable(schema::repository(), "null when there is no such repository.");
    let results = [("repository", repository)];
    schema::tool(
        RETRIEVE,
        "Look up a repository",
        ABOUT_RETRIEVE,
        Kind::Reads,
        arguments,
        &results,
    )
}

#[derive(Deserialize)]
struct OfInstallation {
    repositories: Vec<WireRepository>,
}

pub(super) async fn list(arguments: Option<JsonObject>, github: &GitHub, call: &Call) -> Result<Answer, ToolError> {
    Arguments::new(arguments, &[])?;
    let what = "The list of repositories";
    let (found, truncated) = if github.tokens.are_an_installations() {
        let mut pages = Pages::of(
            github,
            github.url(&["installation", "repositories"]),
            call.deadline,
            what,
        );
        let mut all = Vec::new();
        for _ in 0..MAX_PAGES {
            match pages.next::<OfInstallation>().await? {
                Some(page) => all.extend(page.repositories),
                None => break,
            }
        }
        (all, !pages.are_all_read())
    } else {
        let mut url = github.url(&["user", "repos"]);
        url.query_pairs_mut().append_pair("sort", "full_name");
        Pages::of(github, url, call.deadline, what)
            .entries(MAX_PAGES, MAX)
            .await?
    };
    let found = found.into_iter().filter(|found| call.allows(&found.full_name));
    let repositories: Vec<Repository> = found.map(Into::into).collect();
    Ok(Answer::of(
        &json!({ "repositories": repositories, "truncated": truncated }),
    ))
}

pub(super) async fn retrieve(arguments: Option<JsonObject>, github: &GitHub, call: &Call) -> Result<Answer, ToolError> {
    let arguments = Arguments::new(arguments, &["owner", "repo"])?;
    let repo = Repo::parse(&arguments)?;
    let found: Option<WireRepository> = github
        .find(&repo.url(github, &[]), call.deadline, "The repository")
        .await?;
    Ok(Answer::of(&json!({ "repository": found.map(Repository::from) })))
}

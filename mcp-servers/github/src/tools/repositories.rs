//! `listRepositories` and `retrieveRepository`

use std::sync::Arc;

use gavel_mcp_base::{Fault, Kind, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Repo;
use super::Service;
use crate::call::Call;
use crate::github::{GitHub, Pages};
use crate::wire::Repository;

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

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Serialize, JsonSchema)]
struct Repositories {
    repositories: Vec<Repository>,
    /// Whether there are more than these.
    truncated: bool,
}

#[derive(Serialize, JsonSchema)]
struct Found {
    /// null when there is no such repository.
    repository: Option<Repository>,
}

pub(super) fn list_tool() -> Tool<Service> {
    let tool = super::tool("listRepositories", "List repositories", ABOUT_LIST, Kind::Reads, list);
    tool.with_settings(json!({ "repositories": true }))
}

pub(super) fn retrieve_tool() -> Tool<Service> {
    super::tool(
        "retrieveRepository",
        "Look up a repository",
        ABOUT_RETRIEVE,
        Kind::Reads,
        retrieve,
    )
}

#[derive(Deserialize)]
struct OfInstallation {
    repositories: Vec<Repository>,
}

async fn list(github: Arc<GitHub>, _: Nothing, call: Call) -> Result<Repositories, Fault> {
    let github = &*github;
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
    let found = found
        .into_iter()
        .filter(|found: &Repository| call.allows(&found.full_name));
    Ok(Repositories {
        repositories: found.collect(),
        truncated,
    })
}

async fn retrieve(github: Arc<GitHub>, repo: Repo, call: Call) -> Result<Found, Fault> {
    let url = repo.checked()?.url(&github, &[]);
    let repository = github.find(&url, call.deadline, "The repository").await?;
    Ok(Found { repository })
}

//! The tools: their descriptions for models, how their arguments become requests, and their answers.

mod change_issue;
mod change_pull_request;
mod configure_git;
mod create_issue;
mod create_pull_request;
mod create_repository;
mod fields;
mod file;
mod issues;
mod pull_requests;
mod repositories;
mod schema;
mod target;
mod tree;

use gavel_mcp_base::{Answer, ToolError};
use rmcp::model::{JsonObject, Tool};

use crate::call::Call;
use crate::error::{Code, Fault, internal};
use crate::github::GitHub;
use crate::github::http::Reply;
use crate::github::refusal::refusal;
use crate::wire::WireRepository;
use target::Repo;

/// All tools, always in the same order. The one for containers needs a container engine.
pub(crate) fn all(has_engine: bool) -> Vec<Tool> {
    let mut all = vec![
        repositories::list_tool(),
        repositories::retrieve_tool(),
        create_repository::tool(),
        tree::tool(),
        file::tool(),
        pull_requests::list_tool(),
        pull_requests::read_tool(),
        create_pull_request::tool(),
        change_pull_request::update_tool(),
        change_pull_request::close_tool(),
        issues::tool(),
        create_issue::tool(),
        change_issue::update_tool(),
        change_issue::close_tool(),
    ];
    if has_engine {
        all.push(configure_git::tool());
    }
    all
}

/// Carries out a call of an existing tool.
pub(crate) async fn carry_out(
    name: &str,
    arguments: Option<JsonObject>,
    github: &GitHub,
    call: &Call,
) -> Result<Answer, Fault> {
    match name {
        repositories::LIST => Ok(repositories::list(arguments, github, call).await?),
        repositories::RETRIEVE => Ok(repositories::retrieve(arguments, github, call).await?),
        create_repository::NAME => create_repository::carry_out(arguments, github, call).await,
        tree::NAME => Ok(tree::carry_out(arguments, github, call).await?),
        file::NAME => Ok(file::carry_out(arguments, github, call).await?),
        pull_requests::LIST => Ok(pull_requests::list(arguments, github, call).await?),
        pull_requests::READ => Ok(pull_requests::read(arguments, github, call).await?),
        create_pull_request::NAME => create_pull_request::carry_out(arguments, github, call).await,
        change_pull_request::UPDATE => change_pull_request::update(arguments, github, call).await,
        change_pull_request::CLOSE => change_pull_request::close(arguments, github, call).await,
        issues::READ => Ok(issues::read(arguments, github, call).await?),
        create_issue::NAME => create_issue::carry_out(arguments, github, call).await,
        change_issue::UPDATE => change_issue::update(arguments, github, call).await,
        change_issue::CLOSE => change_issue::close(arguments, github, call).await,
        configure_git::NAME => configure_git::carry_out(arguments, github, call).await,
        _ => Err(internal().into()),
    }
}

/// The error for a change that GitHub refused. A change does not follow a redirect, so a repository that was renamed
/// refuses it; the error then has its new name.
async fn refused(github: &GitHub, call: &Call, repo: &Repo, reply: &Reply, what: &str) -> ToolError {
    if !reply.status.is_redirection() {
        return refusal(reply, what);
    }
    let url = repo.url(github, &[]);
    let found = github
        .get::<WireRepository>(&url, call.deadline, "The repository")
        .await;
    let renamed = ToolError::new(Code::NotFound, "The repository has another name now. Nothing was done.");
    match found {
        Ok(repository) => renamed
            .and(&format!("Use {}.", repository.full_name))
            .with("fullName", repository.full_name),
        Err(_) => renamed,
    }
}

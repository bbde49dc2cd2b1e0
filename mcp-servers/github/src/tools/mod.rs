//! The tools: their arguments and answers with their descriptions for models, and what they do.

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
mod target;
mod tree;

use std::sync::Arc;
use std::time::Duration;

use gavel_mcp_base::{Answer, Fault, Kind, Output, Tool, ToolError, Whole};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;

use crate::call::{Attempts, Call};
use crate::error::Code;
use crate::github::GitHub;
use crate::github::http::Reply;
use crate::github::refusal::refusal;
use crate::settings::Settings;
use crate::wire::WireRepository;
use target::Repo;

/// All tools, always in the same order. The one for containers needs a container engine.
pub(crate) fn all(has_engine: bool) -> Vec<Tool<Service>> {
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

/// The service behind the tools.
#[derive(Debug)]
pub(crate) struct Service {
    github: Arc<GitHub>,
    timeout: Duration,
    attempts: Attempts,
}

impl Service {
    pub(crate) fn new(settings: Settings) -> anyhow::Result<Self> {
        Ok(Self {
            timeout: settings.timeout,
            github: Arc::new(GitHub::new(settings)?),
            attempts: Attempts::default(),
        })
    }
}

/// A tool. A call that is dropped while GitHub executes it has an unknown outcome; its next attempt looks first.
fn tool<A, R, F>(
    name: &'static str,
    title: &str,
    description: &'static str,
    kind: Kind,
    run: fn(Arc<GitHub>, A, Call) -> F,
) -> Tool<Service>
where
    A: DeserializeOwned + JsonSchema + Send + Sync + 'static,
    R: Output + Send + 'static,
    F: Future<Output = Result<R, Fault>> + Send + 'static,
{
    let without_tokens = move |service: Arc<Service>, given: gavel_mcp_base::Call<A>| async move {
        let done = async {
            let deadline = Instant::now() + service.timeout;
            let call = Call::begin(name, &given, &service.attempts, deadline).await?;
            run(service.github.clone(), given.arguments, call).await
        };
        let mut answer = match done.await {
            Ok(done) => done.into_answer(),
            Err(Fault::Refused(error)) => Answer::from(error),
            Err(unsettled) => return Err(unsettled),
        };
        service.github.tokens.redact(&mut answer.body);
        Ok(Whole::<R::Body>::from(answer))
    };
    let tool = Tool::new(name, title, description, kind, without_tokens).open_world(true);
    match tool.has_argument("owner") && tool.has_argument("repo") {
        true => tool.with_settings(json!({ "scope": { "owner": "session.owner", "repo": "session.repo" } })),
        false => tool,
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

//! `configureGitClientInContainer`

use std::sync::Arc;

use gavel_mcp_base::{Fault, Kind, Secret, Tool, ToolError, internal, invalid, missing};
use gavel_mcp_docker::{GitAccount, GitFault, configure_git};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Service;
use crate::call::Call;
use crate::error::Code;
use crate::github::GitHub;

const MAX_TOKEN: usize = 1000;
/// The user that an installation's token belongs to.
const INSTALLATION: &str = "x-access-token";

const ABOUT: &str = "\
Give git in a container the credential for GitHub and an author for commits, so that clone, fetch and push work with \
plain https addresses. The credential is that of the server, and is never shown. An App's lasts an hour; call this \
again to renew it.";

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// The container, as createContainer returned it.
    #[schemars(length(min = 1, max = 64))]
    container_id: String,
    /// The user of the credential, such as x-access-token, which an App's token always has.
    #[schemars(length(min = 1, max = 100))]
    username: String,
    /// Left out, it is the server's own, which is what is needed almost always.
    #[schemars(extend("x-exact" = true))]
    token: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Configured {
    /// Always true.
    configured: bool,
    /// The host whose addresses git can use now.
    host: String,
}

pub(super) fn tool() -> Tool<Service> {
    let title = "Configure git in a container";
    let tool = super::tool("configureGitClientInContainer", title, ABOUT, Kind::Updates, configure);
    tool.with_settings(json!({ "hidden": ["token"], "scope": {}, "repositories": true }))
}

/// A further attempt does the same again.
async fn configure(github: Arc<GitHub>, arguments: Arguments, call: Call) -> Result<Configured, Fault> {
    let username = arguments.username;
    if username.contains(char::is_control) {
        return Err(invalid("username", "has to be one line").into());
    }
    let given = arguments.token.map(token).transpose()?;
    if call.allowed.is_some() && call.repository.is_none() {
        let words = "Outside of a planning session the credential would reach others, so git is not configured.";
        return Err(call.not_allowed(words).into());
    }
    // Without an engine the tool is not offered.
    let git = github.git.as_ref().ok_or_else(internal)?;
    let (username, token) = match given {
        Some(token) => (username, token),
        None => {
            let repository = call.repository.as_ref().map(|(_, name)| name.as_str());
            let token = github.tokens.for_git(repository, call.deadline).await;
            let token = token.map_err(|error| call.before_looking(error))?;
            match github.tokens.are_an_installations() {
                true => (INSTALLATION.to_owned(), token),
                false => (username, token),
            }
        }
    };
    let account = GitAccount {
        url: git.url.clone(),
        username,
        token,
        name: git.name.clone(),
        email: git.email.clone(),
    };
    let configuring = configure_git(&git.engine, call.owner.as_deref(), &arguments.container_id, &account);
    match tokio::time::timeout_at(call.deadline, configuring).await {
        Ok(Ok(())) => Ok(Configured {
            configured: true,
            host: git.host.clone(),
        }),
        Ok(Err(fault)) => Err(answer(fault, &call)),
        Err(_) => Err(call.unsettled("the container engine did not answer in time")),
    }
}

fn token(token: String) -> Result<Secret, ToolError> {
    match token.as_str() {
        "" => Err(missing("token")),
        token if token.len() > MAX_TOKEN || !token.chars().all(|c| c.is_ascii_graphic()) => {
            Err(invalid("token", "is not a token"))
        }
        token => Ok(Secret::new(token)),
    }
}

fn answer(fault: GitFault, call: &Call) -> Fault {
    let refused = |code, words: &str| Fault::Refused(ToolError::new(code, words));
    match fault {
        GitFault::NotFound => refused(
            Code::NotFound,
            "There is no such container. listContainers lists those of this session; createContainer creates one.",
        ),
        GitFault::NotRunning => refused(
            Code::NotRunning,
            "The container has stopped. Destroy it with destroyContainer and create another one.",
        ),
        GitFault::NoGit => refused(
            Code::GitUnusable,
            "Git cannot be configured in this container: it has no git, or its user has no home directory.",
        ),
        GitFault::Unavailable => call.before_looking(ToolError::new(
            Code::EngineUnavailable,
            "The container engine does not answer, or reports a failure of its own. Nothing was done. Try again later.",
        )),
        GitFault::Unsettled => call.unsettled("the container engine's answer was lost"),
        GitFault::InvalidHost => {
            tracing::error!("the address of GitHub is none that git can be configured for");
            Fault::Refused(internal())
        }
    }
}

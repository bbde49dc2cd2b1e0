//! `configureGitClientInContainer`

use gavel_mcp_base::{Answer, Arguments, Secret, ToolError, invalid, missing};
use gavel_mcp_docker::{GitAccount, GitFault, configure_git};
use rmcp::model::{JsonObject, Tool};
use serde_json::json;

use super::schema::{self, Kind};
use super::target::required;
use crate::call::Call;
use crate::error::{Code, Fault, internal};
use crate::github::GitHub;

pub(super) const NAME: &str = "configureGitClientInContainer";

const MAX_ID: usize = 64;
const MAX_USERNAME: usize = 100;
const MAX_TOKEN: usize = 1000;
/// The user that an installation's token belongs to.
const INSTALLATION: &str = "x-access-token";

const ABOUT: &str = "\
Give git in a container the credential for GitHub and an author for commits, so that clone, fetch and push work with \
plain https addresses. The credential is that of the server, and is never shown. An App's lasts an hour; call this \
again to renew it.";

pub(super) fn tool() -> Tool {
    let token = "Left out, it is the server's own, which is what is needed almost always.";
    let arguments = json!({
        "containerId": schema::text("The container, as createContainer returned it."),
        "username": schema::text("The user of the credential, such as x-access-token, which an App's token always has."),
        "token": schema::text(token)
    });
    let results = [
        (
            "configured",
            json!({ "type": "boolean", "description": "Always true." }),
        ),
        ("host", schema::text("The host whose addresses git can use now.")),
    ];
    let required = ["containerId", "username"];
    let tool = schema::tool(
        NAME,
        "Configure git in a container",
        ABOUT,
        Kind::Updates,
        (arguments, &required),
        &results,
    );
    schema::saying(tool, json!({ "hidden": ["token"], "scope": {}, "repositories": true }))
}

/// A further attempt does the same again.
pub(super) async fn carry_out(arguments: Option<JsonObject>, github: &GitHub, call: &Call) -> Result<Answer, Fault> {
    let arguments = Arguments::new(arguments, &["containerId", "username", "token"])?;
    let container = required(&arguments, "containerId", MAX_ID)?;
    let username = required(&arguments, "username", MAX_USERNAME)?;
    if username.contains(char::is_control) {
        return Err(invalid("username", "has to be one line").into());
    }
    let given = token(&arguments)?;
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
    let configuring = configure_git(&git.engine, call.owner.as_deref(), &container, &account);
    match tokio::time::timeout_at(call.deadline, configuring).await {
        Ok(Ok(())) => Ok(Answer::of(&json!({ "configured": true, "host": git.host }))),
        Ok(Err(fault)) => Err(answer(fault, call)),
        Err(_) => Err(call.unsettled("the container engine did not answer in time")),
    }
}

fn token(arguments: &Arguments) -> Result<Option<Secret>, ToolError> {
    let Some(token) = arguments.exact_text("token")? else {
        return Ok(None);
    };
    match token {
        "" => Err(missing("token")),
        token if token.len() > MAX_TOKEN || !token.chars().all(|c| c.is_ascii_graphic()) => {
            Err(invalid("token", "is not a token"))
        }
        token => Ok(Some(Secret::new(token))),
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

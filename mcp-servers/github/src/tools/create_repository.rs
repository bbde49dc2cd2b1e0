//! `createRepository`

use std::sync::Arc;

use gavel_mcp_base::{Fault, Kind, Moment, Tool, ToolError, invalid};
use reqwest::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

use super::Service;
use super::is_name;
use crate::auth::Tokens;
use crate::call::Call;
use crate::error::Code;
use crate::github::GitHub;
use crate::github::refusal::{refusal, says_exists};
use crate::wire::{Repository, User};

/// How far GitHub's clock may be behind the caller's, in microseconds.
const SKEW: i64 = 30_000_000;

const ABOUT: &str = "\
Create an empty repository for the server's GitHub account. It is private unless isPrivate is false. An existing \
repository with this name is the error already_exists.";

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// The name, without an owner: letters, digits, `.`, `_` and `-`.
    #[schemars(length(min = 1, max = 100))]
    name: String,
    /// One line about it.
    #[schemars(length(max = 350))]
    description: Option<String>,
    /// Whether only people with access see it. true when left out.
    is_private: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
struct Made {
    repository: Repository,
}

pub(super) fn tool() -> Tool<Service> {
    let tool = super::tool("createRepository", "Create a repository", ABOUT, Kind::Creates, create);
    tool.with_settings(json!({ "approval": "required", "repositories": true }))
}

/// Where the repository will be.
struct Place {
    /// Its owner, if it had to be looked up.
    owner: Option<String>,
    url: Url,
}

async fn create(github: Arc<GitHub>, arguments: Arguments, call: Call) -> Result<Made, Fault> {
    let (github, call) = (&*github, &call);
    let Arguments {
        name,
        description,
        is_private,
    } = arguments;
    // GitHub would change other characters instead of refusing them, and the name could not be looked up.
    if !is_name(&name) {
        let rule = "has to consist of letters, digits, `.`, `_` and `-`, without an owner";
        return Err(invalid("name", rule).into());
    }
    let mut body = json!({ "name": name, "private": is_private.unwrap_or(true) });
    if let Some(description) = description {
        if description.contains(char::is_control) {
            return Err(invalid("description", "has to be one line").into());
        }
        body["description"] = description.into();
    }
    let looked = async {
        let turn = github.turn(call.deadline).await?;
        let mut place = place(github, call).await?;
        allowed(github, call, &mut place, &name).await?;
        if call.first_attempt.is_none() {
            return Ok((turn, place, None));
        }
        let found = look(github, call, &mut place, &name).await?;
        Ok((turn, place, found))
    };
    let (mut turn, mut place, found) = looked.await.map_err(|error| call.before_looking(error))?;
    if let Some(found) = found {
        return settled(found, call);
    }
    let reply = github
        .write(&mut turn, call, Method::POST, place.url.clone(), &body)
        .await?;
    if reply.status.is_success() {
        let repository = call.made(&reply)?;
        return Ok(Made { repository });
    }
    let error = refusal(&reply, "The account");
    if !says_exists(&reply) {
        return Err(error.into());
    }
    // On a further attempt it may be ours after all: what was looked up a moment ago was not up to date.
    match look(github, call, &mut place, &name).await {
        Ok(Some(found)) => settled(found, call),
        Ok(None) => Err(already_exists().into()),
        Err(_) if call.first_attempt.is_none() => Err(already_exists().into()),
        Err(error) => Err(call.before_looking(error)),
    }
}

async fn place(github: &GitHub, call: &Call) -> Result<Place, ToolError> {
    let cannot = |words: &str| ToolError::new(Code::Forbidden, words).with("needed", Value::Null);
    match &github.tokens {
        Tokens::Fixed(_) if github.tokens.are_an_installations() => Err(cannot(
            "A repository cannot be created with an installation's token. Nothing was done.",
        )),
        Tokens::Fixed(_) => Ok(Place {
            owner: None,
            url: github.url(&["user", "repos"]),
        }),
        Tokens::Installation(installation) => {
            let account = installation.account(call.deadline).await?;
            if !account.is_organization() {
                return Err(cannot(
                    "An App cannot create a repository in a user's account, only in an organization. Nothing was done.",
                ));
            }
            Ok(Place {
                url: github.url(&["orgs", &account.login, "repos"]),
                owner: Some(account.login),
            })
        }
    }
}

async fn owner<'p>(github: &GitHub, call: &Call, place: &'p mut Place) -> Result<&'p str, ToolError> {
    let owner = match place.owner.take() {
        Some(owner) => owner,
        None => {
            let user: User = github.get(&github.url(&["user"]), call.deadline, "The account").await?;
            user.login
        }
    };
    Ok(place.owner.insert(owner))
}

/// May the caller use the repository that is to be created?
async fn allowed(github: &GitHub, call: &Call, place: &mut Place, name: &str) -> Result<(), ToolError> {
    if call.allowed.is_none() {
        return Ok(());
    }
    let repository = format!("{}/{name}", owner(github, call, place).await?);
    match call.allows(&repository) {
        true => Ok(()),
        false => Err(call.not_allowed(&format!("{repository} is not among them."))),
    }
}

/// The account's repository with this name. An old name of another repository leads to that one, and is free.
async fn look(github: &GitHub, call: &Call, place: &mut Place, name: &str) -> Result<Option<Repository>, ToolError> {
    let owner = owner(github, call, place).await?;
    let url = github.url(&["repos", owner, name]);
    let found: Option<Repository> = github.find(&url, call.deadline, "The repository").await?;
    Ok(found.filter(|found| found.name.eq_ignore_ascii_case(name)))
}

/// The existing repository is this call's if it was made since the first attempt.
fn settled(found: Repository, call: &Call) -> Result<Made, Fault> {
    let made = found.created_at.as_deref().and_then(Moment::parse);
    match (call.first_attempt, made) {
        (Some(first), Some(made)) if made.0 >= first.0 - SKEW => Ok(Made { repository: found }),
        _ => Err(already_exists().with("htmlUrl", found.html_url).into()),
    }
}

fn already_exists() -> ToolError {
    let words = "The account has a repository with this name, which this call did not create. Nothing was done.";
    ToolError::new(Code::AlreadyExists, words)
}

//! `createRepository`

use gavel_mcp_base::{Answer, Arguments, Moment, ToolError, invalid};
use reqwest::Method;
use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};
use url::Url;

use super::schema::{self, Kind};
use super::target::{is_name, required};
use crate::auth::Tokens;
use crate::call::Call;
use crate::error::{Code, Fault};
use crate::github::GitHub;
use crate::github::http::parsed;
use crate::github::refusal::{refusal, says_exists};
use crate::wire::{Repository, WireRepository, WireUser};

pub(super) const NAME: &str = "createRepository";

const MAX_DESCRIPTION: usize = 350;
/// How far GitHub's clock may be behind the caller's, in microseconds.
const SKEW: i64 = 30_000_000;

const ABOUT: &str = "\
Create an empty repository for the server's GitHub account. It is private unless isPrivate is false. An existing \
repository with this name is the error already_exists.";

pub(super) fn tool() -> Tool {
    let arguments = json!({
        "name": schema::text("The name, without an owner: letters, digits, `.`, `_` and `-`."),
        "description": schema::text("One line about it."),
        "isPrivate": { "type": "boolean", "description": "Whether only people with access see it. true when left out." }
    });
    let tool = schema::tool(
        NAME,
        "Create a repository",
        ABOUT,
        Kind::Creates,
        (arguments, &["name"]),
        &[("repository", schema::repository())],
    );
    schema::saying(tool, json!({ "approval": "required", "repositories": true }))
}

struct Request {
    name: String,
    body: Value,
}

fn parse(arguments: Option<JsonObject>) -> Result<Request, ToolError> {
    let arguments = Arguments::new(arguments, &["name", "description", "isPrivate"])?;
    let name = required(&arguments, "name", 100)?;
    // GitHub would change other characters instead of refusing them, and the name could not be looked up.
    if !is_name(&name) {
        return Err(invalid(
            "name",
            "has to consist of letters, digits, `.`, `_` and `-`, without an owner",
        ));
    }
    let mut body = json!({ "name": name, "private": arguments.boolean("isPrivate")?.unwrap_or(true) });
    if let Some(description) = arguments.text("description", MAX_DESCRIPTION)? {
        if description.contains(char::is_control) {
            return Err(invalid("description", "has to be one line"));
        }
        body["description"] = description.into();
    }
    Ok(Request { name, body })
}

/// Where the repository will be.
struct Place {
    /// Its owner, if it had to be looked up.
    owner: Option<String>,
    url: Url,
}

pub(super) async fn carry_out(arguments: Option<JsonObject>, github: &GitHub, call: &Call) -> Result<Answer, Fault> {
    let request = parse(arguments)?;
    let looked = async {
        let turn = github.turn(call.deadline).await?;
        let mut place = place(github, call).await?;
        allowed(github, call, &mut place, &request.name).await?;
        if call.first_attempt.is_none() {
            return Ok((turn, place, None));
        }
        let found = look(github, call, &mut place, &request.name).await?;
        Ok((turn, place, found))
    };
    let (mut turn, mut place, found) = looked.await.map_err(|error| call.before_looking(error))?;
    if let Some(found) = found {
        return settled(found, call);
    }
    let reply = github
        .write(&mut turn, call, Method::POST, place.url.clone(), &request.body)
        .await?;
    if reply.status.is_success() {
        let made: WireRepository = parsed(&reply).ok_or_else(|| call.unsettled("GitHub's answer cannot be read"))?;
        return Ok(answer(made));
    }
    let error = refusal(&reply, "The account");
    if !says_exists(&reply) {
        return Err(error.into());
    }
    // On a further attempt it may be ours after all: what was looked up a moment ago was not up to date.
    match look(github, call, &mut place, &request.name).await {
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
            let user: WireUser = github.get(&github.url(&["user"]), call.deadline, "The account").await?;
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
async fn look(
    github: &GitHub,
    call: &Call,
    place: &mut Place,
    name: &str,
) -> Result<Option<WireRepository>, ToolError> {
    let owner = owner(github, call, place).await?;
    let url = github.url(&["repos", owner, name]);
    let found: Option<WireRepository> = github.find(&url, call.deadline, "The repository").await?;
    Ok(found.filter(|found| found.name.eq_ignore_ascii_case(name)))
}

/// The existing repository is this call's if it was made since the first attempt.
fn settled(found: WireRepository, call: &Call) -> Result<Answer, Fault> {
    let made = found.created_at.as_deref().and_then(Moment::parse);
    match (call.first_attempt, made) {
        (Some(first), Some(made)) if made.0 >= first.0 - SKEW => Ok(answer(found)),
        _ => Err(already_exists().with("htmlUrl", found.html_url).into()),
    }
}

fn already_exists() -> ToolError {
    let words = "The account has a repository with this name, which this call did not create. Nothing was done.";
    ToolError::new(Code::AlreadyExists, words)
}

fn answer(made: WireRepository) -> Answer {
    Answer::of(&json!({ "repository": Repository::from(made) }))
}

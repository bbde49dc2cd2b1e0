//! The tools: their arguments and answers with their descriptions for models, and what they do.

mod change;
mod configure_git;
mod create_issue;
mod create_pull_request;
mod create_repository;
mod file;
mod issues;
mod pull_requests;
mod repositories;
mod tree;

use std::sync::Arc;
use std::time::Duration;

use gavel_mcp_base::{Answer, Fault, Kind, Output, Tool, ToolError, Whole, invalid, too_long};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use url::Url;

use crate::call::{Attempts, Call};
use crate::error::Code;
use crate::github::refusal::refusal;
use crate::github::{GitHub, Reply};
use crate::marker;
use crate::settings::Settings;
use crate::wire::Repository;

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
        pull_requests::update_tool(),
        pull_requests::close_tool(),
        issues::read_tool(),
        create_issue::tool(),
        issues::update_tool(),
        issues::close_tool(),
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
    let found = github.get::<Repository>(&url, call.deadline, "The repository").await;
    let renamed = ToolError::new(Code::NotFound, "The repository has another name now. Nothing was done.");
    match found {
        Ok(repository) => renamed
            .and(&format!("Use {}.", repository.full_name))
            .with("fullName", repository.full_name),
        Err(_) => renamed,
    }
}

/// The values that are given, by name.
fn given<const N: usize>(values: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let given = values
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    given.collect()
}

/// GitHub's limit, in characters.
const MAX_TITLE: usize = 256;
/// GitHub's limit of 65,536 characters, less room for a marker.
const MAX_BODY: usize = 65_000;

/// A body, without markers.
fn valid_body(body: &str) -> Result<String, ToolError> {
    let length = body.chars().count();
    match length > MAX_BODY {
        true => Err(too_long("body", length, MAX_BODY, "characters")),
        false => Ok(marker::removed(body)),
    }
}

/// Names, one line each.
fn valid_names(name: &str, names: Option<Vec<String>>) -> Result<Option<Vec<String>>, ToolError> {
    match names.iter().flatten().any(|name| name.contains(char::is_control)) {
        true => Err(invalid(name, "has to list names of one line")),
        false => Ok(names),
    }
}

/// Checks that there is something to change; `allowed` names what can be.
fn some_update<T: Default + PartialEq>(updates: T, allowed: &str) -> Result<T, ToolError> {
    match updates == T::default() {
        true => Err(invalid("updates", &format!("has to have at least one of: {allowed}"))),
        false => Ok(updates),
    }
}

// What a call names: a repository, a pull request or issue, a path, a branch. Each becomes part of an address, so each
// is valid or refused.

const MAX_PATH: usize = 4096;

/// A repository.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct Repo {
    /// The user or organization that owns the repository.
    #[schemars(length(min = 1, max = 100))]
    owner: String,
    /// The name of the repository, without its owner.
    #[schemars(length(min = 1, max = 100))]
    repo: String,
}

impl Repo {
    /// The same, if both names can be those of a repository.
    fn checked(self) -> Result<Self, ToolError> {
        let plain = |each: char| each.is_ascii_alphanumeric() || "-_".contains(each);
        if !self.owner.chars().all(plain) {
            return Err(invalid("owner", "is not a user or an organization, such as octocat"));
        }
        match is_name(&self.repo) {
            true => Ok(self),
            false => {
                let rule = "is not the name of a repository, such as hello-world, without its owner";
                Err(invalid("repo", rule))
            }
        }
    }

    /// An address below the repository.
    fn url(&self, github: &GitHub, rest: &[&str]) -> Url {
        github.url(&[&["repos", &self.owner, &self.repo], rest].concat())
    }
}

/// Whether a repository can have this name.
fn is_name(name: &str) -> bool {
    let plain = |each: char| each.is_ascii_alphanumeric() || "._-".contains(each);
    !name.is_empty() && name.chars().all(plain) && name != "." && name != ".." && !name.ends_with(".git")
}

/// The longest name of a branch, a tag or a commit.
const MAX_REF: usize = 255;

/// A branch, a tag or a commit.
fn reference(name: &str, reference: String) -> Result<String, ToolError> {
    let forbidden = |each: char| each.is_control() || each.is_whitespace() || "~^:?*[\\".contains(each);
    let mut segments = reference.split('/');
    if reference.contains(forbidden)
        || reference.contains("..")
        || !segments.all(|segment| !segment.is_empty() && segment != ".")
    {
        return Err(invalid(name, "is not a branch, a tag or a commit"));
    }
    Ok(reference)
}

/// The segments of a path in a repository.
fn path(path: &str) -> Result<Option<Vec<String>>, ToolError> {
    let path = path.trim_end_matches('/');
    if path.is_empty() {
        return Ok(None);
    }
    let segments: Vec<_> = path.split('/').map(str::to_owned).collect();
    let plain = |segment: &String| !matches!(segment.as_str(), "" | "." | "..") && !segment.contains(char::is_control);
    if path.len() > MAX_PATH || !segments.iter().all(plain) {
        let rule = "has to be relative to the repository's root, such as src/main.rs, without `.` and `..`";
        return Err(invalid("path", rule));
    }
    Ok(Some(segments))
}

#[cfg(test)]
mod target_tests {
    use super::*;

    fn repo(owner: &str, repo: &str) -> Repo {
        let (owner, repo) = (owner.to_owned(), repo.to_owned());
        Repo { owner, repo }
    }

    #[test]
    fn nothing_that_changes_the_address_is_accepted() {
        for (owner, name) in [
            ("a/b", "c"),
            ("..", "c"),
            ("a", ".."),
            ("a", "b/c"),
            ("a", "b?c"),
            ("a", "."),
            ("a b", "c"),
            ("a", "b#c"),
            ("a", "%2e%2e"),
            ("a", "b.git"),
        ] {
            assert!(repo(owner, name).checked().is_err(), "{owner}/{name}");
        }
        assert!(repo("acme-1", "dates.rs_2").checked().is_ok());
        for path_given in ["/x", "a//b", "../x", "a/./b", "a/..", "a\nb"] {
            assert!(path(path_given).is_err(), "{path_given}");
        }
        let segments = path("a b/ü?.rs/").expect("a path");
        assert_eq!(segments, Some(vec!["a b".to_owned(), "ü?.rs".to_owned()]));
        assert_eq!(path("/").expect("the root"), None);
        for given in ["a..b", "a b", "a:b", "/a", "a/", "./a", "a^"] {
            assert!(reference("ref", given.to_owned()).is_err(), "{given}");
        }
        assert!(reference("ref", "feature/x#1".to_owned()).is_ok());
    }
}

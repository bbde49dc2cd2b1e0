//! Changes of an issue or a pull request. What is changed is looked up first, so the number of a pull request changes
//! no issue. A further attempt makes the same change again, which has the same result.

use gavel_mcp_base::Fault;
use reqwest::Method;
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use url::Url;

use super::{Repo, refused};
use crate::call::Call;
use crate::error::not_found;
use crate::github::{GitHub, Reply, Turn};
use crate::marker::Marker;

/// What has a number in a repository.
#[derive(Debug)]
pub(super) struct Numbered {
    /// As the beginning of a sentence.
    pub(super) what: &'static str,
    /// Its list in a repository's address.
    pub(super) list: &'static str,
    pub(super) repo: Repo,
    pub(super) number: u32,
}

impl Numbered {
    pub(super) fn url(&self, github: &GitHub) -> Url {
        self.repo.url(github, &[self.list, &self.number.to_string()])
    }
}

/// What it was before a change.
#[derive(Deserialize)]
struct Old {
    state: String,
    body: Option<String>,
    /// GitHub's issues include its pull requests, which this server treats as absent there.
    pull_request: Option<IgnoredAny>,
}

/// The answer of each tool that closes something.
#[derive(Serialize, JsonSchema)]
pub(super) struct Closed {
    /// Always true. It may have been closed before.
    closed: bool,
}

/// Makes these changes. A new body keeps the marker of the call that created it.
pub(super) async fn update<T: DeserializeOwned>(
    github: &GitHub,
    call: &Call,
    named: &Numbered,
    body: Option<String>,
    mut changes: Map<String, Value>,
) -> Result<T, Fault> {
    let (mut turn, old) = begin(github, call, named).await?;
    if let Some(body) = body {
        let marker = Marker::found_in(old.body.as_deref().unwrap_or_default());
        let new = marker.map_or(body.clone(), |marker| marker.added_to(&body));
        changes.insert("body".to_owned(), new.into());
    }
    let reply = patch(github, &mut turn, call, named, changes).await?;
    call.made(&reply)
}

/// Closes it, unless it is closed already.
pub(super) async fn close(github: &GitHub, call: &Call, named: &Numbered) -> Result<Closed, Fault> {
    let (mut turn, old) = begin(github, call, named).await?;
    if old.state != "closed" {
        let closed = Map::from_iter([("state".to_owned(), "closed".into())]);
        patch(github, &mut turn, call, named, closed).await?;
    }
    Ok(Closed { closed: true })
}

async fn begin<'a>(github: &'a GitHub, call: &Call, named: &Numbered) -> Result<(Turn<'a>, Old), Fault> {
    let found = async {
        let turn = github.turn(call.deadline).await?;
        let old = github.find(&named.url(github), call.deadline, named.what).await?;
        Ok((turn, old))
    };
    let (turn, old) = found.await.map_err(|error| call.before_looking(error))?;
    let old = old.filter(|old: &Old| old.pull_request.is_none());
    let old = old.ok_or_else(|| match named.list {
        "issues" => {
            not_found(named.what).and("If the number is that of a pull request, use the tools for pull requests.")
        }
        _ => not_found(named.what),
    });
    Ok((turn, old?))
}

async fn patch(
    github: &GitHub,
    turn: &mut Turn<'_>,
    call: &Call,
    named: &Numbered,
    changes: Map<String, Value>,
) -> Result<Reply, Fault> {
    let sent = github
        .write(turn, call, Method::PATCH, named.url(github), &changes.into())
        .await;
    let reply = sent.map_err(|fault| call.natural(fault))?;
    match reply.status.is_success() {
        true => Ok(reply),
        false => Err(refused(github, call, &named.repo, &reply, named.what).await.into()),
    }
}

//! `getRepositoryTree`

use std::collections::BTreeMap;
use std::sync::Arc;

use gavel_mcp_base::{Fault, Kind, Tool, ToolError};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use url::Url;

use super::Service;
use super::{MAX_REF, Repo, path, reference};
use crate::call::Call;
use crate::error::not_found;
use crate::github::GitHub;
use crate::github::refusal::refusal;

const MAX: usize = 5000;
/// The most bytes of all entries: clients accept no more than 256 KiB of a result, and would cut it anywhere.
const MAX_BYTES: usize = 192 * 1024;
/// What an entry takes beside its path.
const ENTRY: usize = 50;
const WHAT: &str = "The repository, or this branch, tag, commit or directory in it,";

const ABOUT: &str = "\
List the files and directories of a repository, or of one directory in it with everything below it. Paths are relative to the \
repository's root. The entries nearest to the root come first, at most 5000; truncated says that there are more: ask \
for a directory by path. commit is the commit that was listed. An empty repository \
has none, and no entries.";

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    #[serde(flatten)]
    repo: Repo,
    /// A branch, tag or commit. The default branch when left out.
    #[schemars(length(min = 1, max = MAX_REF))]
    r#ref: Option<String>,
    /// Only this directory, such as src/http. The whole repository when left out.
    #[schemars(extend("x-exact" = true))]
    path: Option<String>,
}

#[derive(Default, Serialize, JsonSchema)]
struct Tree {
    /// The id of the commit; null when the repository is empty.
    commit: Option<String>,
    /// The id of the tree; null when the repository is empty.
    sha: Option<String>,
    entries: Vec<Entry>,
    /// Whether there are more entries than these.
    truncated: bool,
}

pub(super) fn tool() -> Tool<Service> {
    super::tool(
        "getRepositoryTree",
        "List a repository's files",
        ABOUT,
        Kind::Reads,
        list,
    )
}

#[derive(Debug, Deserialize)]
struct WireCommit {
    sha: String,
}

#[derive(Debug, Deserialize)]
struct WireTree {
    sha: String,
    tree: Vec<WireEntry>,
    truncated: bool,
}

#[derive(Debug, Deserialize)]
struct WireEntry {
    path: String,
    mode: String,
    r#type: String,
    sha: String,
    #[serde(default)]
    size: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Entry {
    path: String,
    #[schemars(extend("enum" = ["file", "directory", "link", "submodule"]))]
    kind: &'static str,
    /// Of files, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

async fn list(github: Arc<GitHub>, arguments: Arguments, call: Call) -> Result<Tree, Fault> {
    let (github, call) = (&*github, &call);
    let repo = arguments.repo.checked()?;
    let start = arguments.r#ref.map(|name| reference("ref", name)).transpose()?;
    let directory = path(&arguments.path.unwrap_or_default())?.unwrap_or_default();
    let Some(commit) = commit(github, call, &repo, start.as_deref()).await? else {
        return Ok(Tree::default());
    };
    let mut sha = commit.clone();
    for segment in &directory {
        let Some(tree) = read::<WireTree>(github, call, &address(github, &repo, &sha, false)).await? else {
            return Err(not_found(WHAT).into());
        };
        let inside = tree
            .tree
            .into_iter()
            .find(|entry| entry.path == *segment && entry.r#type == "tree");
        sha = inside.ok_or_else(|| not_found(WHAT))?.sha;
    }
    let Some(whole) = read::<WireTree>(github, call, &address(github, &repo, &sha, true)).await? else {
        return Ok(Tree::default());
    };
    let mut entries: BTreeMap<String, WireEntry> = by_path(whole.tree);
    if whole.truncated {
        // GitHub cuts a large tree where it happens to be; what lies at the top is complete all the same.
        let top = read::<WireTree>(github, call, &address(github, &repo, &sha, false)).await?;
        entries.extend(top.map(|top| by_path(top.tree)).unwrap_or_default());
    }
    let mut entries: Vec<_> = entries.into_values().collect();
    let truncated = whole.truncated || entries.len() > MAX;
    // By depth; within one depth they stay sorted by path.
    entries.sort_by_key(|entry| entry.path.matches('/').count());
    entries.truncate(MAX);
    let prefix: String = directory.iter().flat_map(|segment| [segment.as_str(), "/"]).collect();
    let mut room = MAX_BYTES;
    let count = entries.len();
    let fits = entries
        .into_iter()
        .map(|entry| shown(entry, &prefix))
        .take_while(|entry| {
            room = room.saturating_sub(entry.path.len() + ENTRY);
            room > 0
        });
    let entries: Vec<_> = fits.collect();
    let truncated = truncated || entries.len() < count;
    Ok(Tree {
        commit: Some(commit),
        sha: Some(whole.sha),
        entries,
        truncated,
    })
}

fn by_path(entries: Vec<WireEntry>) -> BTreeMap<String, WireEntry> {
    entries.into_iter().map(|entry| (entry.path.clone(), entry)).collect()
}

fn shown(entry: WireEntry, prefix: &str) -> Entry {
    let kind = match (entry.r#type.as_str(), entry.mode.as_str()) {
        ("tree", _) => "directory",
        ("commit", _) => "submodule",
        (_, "120000") => "link",
        _ => "file",
    };
    Entry {
        path: format!("{prefix}{}", entry.path),
        kind,
        size: entry.size.filter(|_| kind == "file"),
    }
}

fn address(github: &GitHub, repo: &Repo, sha: &str, recursive: bool) -> Url {
    let mut url = repo.url(github, &["git", "trees", sha]);
    if recursive {
        url.query_pairs_mut().append_pair("recursive", "1");
    }
    url
}

/// The commit that a reference names, so that all further requests are about the same one. `None` for an empty
/// repository. A list of one, because a single commit comes with the changes that it made.
async fn commit(
    github: &GitHub,
    call: &Call,
    repo: &Repo,
    reference: Option<&str>,
) -> Result<Option<String>, ToolError> {
    let mut url = repo.url(github, &["commits"]);
    let parameters = reference.map(|reference| ("sha", reference));
    url.query_pairs_mut()
        .append_pair("per_page", "1")
        .extend_pairs(parameters);
    let commits: Option<Vec<WireCommit>> = read(github, call, &url).await?;
    Ok(commits
        .and_then(|commits| commits.into_iter().next())
        .map(|commit| commit.sha))
}

/// `None` for an empty repository, which GitHub reports as a conflict.
async fn read<T: DeserializeOwned>(github: &GitHub, call: &Call, url: &Url) -> Result<Option<T>, ToolError> {
    let reply = github.read(url, call.deadline).await?;
    match reply.status.as_u16() {
        409 => Ok(None),
        200 => reply.json().map(Some).ok_or_else(crate::error::unavailable),
        _ => Err(refusal(&reply, WHAT)),
    }
}

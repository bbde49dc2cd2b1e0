//! `getRepositoryTree`

use std::collections::BTreeMap;

use gavel_mcp_base::{Answer, Arguments, ToolError};
use rmcp::model::{JsonObject, Tool};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::Url;

use super::schema::{self, Kind, object};
use super::target::{Repo, path, reference};
use crate::call::Call;
use crate::error::not_found;
use crate::github::GitHub;
use crate::github::http::parsed;
use crate::github::refusal::refusal;

pub(super) const NAME: &str = "getRepositoryTree";

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

pub(super) fn tool() -> Tool {
    let arguments = schema::of_repository(json!({
        "ref": schema::text("A branch, tag or commit. The default branch when left out."),
        "path": schema::text("Only this directory, such as src/http. The whole repository when left out.")
    }));
    let entry = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "kind": { "type": "string", "enum": ["file", "directory", "link", "submodule"] },
            "size": { "type": "integer", "description": "Of files, in bytes." }
        },
        "required": ["path", "kind"],
        "additionalProperties": false
    });
    let entries = json!({ "type": "array", "items": entry });
    let sha =
        json!({ "type": ["string", "null"], "description": "The id of the tree; null when the repository is empty." });
    let commit = json!({
        "type": ["string", "null"],
        "description": "The id of the commit; null when the repository is empty."
    });
    let tree = object(json!({
        "commit": commit,
        "sha": sha,
        "entries": entries,
        "truncated": schema::truncated("Whether there are more entries than these.")
    }));
    let results: Vec<_> = ["commit", "sha", "entries", "truncated"]
        .into_iter()
        .map(|name| (name, tree["properties"][name].clone()))
        .collect();
    schema::tool(
        NAME,
        "List a repository's files",
        ABOUT,
        Kind::Reads,
        (arguments, &["owner", "repo"]),
        &results,
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

#[derive(Debug, Serialize)]
struct Entry {
    path: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

pub(super) async fn carry_out(
    arguments: Option<JsonObject>,
    github: &GitHub,
    call: &Call,
) -> Result<Answer, ToolError> {
    let arguments = Arguments::new(arguments, &["owner", "repo", "ref", "path"])?;
    let repo = Repo::parse(&arguments)?;
    let start = reference(&arguments, "ref")?;
    let directory = path(&arguments)?.unwrap_or_default();
    let Some(commit) = commit(github, call, &repo, start.as_deref()).await? else {
        return Ok(empty());
    };
    let mut sha = commit.clone();
    for segment in &directory {
        let Some(tree) = tree(github, call, &address(github, &repo, &sha, false)).await? else {
            return Err(not_found(WHAT));
        };
        let inside = tree
            .tree
            .into_iter()
            .find(|entry| entry.path == *segment && entry.r#type == "tree");
        sha = inside.ok_or_else(|| not_found(WHAT))?.sha;
    }
    let Some(whole) = tree(github, call, &address(github, &repo, &sha, true)).await? else {
        return Ok(empty());
    };
    let mut entries: BTreeMap<String, WireEntry> = by_path(whole.tree);
    if whole.truncated {
        // GitHub cuts a large tree where it happens to be; what lies at the top is complete all the same.
        let top = tree(github, call, &address(github, &repo, &sha, false)).await?;
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
    Ok(Answer::of(
        &json!({ "commit": commit, "sha": whole.sha, "entries": entries, "truncated": truncated }),
    ))
}

fn empty() -> Answer {
    Answer::of(&json!({ "commit": null, "sha": null, "entries": [], "truncated": false }))
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

async fn tree(github: &GitHub, call: &Call, url: &Url) -> Result<Option<WireTree>, ToolError> {
    read(github, call, url).await
}

/// `None` for an empty repository, which GitHub reports as a conflict.
async fn read<T: DeserializeOwned>(github: &GitHub, call: &Call, url: &Url) -> Result<Option<T>, ToolError> {
    let reply = github.read(url, call.deadline).await?;
    match reply.status.as_u16() {
        409 => Ok(None),
        200 => parsed(&reply).map(Some).ok_or_else(crate::error::unavailable),
        _ => Err(refusal(&reply, WHAT)),
    }
}

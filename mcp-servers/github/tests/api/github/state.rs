//! What there is at the stand-in.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{SecondsFormat, Utc};
use serde_json::{Value, json};

use super::TOKEN;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) login: String,
    pub(crate) tokens: BTreeSet<String>,
    /// By full name in lower case.
    pub(crate) repositories: BTreeMap<String, Repository>,
    /// Old full names.
    pub(crate) renamed: HashMap<String, String>,
    /// The installation's account: a login and a type.
    pub(crate) account: (String, &'static str),
    pub(crate) tokens_issued: u32,
    /// Lists of issues that do not yet have the new ones.
    pub(crate) stale_lists: u32,
    pub(crate) count: u64,
}

impl State {
    /// The only commit of each repository that has files.
    pub(crate) const COMMIT: &str = "3f1c9ab5e0d84c7796a1b2c3d4e5f60718293a4b";
}

impl Default for State {
    fn default() -> Self {
        Self {
            login: "robot".to_owned(),
            tokens: BTreeSet::from([TOKEN.to_owned()]),
            repositories: BTreeMap::new(),
            renamed: HashMap::new(),
            account: ("acme".to_owned(), "Organization"),
            tokens_issued: 0,
            stale_lists: 0,
            count: 0,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Repository {
    pub(crate) id: u64,
    pub(crate) owner: String,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) private: bool,
    pub(crate) created_at: String,
    /// Pull requests and issues, by number.
    pub(crate) pulls: BTreeMap<u64, Value>,
    pub(crate) issues: BTreeMap<u64, Value>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// GitHub cuts its recursive tree after so many entries.
    pub(crate) tree_limit: Option<usize>,
}

impl State {
    pub(crate) fn add(&mut self, owner: &str, name: &str) -> &mut Repository {
        self.count += 1;
        let repository = Repository {
            id: 1000 + self.count,
            owner: owner.to_owned(),
            name: name.to_owned(),
            created_at: "2026-01-01T00:00:00Z".to_owned(),
            ..Repository::default()
        };
        self.repositories
            .entry(key(owner, name))
            .insert_entry(repository)
            .into_mut()
    }

    pub(crate) fn repository(&mut self, owner: &str, name: &str) -> &mut Repository {
        self.repositories.get_mut(&key(owner, name)).expect("a repository")
    }

    pub(crate) fn rename(&mut self, owner: &str, name: &str, new: &str) {
        let mut repository = self.repositories.remove(&key(owner, name)).expect("a repository");
        repository.name = new.to_owned();
        self.renamed.insert(key(owner, name), key(owner, new));
        self.repositories.insert(key(owner, new), repository);
    }
}

pub(crate) fn key(owner: &str, name: &str) -> String {
    format!("{owner}/{name}").to_lowercase()
}

pub(crate) fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true)
}

impl Repository {
    pub(crate) fn json(&self) -> Value {
        let full_name = format!("{}/{}", self.owner, self.name);
        json!({
            "id": self.id,
            "name": self.name,
            "full_name": full_name,
            "owner": { "login": self.owner },
            "description": self.description,
            "private": self.private,
            "archived": false,
            "default_branch": "main",
            "html_url": format!("https://github.com/{full_name}"),
            "clone_url": format!("https://github.com/{full_name}.git"),
            "pushed_at": "2026-02-01T00:00:00Z",
            "created_at": self.created_at
        })
    }

    fn number(&self) -> u64 {
        1 + self.pulls.keys().chain(self.issues.keys()).max().copied().unwrap_or(0)
    }

    pub(crate) fn open_pull(&mut self, given: &Value) -> &Value {
        let number = self.number();
        let head = given["head"].as_str().expect("a head");
        let (owner, branch) = head.split_once(':').unwrap_or((&self.owner, head));
        let end = |branch: &str, owner: &str| json!({ "ref": branch, "sha": "a".repeat(40), "label": format!("{owner}:{branch}") });
        let pull = json!({
            "number": number,
            "title": given["title"],
            "body": given["body"],
            "state": "open",
            "draft": false,
            "merged_at": null,
            "head": end(branch, owner),
            "base": end(given["base"].as_str().expect("a base"), &self.owner),
            "user": { "login": "robot" },
            "html_url": format!("https://github.com/{}/{}/pull/{number}", self.owner, self.name),
            "created_at": now(),
            "updated_at": now()
        });
        self.pulls.entry(number).insert_entry(pull).into_mut()
    }

    pub(crate) fn open_issue(&mut self, given: &Value) -> &Value {
        let number = self.number();
        let labels = given["labels"].as_array().into_iter().flatten();
        let issue = json!({
            "number": number,
            "title": given["title"],
            "body": given["body"],
            "state": "open",
            "state_reason": null,
            "labels": labels.map(|name| json!({ "name": name })).collect::<Vec<_>>(),
            "user": { "login": "robot" },
            "comments": 0,
            "html_url": format!("https://github.com/{}/{}/issues/{number}", self.owner, self.name),
            "created_at": now(),
            "updated_at": now()
        });
        self.issues.entry(number).insert_entry(issue).into_mut()
    }

    /// A pull request as an issue, as GitHub lists them too.
    pub(crate) fn pull_as_issue(&self, number: u64) -> Option<Value> {
        let pull = self.pulls.get(&number)?;
        let mut issue = json!({ "comments": 0, "labels": [], "state_reason": null, "pull_request": {
            "diff_url": null, "html_url": null, "patch_url": null, "url": null
        } });
        for name in [
            "number",
            "title",
            "body",
            "state",
            "user",
            "html_url",
            "created_at",
            "updated_at",
        ] {
            issue[name] = pull[name].clone();
        }
        Some(issue)
    }

    pub(crate) fn file(&self, path: &str) -> Option<Value> {
        let bytes = self.files.get(path)?;
        let content = if bytes.len() > 1 << 20 {
            String::new()
        } else {
            wrapped(bytes)
        };
        let encoding = if content.is_empty() && !bytes.is_empty() {
            "none"
        } else {
            "base64"
        };
        let name = path.rsplit('/').next();
        Some(json!({
            "type": "file", "path": path, "name": name, "sha": sha(path), "size": bytes.len(),
            "content": content, "encoding": encoding
        }))
    }

    /// What lies directly in a directory; `None` if it does not exist.
    pub(crate) fn directory(&self, path: &str) -> Option<Vec<Value>> {
        let entries = self.tree(path, false)?;
        let entry = |entry: &Value| {
            let kind = if entry["type"] == "tree" { "dir" } else { "file" };
            json!({ "type": kind, "name": entry["path"], "path": entry["path"], "sha": entry["sha"], "size": 0 })
        };
        Some(entries.iter().map(entry).collect())
    }

    pub(crate) fn tree(&self, directory: &str, recursive: bool) -> Option<Vec<Value>> {
        let prefix = if directory.is_empty() {
            String::new()
        } else {
            format!("{directory}/")
        };
        let mut found = BTreeMap::new();
        for (path, bytes) in &self.files {
            let Some(rest) = path.strip_prefix(&prefix) else {
                continue;
            };
            for (at, _) in rest.match_indices('/') {
                let full = &path[..prefix.len() + at];
                let entry = json!({ "path": &rest[..at], "mode": "040000", "type": "tree", "sha": sha(full) });
                found.insert(rest[..at].to_owned(), entry);
            }
            let mode = if path.ends_with(".link") { "120000" } else { "100644" };
            let entry = json!({ "path": rest, "mode": mode, "type": "blob", "sha": sha(path), "size": bytes.len() });
            found.insert(rest.to_owned(), entry);
        }
        found.retain(|path, _| recursive || !path.contains('/'));
        (!found.is_empty()).then(|| found.into_values().collect())
    }

    /// The directory with this id.
    pub(crate) fn directory_of(&self, wanted: &str) -> Option<String> {
        if matches!(wanted, "HEAD" | "main" | State::COMMIT) {
            return Some(String::new());
        }
        let paths = self.files.keys();
        let mut directories = paths.flat_map(|path| path.match_indices('/').map(|(at, _)| &path[..at]));
        directories
            .find(|directory| sha(directory) == wanted)
            .map(str::to_owned)
    }
}

fn wrapped(bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes).into_bytes();
    let lines = text
        .chunks(60)
        .map(|line| String::from_utf8_lossy(line).into_owned() + "\n");
    lines.collect()
}

pub(crate) fn sha(path: &str) -> String {
    format!("{:016x}{}", super::crc(path), "0".repeat(24))
}

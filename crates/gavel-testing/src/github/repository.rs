//! The repository: files on one branch, issues and pull requests.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::Answer;

/// When everything in it was made; nothing depends on it.
const MADE: &str = "2026-01-01T00:00:00.000000Z";

/// Its only commit. It is the id of no directory: those are the hexadecimal digits of a path.
const COMMIT: &str = "ffffffffffffffffffffffffffffffffffffffff";

/// A repository. By default it is empty.
#[derive(Clone, Debug, Default)]
pub struct Repository {
    owner: String,
    name: String,
    files: BTreeMap<String, Vec<u8>>,
    /// Issues and pull requests, by number; a pull request has a `head`.
    items: BTreeMap<u64, Value>,
}

impl Repository {
    /// The files below a directory, with `files` in place of them or beside them, by path.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn new((owner, name): (&str, &str), directory: &Path, files: &BTreeMap<String, String>) -> io::Result<Self> {
        let mut repository = Self {
            owner: owner.to_owned(),
            name: name.to_owned(),
            ..Self::default()
        };
        read(directory, "", &mut repository.files)?;
        let given = files.iter();
        repository
            .files
            .extend(given.map(|(path, text)| (path.clone(), text.clone().into_bytes())));
        Ok(repository)
    }

    /// Opens an issue with the next number.
    pub fn open_issue(&mut self, title: &str, body: &str) {
        self.add(json!({"title": title, "body": body}));
    }

    /// The answer of a request to GitHub's API.
    pub(super) fn answer(&mut self, method: &str, path: &str, query: Option<&str>, given: &Value) -> Answer {
        let segments: Vec<String> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
            .collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let ["repos", owner, name, rest @ ..] = segments.as_slice() else {
            return not_found();
        };
        if !owner.eq_ignore_ascii_case(&self.owner) || !name.eq_ignore_ascii_case(&self.name) {
            return not_found();
        }
        let query: BTreeMap<_, _> = form_urlencoded::parse(query.unwrap_or_default().as_bytes()).collect();
        match (method, rest) {
            ("GET", []) => (200, self.shown()),
            ("GET", ["commits"]) => (200, json!([{"sha": COMMIT}])),
            ("GET", ["git", "trees", name]) => self.tree(name, query.contains_key("recursive")),
            ("GET", ["contents", path @ ..]) => self.contents(&path.join("/")),
            ("GET", [kind @ ("issues" | "pulls")]) => {
                let open = query.get("state").is_none_or(|state| state == "open");
                let fits = |item: &&Value| {
                    (*kind == "issues" || item["head"].is_object()) && (!open || item["state"] == "open")
                };
                // One page holds them all: without a link to the next one, no other is asked for.
                (200, self.items.values().filter(fits).cloned().collect())
            }
            ("POST", ["issues"]) => (201, self.add(given.clone())),
            ("POST", ["pulls"]) => (201, self.add(self.pull_request(given))),
            (method @ ("GET" | "PATCH"), [kind @ ("issues" | "pulls"), number]) => {
                let item = number.parse().ok().and_then(|number| self.items.get_mut(&number));
                match item.filter(|item| *kind == "issues" || item["head"].is_object()) {
                    None => not_found(),
                    Some(item) => {
                        if method == "PATCH" {
                            change(item, given);
                        }
                        (200, item.clone())
                    }
                }
            }
            _ => not_found(),
        }
    }

    fn shown(&self) -> Value {
        let (owner, name) = (&self.owner, &self.name);
        json!({
            "id": 1, "name": name, "full_name": format!("{owner}/{name}"), "owner": {"login": owner},
            "description": null, "private": false, "archived": false, "default_branch": "main",
            "html_url": self.page(""), "clone_url": self.page(".git"),
            "pushed_at": MADE, "created_at": MADE,
        })
    }

    fn page(&self, rest: &str) -> String {
        format!("https://github.com/{}/{}{rest}", self.owner, self.name)
    }

    /// Adds an issue, or what becomes a pull request by its further fields.
    fn add(&mut self, given: Value) -> Value {
        let number = 1 + self.items.len() as u64;
        let kind = if given["head"].is_object() { "pull" } else { "issues" };
        let mut item = json!({
            "number": number, "title": "", "body": null, "state": "open", "state_reason": null, "labels": [],
            "user": {"login": "gavel"}, "comments": 0, "html_url": self.page(&format!("/{kind}/{number}")),
            "created_at": MADE, "updated_at": MADE,
        });
        change(&mut item, &given);
        self.items.insert(number, item.clone());
        item
    }

    fn pull_request(&self, given: &Value) -> Value {
        let end = |name: &str| {
            let branch = given[name].as_str().unwrap_or_default();
            let label = format!("{}:{branch}", self.owner);
            json!({"ref": branch, "sha": hex::encode([7; 20]), "label": label})
        };
        json!({
            "title": given["title"], "body": given["body"], "draft": false, "merged_at": null,
            "head": end("head"), "base": end("base"), "pull_request": {},
        })
    }

    /// A tree: the root, or a directory by its id.
    fn tree(&self, name: &str, recursive: bool) -> Answer {
        let directory = hex::decode(name).ok().and_then(|path| String::from_utf8(path).ok());
        // Branches and tags all lead to the same files.
        let prefix = directory.map_or_else(String::new, |path| format!("{path}/"));
        let mut entries = BTreeMap::new();
        for (path, bytes) in &self.files {
            let Some(rest) = path.strip_prefix(&prefix) else {
                continue;
            };
            for (at, _) in rest.match_indices('/') {
                let sha = hex::encode(&path[..prefix.len() + at]);
                let entry = json!({"path": &rest[..at], "mode": "040000", "type": "tree", "sha": sha});
                entries.insert(&rest[..at], entry);
            }
            let (sha, size) = (hex::encode(path), bytes.len());
            let entry = json!({"path": rest, "mode": "100644", "type": "blob", "sha": sha, "size": size});
            entries.insert(rest, entry);
        }
        entries.retain(|path, _| recursive || !path.contains('/'));
        let entries: Vec<_> = entries.into_values().collect();
        (200, json!({"sha": name, "tree": entries, "truncated": false}))
    }

    fn contents(&self, path: &str) -> Answer {
        if let Some(bytes) = self.files.get(path) {
            let (sha, content) = (hex::encode(path), STANDARD.encode(bytes));
            return (
                200,
                json!({"type": "file", "path": path, "sha": sha, "size": bytes.len(), "content": content, "encoding": "base64"}),
            );
        }
        let prefix = format!("{path}/");
        match self.files.keys().any(|file| file.starts_with(&prefix)) {
            // The server asks no more of a directory than that it is one.
            true => (200, json!([])),
            false => not_found(),
        }
    }
}

fn change(item: &mut Value, given: &Value) {
    for (name, value) in given.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("labels", Value::Array(names)) => {
                item["labels"] = names.iter().map(|name| json!({"name": name})).collect();
            }
            ("base", Value::String(branch)) => item["base"]["ref"] = branch.as_str().into(),
            (_, value) => item[name] = value.clone(),
        }
    }
}

fn not_found() -> Answer {
    (404, json!({"message": "Not Found"}))
}

fn read(directory: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        match entry.file_type()?.is_dir() {
            true => read(&entry.path(), &format!("{path}/"), files)?,
            false => drop(files.insert(path, fs::read(entry.path())?)),
        }
    }
    Ok(())
}

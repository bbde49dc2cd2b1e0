//! The stand-in's routes.

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::state::{Repository, State, key, now, sha};
use super::{Reply, Seen};

pub(super) fn route(state: &mut State, seen: &Seen, base: &str) -> Reply {
    let segments: Vec<String> = seen.path[1..]
        .split('/')
        .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
        .collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    if let ["app", "installations", "42", rest @ ..] = segments.as_slice() {
        return app(state, seen, rest);
    }
    if !state.tokens.contains(&seen.token) {
        return Reply::refusal(401, "Bad credentials");
    }
    match (seen.method.as_str(), segments.as_slice()) {
        ("GET", ["user"]) => Reply::of(200, json!({ "login": state.login, "user_view_type": "private" })),
        ("GET", ["rate_limit"]) => {
            let core = json!({ "limit": 5000, "remaining": 4999, "reset": 1_893_456_000, "used": 1 });
            let limits = json!({ "resources": { "core": core, "search": core }, "rate": core });
            Reply::of(200, limits).with("x-oauth-scopes", "repo, workflow")
        }
        ("GET", ["user", "repos"]) => {
            let all = state.repositories.values().map(Repository::json).collect();
            page(all, seen, base, |items| items.into())
        }
        ("GET", ["installation", "repositories"]) => {
            let all: Vec<_> = state.repositories.values().map(Repository::json).collect();
            let count = all.len();
            page(
                all,
                seen,
                base,
                |items| json!({ "total_count": count, "repositories": items }),
            )
        }
        ("POST", ["user", "repos"]) => {
            let login = state.login.clone();
            create_repository(state, seen, &login)
        }
        ("POST", ["orgs", owner, "repos"]) => create_repository(state, seen, owner),
        (_, ["repos", owner, name, rest @ ..]) => {
            let name = key(owner, name);
            if let Some(new) = state.renamed.get(&name) {
                let id = state.repositories[new].id;
                let query: String = seen
                    .query
                    .iter()
                    .map(|(name, value)| format!("&{name}={value}"))
                    .collect();
                let rest: String = rest.iter().map(|segment| format!("/{segment}")).collect();
                let status = if seen.method == "GET" { 301 } else { 307 };
                let target = format!("{base}/repositories/{id}{rest}?{}", query.trim_start_matches('&'));
                return Reply::refusal(status, "Moved Permanently").with("location", target);
            }
            match state.repositories.get_mut(&name) {
                Some(repository) => in_repository(repository, &mut state.stale_lists, seen, rest, base),
                None => Reply::refusal(404, "Not Found"),
            }
        }
        (_, ["repositories", id, rest @ ..]) => {
            let found = state.repositories.values_mut().find(|each| each.id.to_string() == *id);
            match found {
                Some(repository) => in_repository(repository, &mut state.stale_lists, seen, rest, base),
                None => Reply::refusal(404, "Not Found"),
            }
        }
        _ => Reply::refusal(404, "Not Found"),
    }
}

/// Requests with an App's own statement: a JSON Web Token.
fn app(state: &mut State, seen: &Seen, rest: &[&str]) -> Reply {
    if seen.token.split('.').count() != 3 {
        return Reply::refusal(401, "A JSON web token could not be decoded");
    }
    match (seen.method.as_str(), rest) {
        ("GET", []) => {
            let (login, kind) = &state.account;
            Reply::of(200, json!({ "account": { "login": login, "type": kind } }))
        }
        ("POST", ["access_tokens"]) => {
            state.tokens_issued += 1;
            let token = format!("ghs_canary-installation-{}", state.tokens_issued);
            state.tokens.insert(token.clone());
            Reply::of(201, json!({ "token": token, "expires_at": "2099-01-01T00:00:00Z" }))
        }
        _ => Reply::refusal(404, "Not Found"),
    }
}

fn create_repository(state: &mut State, seen: &Seen, owner: &str) -> Reply {
    let given = seen.body.as_ref().expect("a body");
    let name = given["name"].as_str().expect("a name");
    if state.repositories.contains_key(&key(owner, name)) {
        return Reply::of(
            422,
            json!({ "message": "Repository creation failed.", "documentation_url": "x", "errors": [{
                "resource": "Repository", "code": "custom", "field": "name",
                "message": "name already exists on this account"
            }] }),
        );
    }
    let made = state.add(owner, name);
    made.private = given["private"] == true;
    made.description = given["description"].as_str().map(str::to_owned);
    made.created_at = now();
    Reply::of(201, made.json())
}

fn in_repository(repository: &mut Repository, stale: &mut u32, seen: &Seen, rest: &[&str], base: &str) -> Reply {
    let given = seen.body.clone().unwrap_or_default();
    match (seen.method.as_str(), rest) {
        ("GET", []) => Reply::of(200, repository.json()),
        ("GET", ["pulls"]) => page(pulls(repository, seen), seen, base, |items| items.into()),
        ("POST", ["pulls"]) => open_pull(repository, &given),
        (method @ ("GET" | "PATCH"), ["pulls", number]) => {
            let pull = number.parse().ok().and_then(|number| repository.pulls.get_mut(&number));
            changed(pull, method == "PATCH", &given)
        }
        ("GET", ["issues"]) => {
            let all = issues(repository, seen, stale);
            page(all, seen, base, |items| items.into())
        }
        ("POST", ["issues"]) => Reply::of(201, repository.open_issue(&given).clone()),
        ("GET", ["issues", number]) => {
            let number = number.parse().unwrap_or_default();
            let found = repository.issues.get(&number).cloned();
            match found.or_else(|| repository.pull_as_issue(number)) {
                Some(issue) => Reply::of(200, issue),
                None => Reply::refusal(404, "Not Found"),
            }
        }
        ("PATCH", ["issues", number]) => {
            let issue = number
                .parse()
                .ok()
                .and_then(|number| repository.issues.get_mut(&number));
            changed(issue, true, &given)
        }
        ("GET", ["commits"]) => commits(repository, seen),
        ("GET", ["git", "trees", name]) => tree(repository, seen, name),
        ("GET", ["contents", path @ ..]) => {
            let path = path.join("/");
            let directory = || repository.directory(&path).map(Value::from);
            match repository.file(&path).or_else(directory) {
                Some(found) => Reply::of(200, found),
                None => Reply::refusal(404, "Not Found"),
            }
        }
        _ => Reply::refusal(404, "Not Found"),
    }
}

fn parameter<'a>(seen: &'a Seen, name: &str) -> Option<&'a str> {
    let found = seen.query.iter().find(|(given, _)| given == name);
    found.map(|(_, value)| value.as_str())
}

fn pulls(repository: &Repository, seen: &Seen) -> Vec<Value> {
    let state = parameter(seen, "state").unwrap_or("open");
    let fits = |pull: &&Value| {
        (state == "all" || pull["state"] == state)
            && parameter(seen, "head").is_none_or(|head| pull["head"]["label"] == head)
            && parameter(seen, "base").is_none_or(|base| pull["base"]["ref"] == base)
    };
    repository.pulls.values().rev().filter(fits).cloned().collect()
}

fn open_pull(repository: &mut Repository, given: &Value) -> Reply {
    let head = given["head"].as_str().expect("a head");
    let label = if head.contains(':') {
        head.to_owned()
    } else {
        format!("{}:{head}", repository.owner)
    };
    let mut open = repository.pulls.values().filter(|pull| pull["state"] == "open");
    if open.any(|pull| pull["head"]["label"] == *label && pull["base"]["ref"] == given["base"]) {
        return Reply::of(
            422,
            json!({ "message": "Validation Failed", "documentation_url": "x", "errors": [{
                "resource": "PullRequest", "code": "custom",
                "message": format!("A pull request already exists for {label}.")
            }] }),
        );
    }
    Reply::of(201, repository.open_pull(given).clone())
}

fn issues(repository: &Repository, seen: &Seen, stale: &mut u32) -> Vec<Value> {
    let since = parameter(seen, "since").unwrap_or_default();
    let numbers = repository.issues.keys().chain(repository.pulls.keys());
    let mut numbers: Vec<_> = numbers.copied().collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    let found = numbers.into_iter().filter_map(|number| {
        let issue = repository.issues.get(&number).cloned();
        issue.or_else(|| repository.pull_as_issue(number))
    });
    let found = found.filter(|issue| issue["updated_at"].as_str().is_some_and(|at| at >= since));
    if *stale > 0 {
        *stale -= 1;
        return found.skip(1).collect();
    }
    found.collect()
}

fn changed(found: Option<&mut Value>, change: bool, given: &Value) -> Reply {
    let Some(found) = found else {
        return Reply::refusal(404, "Not Found");
    };
    if change {
        for (name, value) in given.as_object().expect("an object") {
            match name.as_str() {
                "base" => found["base"]["ref"] = value.clone(),
                "labels" => {
                    let names = value.as_array().expect("a list").iter();
                    found["labels"] = names.map(|name| json!({ "name": name })).collect();
                }
                "assignees" => {}
                name => found[name] = value.clone(),
            }
        }
        found["updated_at"] = now().into();
    }
    Reply::of(200, found.clone())
}

/// The latest commit, the only one.
fn commits(repository: &Repository, seen: &Seen) -> Reply {
    if repository.files.is_empty() {
        return Reply::refusal(409, "Git Repository is empty.");
    }
    let known = |name: &str| matches!(name, "main" | State::COMMIT);
    match parameter(seen, "sha").is_none_or(known) {
        true => Reply::of(200, json!([{ "sha": State::COMMIT }])),
        false => Reply::refusal(404, "Not Found"),
    }
}

fn tree(repository: &Repository, seen: &Seen, name: &str) -> Reply {
    if repository.files.is_empty() {
        return Reply::refusal(409, "Git Repository is empty.");
    }
    let Some(directory) = repository.directory_of(name) else {
        return Reply::refusal(404, "Not Found");
    };
    let recursive = parameter(seen, "recursive").is_some();
    let mut entries = repository.tree(&directory, recursive).unwrap_or_default();
    let limit = repository
        .tree_limit
        .filter(|limit| recursive && *limit < entries.len());
    entries.truncate(limit.unwrap_or(entries.len()));
    Reply::of(
        200,
        json!({ "sha": sha(&directory), "tree": entries, "truncated": limit.is_some() }),
    )
}

/// One page of a list, with the link to the next one.
fn page(all: Vec<Value>, seen: &Seen, base: &str, wrap: impl FnOnce(Vec<Value>) -> Value) -> Reply {
    let number = |name, default| parameter(seen, name).map_or(default, |text| text.parse().expect("a number"));
    let (size, page) = (number("per_page", 30_usize), number("page", 1_usize));
    let more = all.len() > size * page;
    let items: Vec<_> = all.into_iter().skip(size * (page - 1)).take(size).collect();
    let reply = Reply::of(200, wrap(items));
    if !more {
        return reply;
    }
    let mut next = url::Url::parse(&format!("{base}{}", seen.path)).expect("a URL");
    let others = seen.query.iter().filter(|(name, _)| name != "page");
    next.query_pairs_mut()
        .extend_pairs(others)
        .append_pair("page", &(page + 1).to_string());
    reply.with("link", format!("<{next}>; rel=\"next\""))
}

//! A planning session of the demo model: it plans to look at the repository, and looks. It changes nothing.

use serde_json::{Value, json};
use url::Url;

use super::{Move, call, say};
use crate::domain::evidence;
use crate::domain::journal::{COMPLETE_TASK, Speaker};
use crate::domain::reflection::REFLECT;
use crate::ports::model::{CallMode, Content, ModelRequest};

/// The tools of its two tasks.
const READ: &str = "getFileContents";
const LIST: &str = "getRepositoryTree";

/// The next move, if the request belongs to a planning session.
pub(super) fn next(request: &ModelRequest<'_>, declared: &dyn Fn(&str) -> bool) -> Option<Move> {
    let first = request.contents.iter().find_map(|content| match content {
        Content::Text(Speaker::User, text) => Some(*text),
        _ => None,
    })?;
    let (owner, repo) = repository(first)?;
    if declared(REFLECT) {
        return Some(work(request, first, &owner, &repo));
    }
    (declared(COMPLETE_TASK) && declared(LIST)).then(|| call(COMPLETE_TASK, plan(&owner, &repo)))
}

/// The repository of the session, as its first message names it.
fn repository(first: &str) -> Option<(String, String)> {
    first.match_indices("https://").find_map(|(at, _)| {
        let address = first[at..].split_whitespace().next()?;
        let url = Url::parse(address.trim_end_matches(['.', ','])).ok()?;
        let mut path = url.path_segments()?;
        let (owner, repo) = (path.next()?, path.next()?);
        (!owner.is_empty() && !repo.is_empty()).then(|| (owner.to_owned(), repo.to_owned()))
    })
}

fn plan(owner: &str, repo: &str) -> Value {
    let task = |title: String, done_when: &str, tool: &str| {
        let goal = format!("{title}. Nothing is changed.");
        json!({"title": title, "goal": goal, "doneWhen": done_when, "tools": [tool]})
    };
    json!({"plan": {
        "summary": "This is the demo model: it looks at the repository and changes nothing. A real model plans what you asked for.",
        "tasks": [
            task(format!("Read the readme of {owner}/{repo}"), "getFileContents shows README.md", READ),
            task(format!("List the files of {owner}/{repo}"), "getRepositoryTree lists them", LIST),
        ],
        "assumptions": ["The repository has a README.md."],
        "risks": ["The goal itself is not worked on."],
    }})
}

fn work(request: &ModelRequest<'_>, first: &str, owner: &str, repo: &str) -> Move {
    // The title of the task follows the tag that begins it.
    let lists = first
        .split_once("<task>\n")
        .is_some_and(|(_, title)| title.starts_with("List"));
    let (tool, arguments) = match lists {
        true => (LIST, json!({"owner": owner, "repo": repo})),
        false => (READ, json!({"owner": owner, "repo": repo, "path": "README.md"})),
    };
    match request.mode {
        CallMode::None if lists => say("I list the files."),
        CallMode::None => say("I read the readme."),
        CallMode::Any(names) if names.iter().any(|name| name == REFLECT) => {
            call(REFLECT, reflection(request, &arguments.to_string()))
        }
        CallMode::Any(_) | CallMode::Auto => call(tool, arguments),
    }
}

/// Complete, if the last result of the call with these arguments has a line that can be quoted; else given up.
fn reflection(request: &ModelRequest<'_>, arguments: &str) -> Value {
    let results: Vec<_> = request
        .contents
        .iter()
        .filter_map(|content| match content {
            Content::Responses(responses) => responses.iter().find(|response| response.name != REFLECT),
            _ => None,
        })
        .collect();
    let n = results.len();
    let gives_up = |why: &str| json!({"is_task_complete": false, "summary": why, "give_up": why});
    match results.last().map(|response| &response.outcome) {
        Some(Ok(data)) => match evidence::quotable(data.get(), arguments) {
            Some(quote) => json!({
                "is_task_complete": true,
                "summary": "The result is there.",
                "evidence": [{"observation": n, "quote": quote}],
            }),
            None => gives_up("the result has no text that could be quoted"),
        },
        Some(Err(failure)) => gives_up(&format!("the call failed: {}", failure.code.as_str())),
        None => json!({"is_task_complete": false, "summary": "Nothing was called."}),
    }
}

//! What was read before a plan was made, and what its confirmation allows: a line each.

use crate::api::planning::Session;
use crate::cli::output::count;
use crate::cli::runs::time;
use crate::cli::table::single_line;

/// The digits of a commit's id that are shown.
const SHORT: usize = 7;

/// `Read acme/dates: main at 3f1c9ab, 214 files, AGENT.md 1.2 KiB (5 calls, 3.9 s)`; `None` without a plan.
pub(super) fn read(session: &Session) -> Option<String> {
    let read = session.read.as_ref()?;
    let commit = read
        .commit
        .as_deref()
        .map(|id| id.chars().take(SHORT).collect::<String>());
    let place = match (&read.default_branch, commit) {
        (Some(branch), Some(commit)) => format!("{branch} at {commit}, "),
        (Some(branch), None) => format!("{branch}, "),
        (None, _) => String::new(),
    };
    let cut = match read.tree_truncated {
        true => " of the tree, which was cut",
        false => "",
    };
    let agent_file = match &read.agent_file {
        Some(file) => format!("{} {}", file.path, bytes(file.bytes)),
        None => "no AGENT.md".to_owned(),
    };
    let line = format!(
        "Read {}: {place}{}{cut}, {agent_file} ({}, {})",
        repository(session),
        count(read.files, "file"),
        count(read.calls, "call"),
        time(read.duration_ms)
    );
    Some(single_line(&line))
}

/// `OWNER/REPO`.
fn repository(session: &Session) -> &str {
    let address = session
        .repo_url
        .split_once("://")
        .map_or(&*session.repo_url, |(_, address)| address);
    address.split_once('/').map_or(address, |(_, repository)| repository)
}

/// `Plan 2 confirmed by ann: may act on acme/dates, branches gavel/*, with 5 tools. Asks before createRepository.` `None`
/// if no plan is being worked on.
pub(super) fn confirmation(session: &Session) -> Option<String> {
    let scope = session.scope.as_ref()?;
    let confirmed = scope.confirmed.as_ref()?;
    let mut line = format!(
        "Plan {} confirmed by {}: may act on {}, branches {}, with {}.",
        confirmed.version,
        confirmed.by,
        scope.repository,
        scope.branches,
        count(scope.tools.len() as u64, "tool")
    );
    let lists = [
        ("Not bound to it:", &scope.not_bound),
        ("Asks before", &scope.ask_first),
        ("May ask before", &scope.may_ask),
    ];
    for (words, tools) in lists.iter().filter(|(_, tools)| !tools.is_empty()) {
        line.push_str(&format!(" {words} {}.", tools.join(", ")));
    }
    Some(single_line(&line))
}

/// 312 B, 1.2 KiB.
fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        _ => format!("{}.{} KiB", bytes / 1024, bytes % 1024 * 10 / 1024),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::tests::samples::sample;

    fn session(with: Value) -> Session {
        let mut session = json!({"repoUrl": "https://github.com/acme/dates"});
        session
            .as_object_mut()
            .unwrap()
            .extend(with.as_object().unwrap().clone());
        sample(session)
    }

    /// One line says what was read.
    #[test]
    fn what_was_read_is_one_line() {
        let whole = json!({
            "defaultBranch": "main", "commit": "3f1c9ab5e0d84c7796a1", "files": 214, "treeTruncated": false,
            "agentFile": {"path": "AGENT.md", "bytes": 1_229}, "calls": 5, "durationMs": 3_912,
        });
        assert_eq!(
            read(&session(json!({"read": whole}))).unwrap(),
            "Read acme/dates: main at 3f1c9ab, 214 files, AGENT.md 1.2 KiB (5 calls, 3.9 s)"
        );
        let cut = json!({
            "defaultBranch": "tr\nunk", "commit": null, "files": 1, "treeTruncated": true, "agentFile": null, "calls": 1,
            "durationMs": 7,
        });
        assert_eq!(
            read(&session(json!({"read": cut}))).unwrap(),
            "Read acme/dates: tr unk, 1 file of the tree, which was cut, no AGENT.md (1 call, 7 ms)"
        );
        assert_eq!(read(&session(json!({"read": null}))), None);
    }

    /// P-205: the user sees who confirmed what: where the plan may act, and which tools ask anyway.
    #[test]
    fn a_confirmation_says_where_the_plan_may_act_and_what_asks_anyway() {
        let scope = |ask_first: &[&str], confirmed: Value| {
            let tools = ["createContainer", "createPullRequest"];
            session(json!({"scope": {
                "repository": "acme/dates", "branches": "gavel/*", "tools": tools, "askFirst": ask_first, "notBound": [], "mayAsk": [],
                "confirmed": confirmed,
            }}))
        };
        let by_ann = || json!({"by": "ann", "version": 2});
        let without = "Plan 2 confirmed by ann: may act on acme/dates, branches gavel/*, with 2 tools.";
        assert_eq!(confirmation(&scope(&[], by_ann())).unwrap(), without);
        let asks = confirmation(&scope(&["closeIssue", "createPullRequest"], by_ann()));
        assert_eq!(
            asks.unwrap(),
            format!("{without} Asks before closeIssue, createPullRequest.")
        );
        assert_eq!(confirmation(&scope(&[], Value::Null)), None);
        assert_eq!(confirmation(&session(json!({"scope": null}))), None);
    }
}

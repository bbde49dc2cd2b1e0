//! What is created and changed, and what GitHub refuses.

use std::time::Duration;

use serde_json::{Value, json};

use crate::github::Fault;
use crate::harness::World;

async fn with_repository() -> World {
    let world = World::new().await;
    world.github.state(|state| {
        state.add("acme", "dates");
    });
    world
}

fn pull() -> Value {
    json!({ "owner": "acme", "repo": "dates", "title": "Weeks", "head": "gavel/weeks", "base": "main", "body": "Why." })
}

fn issue() -> Value {
    json!({ "owner": "acme", "repo": "dates", "title": "Weeks", "body": "Why.", "labels": ["bug"] })
}

fn of(name: &str, number: u64, updates: Option<Value>) -> Value {
    let mut arguments = json!({ "owner": "acme", "repo": "dates", name: number });
    if let Some(updates) = updates {
        arguments["updates"] = updates;
    }
    arguments
}

#[tokio::test]
async fn a_pull_request_is_opened_changed_and_closed_and_keeps_its_marker() {
    let world = with_repository().await;
    let server = world.server().await;
    let made = server
        .first("key-1", "createPullRequest", pull())
        .await
        .expect("an answer")
        .ok();
    assert_eq!(made["pullRequest"]["number"], 1);
    assert_eq!(made["pullRequest"]["body"], "Why.");
    let body = || {
        world
            .github
            .state(|state| state.repository("acme", "dates").pulls[&1]["body"].clone())
    };
    assert_eq!(body(), "Why.\n\n<!-- gavel:key-1 -->");
    // A marker in a given body is another call's.
    let updates = json!({ "title": "ISO weeks", "body": "New.\n<!-- gavel:key-9 -->", "base": "next" });
    let changed = server
        .call("updatePullRequest", of("prNumber", 1, Some(updates)))
        .await
        .ok();
    assert_eq!(changed["pullRequest"]["title"], "ISO weeks");
    assert_eq!(changed["pullRequest"]["base"]["ref"], "next");
    assert_eq!(body(), "New.\n\n<!-- gavel:key-1 -->");
    for _ in 0..2 {
        let closed = server.call("closePullRequest", of("prNumber", 1, None)).await.ok();
        assert_eq!(closed, json!({ "closed": true }));
    }
    assert_eq!(world.github.seen("PATCH").len(), 2, "what is closed stays as it is");
    world.github.finish();
}

#[tokio::test]
async fn an_issue_is_opened_changed_and_closed_and_keeps_its_marker() {
    let world = with_repository().await;
    let server = world.server().await;
    let made = server
        .first("key-1", "createIssue", issue())
        .await
        .expect("an answer")
        .ok();
    assert_eq!(made["issue"]["labels"], json!(["bug"]));
    let updates =
        json!({ "body": "", "state": "closed", "stateReason": "not_planned", "labels": [], "assignees": ["ann"] });
    let changed = server
        .call("updateIssue", of("issueNumber", 1, Some(updates)))
        .await
        .ok();
    assert_eq!(changed["issue"]["stateReason"], "not_planned");
    assert_eq!(changed["issue"]["labels"], json!([]));
    let body = world
        .github
        .state(|state| state.repository("acme", "dates").issues[&1]["body"].clone());
    assert_eq!(body, "<!-- gavel:key-1 -->");
    let closed = server.call("closeIssue", of("issueNumber", 1, None)).await.ok();
    assert_eq!(closed, json!({ "closed": true }));
    assert_eq!(world.github.seen("PATCH").len(), 1);
    world.github.finish();
}

#[tokio::test]
async fn a_repository_is_private_unless_the_call_says_otherwise() {
    let world = World::new().await;
    let server = world.server().await;
    let made = server
        .call("createRepository", json!({ "name": "one", "description": "First." }))
        .await
        .ok();
    assert_eq!(
        (&made["repository"]["isPrivate"], &made["repository"]["fullName"]),
        (&json!(true), &json!("robot/one"))
    );
    let made = server
        .call("createRepository", json!({ "name": "two", "isPrivate": false }))
        .await
        .ok();
    assert_eq!(made["repository"]["isPrivate"], false);
    let allowed = json!({ "gavel/repositories": "other/* acme/*" });
    let elsewhere = json!({ "name": "elsewhere" });
    let refused = server
        .try_call("createRepository", elsewhere, allowed.clone())
        .await
        .expect("an answer");
    assert_eq!(refused.code(), "forbidden");
    let listed = server
        .try_call("listRepositories", json!({}), allowed)
        .await
        .expect("an answer");
    assert_eq!(listed.ok()["repositories"], json!([]));
    let exists = server.call("createRepository", json!({ "name": "One" })).await;
    assert_eq!(exists.code(), "already_exists");
    assert_eq!(exists.error()["htmlUrl"], "https://github.com/robot/one");
    for name in ["a/b", "..", "a b", "x.git", ""] {
        let refused = server.call("createRepository", json!({ "name": name })).await;
        assert!(
            ["invalid_argument", "missing_argument"].contains(&refused.code()),
            "{name}"
        );
    }
    world.github.finish();
}

#[tokio::test]
async fn an_app_creates_repositories_in_its_organization_alone() {
    let world = World::of_an_app().await;
    let server = world.server().await;
    let made = server.call("createRepository", json!({ "name": "one" })).await.ok();
    assert_eq!(made["repository"]["fullName"], "acme/one");
    world.github.state(|state| state.account = ("ann".to_owned(), "User"));
    let refused = server.call("createRepository", json!({ "name": "two" })).await;
    assert_eq!(refused.code(), "forbidden");
    assert_eq!(world.github.state(|state| state.repositories.len()), 1);
    world.github.finish();
}

#[tokio::test]
async fn a_call_for_an_issue_never_changes_a_pull_request() {
    let world = with_repository().await;
    world.github.state(|state| {
        state.repository("acme", "dates").open_pull(&pull());
    });
    let server = world.server().await;
    let close = server.call("closeIssue", of("issueNumber", 1, None)).await;
    let update = server
        .call("updateIssue", of("issueNumber", 1, Some(json!({ "state": "closed" }))))
        .await;
    assert_eq!((close.code(), update.code()), ("not_found", "not_found"));
    assert!(world.github.seen("PATCH").is_empty());
    world.github.finish();
}

#[tokio::test]
async fn a_change_does_not_follow_a_redirect_but_learns_the_new_name() {
    let world = with_repository().await;
    world.github.state(|state| state.rename("acme", "dates", "calendar"));
    let server = world.server().await;
    for (tool, arguments) in [("createPullRequest", pull()), ("createIssue", issue())] {
        let refused = server.call(tool, arguments).await;
        assert_eq!(refused.code(), "not_found");
        assert_eq!(refused.error()["fullName"], "acme/calendar");
    }
    world.github.state(|state| {
        let repository = state.repository("acme", "calendar");
        assert!(repository.pulls.is_empty() && repository.issues.is_empty());
    });
    world.github.finish();
}

#[tokio::test]
async fn a_refusal_says_what_is_needed_or_invalid() {
    let world = with_repository().await;
    let server = world.server().await;
    let needed = vec![("x-accepted-github-permissions", "pull_requests=write".to_owned())];
    let refuse = Fault::Refuse(403, needed, "Resource not accessible by personal access token");
    world.github.fail(
        "POST",
        "/pulls",
        [refuse, Fault::Refuse(409, vec![], "Git Repository is empty.")],
    );
    let refused = server.call("createPullRequest", pull()).await;
    assert_eq!(
        (refused.code(), &refused.error()["needed"]),
        ("forbidden", &json!("pull_requests=write"))
    );
    assert_eq!(server.call("createPullRequest", pull()).await.code(), "conflict");
    server.call("createPullRequest", pull()).await.ok();
    let exists = server.call("createPullRequest", pull()).await;
    assert_eq!(
        (exists.code(), &exists.error()["number"]),
        ("already_exists", &json!(1))
    );
    world.github.fail(
        "POST",
        "/issues",
        [
            Fault::Refuse(410, vec![], "Issues are disabled for this repo"),
            Fault::Refuse(422, vec![], "Validation Failed"),
        ],
    );
    assert_eq!(server.call("createIssue", issue()).await.code(), "not_found");
    let invalid = server.call("createIssue", issue()).await;
    assert_eq!(
        (invalid.code(), &invalid.error()["fields"]),
        ("validation_failed", &json!([]))
    );
    let unknown = server
        .call("updateIssue", of("issueNumber", 1, Some(json!({ "milestone": 1 }))))
        .await;
    assert_eq!(unknown.code(), "unknown_argument");
    let empty = server
        .call("updatePullRequest", of("prNumber", 1, Some(json!({}))))
        .await;
    assert_eq!(empty.code(), "invalid_argument");
    world.github.finish();
}

#[tokio::test]
async fn changes_are_made_one_at_a_time_a_second_apart() {
    let world = with_repository().await;
    let server = world.server().await;
    let titled = |number: u32| {
        let mut issue = issue();
        issue["title"] = format!("{number}").into();
        server.call("createIssue", issue)
    };
    let (one, two, three) = tokio::join!(titled(1), titled(2), titled(3));
    for made in [one, two, three] {
        made.ok();
    }
    let times: Vec<_> = world.github.seen("POST").into_iter().map(|seen| seen.at).collect();
    for pair in times.windows(2) {
        assert!(
            pair[1] - pair[0] >= Duration::from_millis(990),
            "{:?}",
            pair[1] - pair[0]
        );
    }
    world.github.finish();
}

//! An effect happens at most once per idempotency key, whatever happens to its answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::github::Fault;
use crate::harness::{Server, World, unsettled};

const TOOLS: [(&str, &str); 3] = [
    ("createRepository", "/repos"),
    ("createPullRequest", "/pulls"),
    ("createIssue", "/issues"),
];

async fn with_repository() -> World {
    let world = World::new().await;
    world.github.state(|state| {
        state.add("acme", "dates");
    });
    world
}

fn arguments(tool: &str) -> Value {
    match tool {
        "createRepository" => json!({ "name": "new" }),
        "createPullRequest" => {
            json!({ "owner": "acme", "repo": "dates", "title": "t", "head": "gavel/x", "base": "main" })
        }
        _ => json!({ "owner": "acme", "repo": "dates", "title": "t" }),
    }
}

/// How many things there are of the kind that the tool creates.
fn made(world: &World, tool: &str) -> usize {
    world.github.state(|state| match tool {
        "createRepository" => state.repositories.len() - 1,
        "createPullRequest" => state.repository("acme", "dates").pulls.len(),
        _ => state.repository("acme", "dates").issues.len(),
    })
}

fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true)
}

/// The same call in a new process, which remembers no key.
async fn again(server: &Server, first: &str, tool: &str) -> Value {
    let answered = server.again("key-1", first, tool, arguments(tool)).await;
    answered.expect("an answer").ok()
}

#[tokio::test]
async fn an_answer_that_was_lost_is_found_and_nothing_is_created_twice() {
    for (tool, path) in TOOLS {
        for fault in [Fault::CutAfter, Fault::FailAfter(502), Fault::FailAfter(500)] {
            let world = with_repository().await;
            world.github.fail("POST", path, [fault.clone()]);
            let first = now();
            let server = world.server().await;
            let said = unsettled(server.first("key-1", tool, arguments(tool)).await);
            assert!(said.contains("looks first"), "{said}");
            assert_eq!(made(&world, tool), 1, "{tool} {fault:?}");
            let other = world.server().await;
            let (one, two) = (again(&server, &first, tool).await, again(&other, &first, tool).await);
            assert_eq!(one, two, "{tool} {fault:?}");
            assert_eq!(made(&world, tool), 1, "{tool} {fault:?}");
            assert_eq!(world.github.seen("POST").len(), 1, "{tool} {fault:?}");
            server.check_log();
            world.github.finish();
        }
    }
}

#[tokio::test]
async fn a_request_that_had_no_effect_is_made_by_the_next_attempt() {
    for (tool, path) in TOOLS {
        let world = with_repository().await;
        world.github.fail("POST", path, [Fault::CutBefore]);
        let first = now();
        let server = world.server().await;
        unsettled(server.first("key-1", tool, arguments(tool)).await);
        assert_eq!(made(&world, tool), 0);
        again(&server, &first, tool).await;
        assert_eq!(made(&world, tool), 1, "{tool}");
        world.github.finish();
    }
}

#[tokio::test]
async fn the_same_key_in_one_process_is_one_call_even_if_the_client_does_not_say_so() {
    for (tool, _) in TOOLS {
        let world = with_repository().await;
        let server = world.server().await;
        let call = || server.first("key-1", tool, arguments(tool));
        let (one, two) = tokio::join!(call(), call());
        let (one, two) = (one.expect("an answer").ok(), two.expect("an answer").ok());
        assert_eq!(one, two, "{tool}");
        assert_eq!(made(&world, tool), 1, "{tool}");
        let mut other = arguments(tool);
        other[if tool == "createRepository" { "name" } else { "title" }] = "other".into();
        let reused = server.first("key-1", tool, other).await.expect("an answer");
        assert_eq!(reused.code(), "idempotency_key_reused");
        world.github.finish();
    }
}

/// A further attempt waits for the first one, even if it arrives while GitHub still answers that one.
#[tokio::test]
async fn a_further_attempt_waits_for_the_answer_to_the_first_one() {
    let world = with_repository().await;
    let answered = Arc::new(Notify::new());
    world
        .github
        .fail("POST", "/issues", [Fault::HeldAfter(Arc::clone(&answered))]);
    let server = world.server().await;
    let call = || server.first("key-1", "createIssue", arguments("createIssue"));
    let second = async {
        while made(&world, "createIssue") == 0 {
            tokio::task::yield_now().await;
        }
        let mut second = pin!(call());
        let waits = tokio::time::timeout(Duration::from_millis(100), second.as_mut()).await;
        assert!(waits.is_err(), "{waits:?}");
        answered.notify_one();
        second.await
    };
    let (one, two) = tokio::join!(call(), second);
    assert_eq!(one.expect("an answer").ok(), two.expect("an answer").ok());
    assert_eq!(world.github.seen("POST").len(), 1);
    world.github.finish();
}

#[tokio::test]
async fn slow_bytes_end_in_an_unknown_outcome_and_the_next_attempt_finds_the_effect() {
    let mut world = with_repository().await;
    world.environment.insert("GITHUB_TIMEOUT_SECONDS", "2".to_owned());
    world.github.fail("POST", "/pulls", [Fault::SlowAfter]);
    let first = now();
    let server = world.server().await;
    unsettled(
        server
            .first("key-1", "createPullRequest", arguments("createPullRequest"))
            .await,
    );
    again(&server, &first, "createPullRequest").await;
    assert_eq!(made(&world, "createPullRequest"), 1);
    world.github.finish();
}

#[tokio::test]
async fn while_an_earlier_attempt_cannot_be_looked_up_the_outcome_stays_unknown() {
    for (tool, path) in TOOLS {
        let mut world = with_repository().await;
        world.environment.insert("GITHUB_TIMEOUT_SECONDS", "6".to_owned());
        world.github.fail("POST", path, [Fault::CutAfter]);
        let first = now();
        let server = world.server().await;
        unsettled(server.first("key-1", tool, arguments(tool)).await);
        world
            .github
            .fail("GET", "", vec![Fault::Refuse(502, vec![], "Bad Gateway"); 3]);
        unsettled(server.again("key-1", &first, tool, arguments(tool)).await);
        again(&server, &first, tool).await;
        assert_eq!(made(&world, tool), 1, "{tool}");
        world.github.finish();
    }
}

#[tokio::test]
async fn an_issue_that_appears_late_in_the_list_is_found_by_the_second_look() {
    let world = with_repository().await;
    world.github.fail("POST", "/issues", [Fault::CutAfter]);
    let first = now();
    let server = world.server().await;
    unsettled(server.first("key-1", "createIssue", arguments("createIssue")).await);
    world.github.state(|state| state.stale_lists = 1);
    let found = again(&server, &first, "createIssue").await;
    assert_eq!(
        (found["issue"]["number"].as_u64(), made(&world, "createIssue")),
        (Some(1), 1)
    );
    world.github.finish();
}

#[tokio::test]
async fn what_another_caller_created_is_not_this_calls_result() {
    let world = with_repository().await;
    world.github.state(|state| {
        state.add("robot", "new");
        let repository = state.repository("acme", "dates");
        let marker = "<!-- gavel:key-2 -->";
        repository.open_pull(&json!({ "title": "t", "head": "gavel/x", "base": "main", "body": marker }));
        repository.open_issue(&json!({ "title": "t", "body": marker }));
    });
    let first = now();
    let server = world.server().await;
    for tool in ["createRepository", "createPullRequest"] {
        let refused = server
            .again("key-1", &first, tool, arguments(tool))
            .await
            .expect("an answer");
        assert_eq!(refused.code(), "already_exists", "{tool}");
        assert!(refused.error()["htmlUrl"].is_string());
    }
    let issue = again(&server, &first, "createIssue").await;
    assert_eq!(issue["issue"]["number"], 3);
    // A pull request that was closed since is still this call's; one of an earlier call that is closed is no obstacle.
    world.github.state(|state| {
        let pulls = &mut state.repository("acme", "dates").pulls;
        pulls.get_mut(&1).expect("a pull request")["state"] = json!("closed");
    });
    let pull = again(&server, &first, "createPullRequest").await;
    world.github.state(|state| {
        let pulls = &mut state.repository("acme", "dates").pulls;
        pulls.get_mut(&4).expect("a pull request")["state"] = json!("closed");
    });
    let other = world.server().await;
    let same = again(&other, &first, "createPullRequest").await;
    assert_eq!(pull["pullRequest"]["number"], same["pullRequest"]["number"]);
    assert_eq!(same["pullRequest"]["state"], "closed");
    world.github.finish();
}

#[tokio::test]
async fn a_further_attempt_without_a_key_is_refused() {
    let world = with_repository().await;
    let server = world.server().await;
    let meta = json!({ "gavel/first_attempt_at": now() });
    let refused = server
        .try_call("createIssue", arguments("createIssue"), meta)
        .await
        .expect("an answer");
    assert_eq!(refused.code(), "invalid_meta");
    assert_eq!(made(&world, "createIssue"), 0);
}

#[tokio::test]
async fn a_change_whose_answer_was_lost_may_be_made_again() {
    let world = with_repository().await;
    world.github.state(|state| {
        state
            .repository("acme", "dates")
            .open_issue(&json!({ "title": "t", "body": "b" }));
    });
    world.github.fail("PATCH", "/issues/1", [Fault::CutAfter]);
    let first = now();
    let server = world.server().await;
    let close = json!({ "owner": "acme", "repo": "dates", "issueNumber": 1 });
    unsettled(server.first("key-1", "closeIssue", close.clone()).await);
    let closed = server
        .again("key-1", &first, "closeIssue", close)
        .await
        .expect("an answer")
        .ok();
    assert_eq!(closed, json!({ "closed": true }));
    assert_eq!(world.github.seen("PATCH").len(), 1);
    world.github.finish();
}

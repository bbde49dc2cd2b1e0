//! Rate limits, failures of GitHub, and redirects.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::github::{Fault, GitHub};
use crate::harness::World;

async fn with_repository() -> World {
    let world = World::new().await;
    world.github.state(|state| {
        state.add("acme", "dates");
    });
    world
}

fn dates() -> Value {
    json!({ "owner": "acme", "repo": "dates" })
}

fn limited(status: u16, seconds: &str) -> Fault {
    Fault::Refuse(
        status,
        vec![("retry-after", seconds.to_owned())],
        "You have exceeded a secondary rate limit.",
    )
}

#[tokio::test]
async fn a_rate_limit_within_the_calls_time_is_waited_for() {
    let world = with_repository().await;
    let server = world.server().await;
    world
        .github
        .fail("GET", "/dates", [limited(403, "1"), limited(429, "1")]);
    let begun = Instant::now();
    server.call("retrieveRepository", dates()).await.ok();
    assert!(begun.elapsed() >= Duration::from_secs(2));
    // A refusal had no effect, so a change is sent again, too.
    world
        .github
        .fail("POST", "/issues", [limited(403, "1"), limited(429, "1")]);
    let issue = json!({ "owner": "acme", "repo": "dates", "title": "t" });
    server
        .first("key-1", "createIssue", issue)
        .await
        .expect("an answer")
        .ok();
    assert_eq!(
        world
            .github
            .state(|state| state.repository("acme", "dates").issues.len()),
        1
    );
    world.github.finish();
}

#[tokio::test]
async fn a_longer_rate_limit_is_an_error_with_the_seconds() {
    let world = with_repository().await;
    let server = world.server().await;
    let reset = (chrono::Utc::now().timestamp() + 900).to_string();
    let primary = vec![("x-ratelimit-remaining", "0".to_owned()), ("x-ratelimit-reset", reset)];
    let unsaid = Fault::Refuse(403, vec![], "You have exceeded a secondary rate limit.");
    world.github.fail(
        "GET",
        "/dates",
        [Fault::Refuse(403, primary, "API rate limit exceeded"), unsaid],
    );
    for (least, most) in [(890, 901), (60, 60)] {
        let begun = Instant::now();
        let refused = server.call("retrieveRepository", dates()).await;
        assert_eq!(refused.code(), "rate_limited");
        let seconds = refused.error()["retryAfterSeconds"].as_u64().expect("seconds");
        assert!((least..=most).contains(&seconds), "{seconds}");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
    world.github.fail("POST", "/issues", [limited(429, "120")]);
    let issue = json!({ "owner": "acme", "repo": "dates", "title": "t" });
    assert_eq!(server.call("createIssue", issue).await.code(), "rate_limited");
    world.github.finish();
}

#[tokio::test]
async fn a_read_is_repeated_after_a_failure_and_a_change_is_not() {
    let world = with_repository().await;
    let server = world.server().await;
    for fault in [502, 503, 504]
        .map(|status| Fault::Refuse(status, vec![], "x"))
        .into_iter()
        .chain([Fault::CutAfter])
    {
        let before = world.github.seen("GET").len();
        world.github.fail("GET", "/dates", [fault.clone(), fault]);
        server.call("retrieveRepository", dates()).await.ok();
        assert_eq!(world.github.seen("GET").len() - before, 3);
    }
    world
        .github
        .fail("GET", "/dates", vec![Fault::Refuse(502, vec![], "x"); 3]);
    assert_eq!(server.call("retrieveRepository", dates()).await.code(), "unavailable");
    world.github.fail("GET", "/dates", [Fault::Refuse(500, vec![], "x")]);
    assert_eq!(server.call("retrieveRepository", dates()).await.code(), "unavailable");
    world.github.fail("POST", "/issues", [Fault::CutBefore]);
    let issue = json!({ "owner": "acme", "repo": "dates", "title": "t" });
    crate::harness::unsettled(server.try_call("createIssue", issue, json!({})).await);
    assert_eq!(world.github.seen("POST").len(), 1);
    world.github.finish();
}

#[tokio::test]
async fn slow_bytes_end_with_the_calls_time() {
    let mut world = with_repository().await;
    world.environment.insert("GITHUB_TIMEOUT_SECONDS", "2".to_owned());
    world.github.fail("GET", "/dates", [Fault::SlowAfter]);
    let server = world.server().await;
    let begun = Instant::now();
    assert_eq!(server.call("retrieveRepository", dates()).await.code(), "unavailable");
    assert!(begun.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn credentials_never_travel_to_another_host() {
    let world = with_repository().await;
    let server = world.server().await;
    let other = GitHub::start().await;
    let redirect = |status, target: &str| Fault::Refuse(status, vec![("location", target.to_owned())], "Moved");
    let target = format!("{}/repos/acme/dates", other.url());
    for status in [301, 302, 307, 308] {
        world.github.fail("GET", "/dates", [redirect(status, &target)]);
        assert_eq!(server.call("retrieveRepository", dates()).await.code(), "unavailable");
    }
    let next = vec![("link", format!("<{target}>; rel=\"next\""))];
    world.github.fail("GET", "/user/repos", [Fault::Refuse(200, next, "x")]);
    assert!(server.call("listRepositories", json!({})).await.is_error);
    world.github.fail("POST", "/issues", [redirect(307, &target)]);
    let issue = json!({ "owner": "acme", "repo": "dates", "title": "t" });
    assert_eq!(server.call("createIssue", issue).await.code(), "not_found");
    assert!(other.seen("GET").is_empty() && other.seen("POST").is_empty());
    // On the same host at most three.
    let here = format!("{}/repos/acme/dates", world.github.url());
    world.github.fail("GET", "/dates", vec![redirect(301, &here); 3]);
    server.call("retrieveRepository", dates()).await.ok();
    world.github.fail("GET", "/dates", vec![redirect(301, &here); 4]);
    assert_eq!(server.call("retrieveRepository", dates()).await.code(), "unavailable");
    server.check_log();
}

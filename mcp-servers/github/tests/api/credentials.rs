//! Credentials are sent to GitHub and appear nowhere else.

use serde_json::json;

use crate::github::TOKEN;
use crate::harness::World;

#[tokio::test]
async fn a_token_in_what_github_says_is_redacted() {
    let world = World::new().await;
    world.github.state(|state| {
        let repository = state.add("acme", "dates");
        repository
            .files
            .insert("env".to_owned(), format!("GITHUB_TOKEN={TOKEN}\n").into_bytes());
        repository.open_issue(&json!({ "title": "t", "body": format!("It is {TOKEN}.") }));
    });
    let server = world.server().await;
    let file = json!({ "owner": "acme", "repo": "dates", "path": "env" });
    let read = server.call("getFileContents", file).await.ok();
    assert_eq!(read["file"]["content"], "GITHUB_TOKEN=[redacted]\n");
    let issue = json!({ "owner": "acme", "repo": "dates", "issueNumber": 1 });
    assert_eq!(
        server.call("readIssue", issue).await.ok()["issue"]["body"],
        "It is [redacted]."
    );
    server.check_log();
    world.github.finish();
}

#[tokio::test]
async fn a_token_that_github_rejects_is_unauthorized() {
    let world = World::new().await;
    world.github.state(|state| state.tokens.clear());
    let server = world.server().await;
    assert_eq!(server.call("listRepositories", json!({})).await.code(), "unauthorized");
    let issue = json!({ "owner": "acme", "repo": "dates", "title": "t" });
    assert_eq!(server.call("createIssue", issue).await.code(), "unauthorized");
    server.check_log();
    world.github.finish();
}

#[tokio::test]
async fn an_apps_token_is_kept_and_renewed_when_github_rejects_it() {
    let world = World::of_an_app().await;
    world.github.state(|state| {
        state.add("acme", "dates");
    });
    let server = world.server().await;
    let dates = || json!({ "owner": "acme", "repo": "dates" });
    server.call("retrieveRepository", dates()).await.ok();
    server.call("retrieveRepository", dates()).await.ok();
    assert_eq!(world.github.state(|state| state.tokens_issued), 1);
    world.github.state(|state| state.tokens.clear());
    let issue = json!({ "owner": "acme", "repo": "dates", "title": "t" });
    server.call("createIssue", issue).await.ok();
    assert_eq!(world.github.state(|state| state.tokens_issued), 2);
    assert_eq!(
        world
            .github
            .state(|state| state.repository("acme", "dates").issues.len()),
        1
    );
    server.check_log();
    world.github.finish();
}

#[tokio::test]
async fn an_app_that_github_rejects_is_unauthorized() {
    let mut world = World::of_an_app().await;
    world.environment.insert("GITHUB_APP_INSTALLATION_ID", "43".to_owned());
    let server = world.server().await;
    assert_eq!(server.call("listRepositories", json!({})).await.code(), "unauthorized");
    server.check_log();
}

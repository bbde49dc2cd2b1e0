//! Published clients call every tool.

use serde_json::{Value, json};

use crate::engine::{IMAGE, engine};
use crate::harness::World;
use crate::published::call_every_tool;

#[tokio::test]
#[ignore = "requires published clients: scripts/mcp-conformance clients"]
async fn published_clients_call_every_tool() {
    // Without an engine the tool for git in a container is not offered.
    let Some(engine) = tokio::task::spawn_blocking(engine).await.expect("an engine") else {
        return;
    };
    let managed = [
        "run",
        "--detach",
        "--label",
        "gavel.managed=true",
        "--tmpfs",
        "/run/gavel",
    ];
    let container = engine.podman(managed.iter().chain(&[IMAGE, "sleep", "600"]));
    let git = json!({ "containerId": container.trim(), "username": "robot" });
    let world = World::new().await.with_engine(&engine.host());
    world.github.state(|state| {
        let repository = state.add("acme", "dates");
        repository.files.insert("README.md".to_owned(), b"# Dates".to_vec());
    });
    let dates = |more: Value| {
        let mut arguments = json!({ "owner": "acme", "repo": "dates" });
        let properties = arguments.as_object_mut().expect("an object");
        properties.extend(more.as_object().expect("an object").clone());
        arguments
    };
    let pull = json!({ "title": "Weeks", "head": "gavel/weeks-$run", "base": "main", "body": "Why." });
    let issue = json!({ "title": "Weeks", "body": "Why.", "labels": ["bug"] });
    let updates = json!({ "title": "ISO weeks" });
    let calls = json!([
        { "tool": "listRepositories", "arguments": {} },
        { "tool": "retrieveRepository", "arguments": dates(json!({})) },
        { "tool": "createRepository", "arguments": { "name": "one-$run", "description": "First." } },
        { "tool": "getRepositoryTree", "arguments": dates(json!({})) },
        { "tool": "getFileContents", "arguments": dates(json!({ "path": "README.md" })) },
        { "tool": "createPullRequest", "arguments": dates(pull), "keep": { "pull": "pullRequest.number" } },
        { "tool": "listPullRequests", "arguments": dates(json!({})) },
        { "tool": "readPullRequest", "arguments": dates(json!({ "prNumber": "$pull" })) },
        { "tool": "updatePullRequest", "arguments": dates(json!({ "prNumber": "$pull", "updates": updates })) },
        { "tool": "closePullRequest", "arguments": dates(json!({ "prNumber": "$pull" })) },
        { "tool": "createIssue", "arguments": dates(issue), "keep": { "issue": "issue.number" } },
        { "tool": "readIssue", "arguments": dates(json!({ "issueNumber": "$issue" })) },
        { "tool": "updateIssue", "arguments": dates(json!({ "issueNumber": "$issue", "updates": updates })) },
        { "tool": "closeIssue", "arguments": dates(json!({ "issueNumber": "$issue" })) },
        { "tool": "configureGitClientInContainer", "arguments": git },
    ]);
    call_every_tool(&world.program(), calls).await;
    world.github.finish();
}

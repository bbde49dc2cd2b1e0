//! Expired containers are removed, and nothing else.

use crate::engine::IMAGE;
use crate::harness::{until, world};

#[tokio::test]
async fn at_its_start_a_server_removes_what_is_expired_and_ours_and_nothing_else() {
    let Some((engine, world)) = world() else { return };
    let create = |name: &str, labels: &[&str], run: bool| {
        let command: &[&str] = if run { &["run", "--detach"] } else { &["create"] };
        let labels = labels.iter().flat_map(|label| ["--label", label]);
        let arguments = command
            .iter()
            .copied()
            .chain(["--name", name])
            .chain(labels)
            .chain([IMAGE, "sleep", "100"]);
        engine.podman(arguments);
    };
    let (past, future) = (
        "gavel.expires=2020-01-01T00:00:00Z",
        "gavel.expires=2100-01-01T00:00:00Z",
    );
    let ours = "gavel.managed=true";
    create("expired-created", &[ours, past, "gavel.session=any"], false);
    create("expired-running", &[ours, past], true);
    create("alive", &[ours, future], false);
    create("without-time", &[ours], false);
    create("unreadable-time", &[ours, "gavel.expires=soon"], false);
    create("foreign", &[past], false);
    create("foreign-too", &["gavel.managed=false", past], false);
    let _server = world.server().await;
    let names = || engine.podman(["ps", "--all", "--format", "{{.Names}}"]);
    until("expired containers are gone", || !names().contains("expired")).await;
    let names = names();
    for name in ["alive", "without-time", "unreadable-time", "foreign", "foreign-too"] {
        assert!(names.lines().any(|line| line == name), "{name}: {names}");
    }
}

#[tokio::test]
async fn a_container_expires_ten_minutes_after_the_callers_deadline() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let meta = serde_json::json!({ "gavel/session_id": server.session, "gavel/deadline": "2100-01-01T00:00:00Z" });
    let options = serde_json::json!({ "options": { "image": IMAGE } });
    let created = server
        .try_call("createContainer", options, meta)
        .await
        .expect("an answer")
        .ok();
    let id = created["id"].as_str().expect("an id");
    let expires = engine.podman(["inspect", "--format", "{{index .Config.Labels \"gavel.expires\"}}", id]);
    assert_eq!(expires.trim(), "2100-01-01T00:10:00Z");
}

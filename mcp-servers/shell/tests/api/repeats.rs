//! Further attempts: a key runs one command, once.

use serde_json::json;

use crate::at_each_level;
use crate::harness::{World, stdout};
use crate::observe::{kill, unique, until, with_word};

at_each_level!(a_key_runs_its_command_once);

async fn a_key_runs_its_command_once(level: &'static str) {
    let world = World::at(level);
    let Some(server) = world.server().await else { return };
    let command = "echo x >> counter; echo out; echo err >&2; exit 3";
    let first = server.keyed("k", command).await.ok();
    assert_eq!((&first["exitCode"], &first["interrupted"]), (&json!(3), &json!(false)));
    assert_eq!(server.keyed("k", command).await.ok(), first);
    // It is kept on disk.
    kill(server.process);
    let Some(server) = world.server().await else { return };
    assert_eq!(server.keyed("k", command).await.ok(), first);
    assert_eq!(stdout(&server.run_in("s", "cat counter").await), "x\n");
    // Another command, and another session, need another key.
    assert_eq!(server.keyed("k", "true").await.code(), "idempotency_key_reused");
    let meta = json!({ "gavel/session_id": "t", "gavel/idempotency_key": "k" });
    assert_eq!(
        server.call(json!({ "command": command }), meta).await.code(),
        "idempotency_key_reused"
    );
    // Without a key, each call runs.
    server.run_in("s", "echo x >> counter").await;
    server.run_in("s", "echo x >> counter").await;
    assert_eq!(stdout(&server.run_in("s", "cat counter").await), "x\nx\nx\n");
}

#[tokio::test]
async fn an_attempt_beside_the_first_waits_for_its_result() {
    let world = World::at("landlock");
    let (Some(server), Some(other)) = (world.server().await, world.server().await) else {
        return;
    };
    let word = unique();
    let command = format!("echo x >> counter; sleep 1.5; echo {word}");
    let begun = || !with_word(&word).is_empty();
    let first = server.keyed("k", &command);
    let second = async {
        until("it runs", begun).await;
        server.keyed("k", &command).await
    };
    // Another server with the same directory.
    let third = async {
        until("it runs", begun).await;
        other.keyed("k", &command).await
    };
    let (first, second, third) = tokio::join!(first, second, third);
    assert_eq!(stdout(&first.body), format!("{word}\n"));
    assert_eq!((&second, &third), (&first, &first));
    assert_eq!(stdout(&other.run_in("s", "cat counter").await), "x\n");
}

#[tokio::test]
async fn invalid_arguments_and_data_are_named() {
    let Some(server) = World::at("landlock").server().await else {
        return;
    };
    for (arguments, code) in [
        (json!({}), "missing_argument"),
        (json!({ "command": " \n" }), "invalid_argument"),
        (json!({ "command": 1 }), "invalid_argument"),
        (json!({ "command": "echo \0" }), "nul_character"),
        (json!({ "command": "x".repeat(70_000) }), "too_long"),
        (json!({ "command": "true", "timeoutSeconds": 0 }), "invalid_argument"),
        (json!({ "command": "true", "cwd": "/" }), "unknown_argument"),
    ] {
        assert_eq!(
            server.call(arguments.clone(), json!({})).await.code(),
            code,
            "{arguments}"
        );
    }
    for (meta, code) in [
        (json!({ "gavel/session_id": 1 }), "invalid_meta"),
        (json!({ "gavel/session_id": "" }), "invalid_meta"),
        (json!({ "gavel/idempotency_key": "" }), "invalid_idempotency_key"),
    ] {
        assert_eq!(
            server.call(json!({ "command": "true" }), meta.clone()).await.code(),
            code,
            "{meta}"
        );
    }
    let longest = format!("true {}", "x".repeat((64 << 10) - 5));
    assert_eq!(server.run(&longest).await["exitCode"], 0);
}

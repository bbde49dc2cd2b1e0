//! Sessions are apart from each other.

use serde_json::json;

use crate::at_each_level;
use crate::harness::{World, is_root, stdout};
use crate::observe::{unique, until, with_word};

at_each_level!(a_session_sees_only_its_own_files_and_processes);

async fn a_session_sees_only_its_own_files_and_processes(level: &'static str) {
    let world = World::at(level);
    let Some(server) = world.server().await else { return };
    let first = server
        .run_in(
            "a",
            "echo canary > file; chmod 666 file; chmod 777 .; readlink -f file; id -u",
        )
        .await;
    let mut lines = stdout(&first).lines();
    let (path, user) = (
        lines.next().expect("a path").to_owned(),
        lines.next().expect("an id").to_owned(),
    );
    let other = server.run_in("b", "ls; id -u").await;
    assert_ne!((stdout(&other).trim() == user), is_root(), "{other}");
    let word = unique();
    let meta = json!({ "gavel/session_id": "a" });
    let handle = server.begin(json!({ "command": format!("sleep {word}") }), meta).await;
    until("it runs", || !with_word(&word).is_empty()).await;
    if level != "host" {
        let attack = format!(
            "cat {path}; ls ../..; ls {}; kill -9 -1",
            world.root().join("sessions").display()
        );
        let attack = server.run_in("b", &attack).await;
        assert_eq!(
            stdout(&attack).trim(),
            if level == "bwrap" { stdout(&attack).trim() } else { "" }
        );
        assert!(!stdout(&attack).contains("canary"), "{attack}");
        assert!(!with_word(&word).is_empty(), "another session's command was ended");
    }
    handle.cancel(None).await.expect("it is sent");
    assert_eq!(stdout(&server.run_in("a", "cat file").await), "canary\n");
    // Without a session, calls of one process share a directory, which ends with it.
    server.run("echo x > own").await;
    assert_eq!(stdout(&server.run("ls").await), "own\n");
    server.client.cancel().await.expect("it stops");
    let Some(server) = world.server().await else { return };
    assert_eq!(stdout(&server.run("ls").await), "");
    assert_eq!(stdout(&server.run_in("a", "cat file").await), "canary\n");
}

#[tokio::test]
async fn a_session_runs_one_command_at_a_time_and_a_server_eight() {
    let Some(server) = World::at("landlock").server().await else {
        return;
    };
    let word = unique();
    let begin = |session: String| {
        let meta = json!({ "gavel/session_id": session });
        server.begin(json!({ "command": format!("sleep {word}") }), meta)
    };
    let first = begin("0".to_owned()).await;
    until("it runs", || !with_word(&word).is_empty()).await;
    let busy = server
        .call(json!({ "command": "true" }), json!({ "gavel/session_id": "0" }))
        .await;
    assert_eq!(busy.code(), "busy");
    let mut others = Vec::new();
    for session in 1..8 {
        others.push(begin(session.to_string()).await);
    }
    let sleeps = || with_word(&format!("sleep {word}")).len();
    until("they run", || sleeps() >= 8).await;
    let busy = server
        .call(json!({ "command": "true" }), json!({ "gavel/session_id": "8" }))
        .await;
    assert_eq!((busy.code(), &busy.body["error"]["max"]), ("busy", &json!(8)));
    for handle in others.into_iter().chain([first]) {
        handle.cancel(None).await.expect("it is sent");
    }
    until("they end", || sleeps() == 0).await;
    assert_eq!(server.run_in("8", "true").await["exitCode"], 0);
}

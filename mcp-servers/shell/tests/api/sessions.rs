//! Sessions are apart from each other.

use serde_json::json;

use crate::at_each_level;
use crate::harness::{World, is_root, stdout};
use crate::observe::{sleeping, unique, until, with_word};

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
    // Two tenants, each with users who have less than their shares.
    let begin = |session: String| {
        let user = format!("t{}/u{session}", u8::from(*session >= *"5"));
        let meta = json!({ "gavel/session_id": session, "gavel/user_id": user });
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
    let error = &busy.body["error"];
    assert_eq!(
        (busy.code(), &error["max"], &error["scope"]),
        ("busy", &json!(8), &json!("server"))
    );
    for handle in others.into_iter().chain([first]) {
        handle.cancel(None).await.expect("it is sent");
    }
    until("they end", || sleeps() == 0).await;
    assert_eq!(server.run_in("8", "true").await["exitCode"], 0);
}

#[tokio::test]
async fn no_user_and_no_tenant_takes_every_place_for_commands() {
    let Some(server) = World::at("landlock").server().await else {
        return;
    };
    let word = unique();
    let meta =
        |user: &str, session: u32| json!({ "gavel/session_id": format!("{user}-{session}"), "gavel/user_id": user });
    let mut running = Vec::new();
    for (user, places, refused) in [
        ("a/ann", 6, "user"),
        ("a/bob", 1, "tenant"),
        ("a/cy", 0, "tenant"),
        ("bob", 1, "server"),
    ] {
        for session in 0..places {
            let arguments = json!({ "command": format!("sleep {word}") });
            running.push(server.begin(arguments, meta(user, session)).await);
            let count = running.len();
            until("it runs", || sleeping(&word) >= count).await;
        }
        let busy = server.call(json!({ "command": "true" }), meta(user, 9)).await;
        assert_eq!(
            (busy.code(), &busy.body["error"]["scope"]),
            ("busy", &json!(refused)),
            "{user}"
        );
    }
    for handle in running {
        handle.cancel(None).await.expect("it is sent");
    }
    until("they end", || with_word(&word).is_empty()).await;
    assert_eq!(
        server.call(json!({ "command": "true" }), meta("a/ann", 9)).await.ok()["exitCode"],
        0
    );
}

#[tokio::test]
async fn no_user_takes_every_place_for_files_and_what_has_ended_makes_room() {
    let world = World::at("landlock").set("SHELL_SESSIONS", "4");
    let Some(server) = world.server().await else { return };
    let run = async |user: &str, session: &str, until: &str| {
        let meta = json!({ "gavel/session_id": session, "gavel/user_id": user, "gavel/deadline": until });
        server.call(json!({ "command": "ls; touch file" }), meta).await
    };
    let (past, future) = ("2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z");
    run("ann", "1", future).await.ok();
    run("ann", "2", future).await.ok();
    let refused = run("ann", "3", future).await;
    let error = &refused.body["error"];
    assert_eq!(
        (refused.code(), &error["scope"], &error["max"]),
        ("too_many_sessions", &json!("user"), &json!(2))
    );
    assert_eq!(
        stdout(&run("ann", "2", past).await.ok()),
        "file\n",
        "one that is there already runs"
    );
    // Another user's is not what makes room.
    run("bob", "4", past).await.ok();
    run("ann", "3", future).await.ok();
    assert_eq!(stdout(&run("bob", "4", past).await.ok()), "file\n");
    assert_eq!(stdout(&run("ann", "1", future).await.ok()), "file\n");
    let refused = run("ann", "2", future).await;
    assert_eq!(
        (refused.code(), &refused.body["error"]["scope"]),
        ("too_many_sessions", &json!("user"))
    );
    // The tenant's are three, so the one that has ended goes.
    run("cy", "5", future).await.ok();
    assert_eq!(run("dan", "6", future).await.body["error"]["scope"], "tenant");
    run("other/ann", "7", future).await.ok();
    assert_eq!(run("third/ann", "8", future).await.body["error"]["scope"], "server");
}

#[tokio::test]
async fn without_a_session_each_user_has_files_of_their_own() {
    let Some(server) = World::at("landlock").server().await else {
        return;
    };
    let ls = json!({ "command": "ls; touch file" });
    for (user, seen) in [("ann", ""), ("bob", ""), ("ann", "file\n")] {
        let result = server.call(ls.clone(), json!({ "gavel/user_id": user })).await.ok();
        assert_eq!(stdout(&result), seen, "{user}");
    }
}

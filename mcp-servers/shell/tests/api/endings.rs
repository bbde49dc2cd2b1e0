//! How a command ends that does not end by itself.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::at_each_level;
use crate::harness::{World, is_root, stdout};
use crate::observe::{kill, sleeping, supervisors, unique, until, with_word};

at_each_level!(
    a_timeout_ends_all_of_a_command,
    a_cancellation_ends_all_of_a_command,
    a_command_dies_with_its_server,
    a_command_dies_with_its_supervisor,
);

/// A command that resists signals, in several process groups.
fn stubborn(word: &str) -> String {
    format!(
        "trap '' TERM INT HUP; echo begun; setsid sh -c 'trap \"\" TERM; sleep {word}' & sleep {word}; sleep {word}"
    )
}

async fn a_timeout_ends_all_of_a_command(level: &'static str) {
    let Some(server) = World::at(level).server().await else {
        return;
    };
    let word = unique();
    let begin = Instant::now();
    let result = server
        .call(json!({ "command": stubborn(&word), "timeoutSeconds": 1 }), json!({}))
        .await
        .ok();
    assert!((1..5).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    let expected = json!({
        "stdout": "begun\n", "stderr": "", "exitCode": null, "signal": "SIGKILL", "timedOut": true,
        "interrupted": false, "truncated": false, "sandbox": level
    });
    assert_eq!(result, expected);
    assert_eq!(with_word(&word), [0; 0]);
    let long = server
        .call(json!({ "command": "true", "timeoutSeconds": 121 }), json!({}))
        .await;
    assert_eq!(long.code(), "invalid_argument");
}

async fn a_cancellation_ends_all_of_a_command(level: &'static str) {
    let Some(server) = World::at(level).server().await else {
        return;
    };
    let word = unique();
    let meta = json!({ "gavel/session_id": "s", "gavel/idempotency_key": "k" });
    let handle = server.begin(json!({ "command": stubborn(&word) }), meta).await;
    until("it runs", || sleeping(&word) == 2).await;
    handle.cancel(None).await.expect("it is sent");
    let took = until("it ends", || with_word(&word).is_empty()).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    // A further attempt does not run it again.
    let again = server.keyed("k", &stubborn(&word)).await.ok();
    assert_eq!(
        (&again["interrupted"], &again["timedOut"], stdout(&again)),
        (&json!(true), &json!(false), "begun\n")
    );
    assert_eq!(with_word(&word), [0; 0]);
    // The session is free.
    assert_eq!(stdout(&server.run_in("s", "echo well").await), "well\n");
}

async fn a_command_dies_with_its_server(level: &'static str) {
    let world = World::at(level);
    let Some(server) = world.server().await else { return };
    let word = unique();
    let command = format!("echo x >> counter; {}", stubborn(&word));
    let meta = json!({ "gavel/session_id": "s", "gavel/idempotency_key": "k" });
    let _handle = server.begin(json!({ "command": command }), meta).await;
    until("it runs", || sleeping(&word) == 2).await;
    kill(server.process);
    let took = until("it ends", || with_word(&word).is_empty()).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    let Some(server) = world.server().await else { return };
    for _ in 0..2 {
        let again = server.keyed("k", &command).await.ok();
        assert_eq!(
            (&again["interrupted"], stdout(&again)),
            (&json!(true), "begun\n"),
            "{again}"
        );
    }
    assert_eq!(stdout(&server.run_in("s", "cat counter").await), "x\n", "it ran once");
}

async fn a_command_dies_with_its_supervisor(level: &'static str) {
    let world = World::at(level);
    let Some(server) = world.server().await else { return };
    let word = unique();
    let command = format!("echo x >> counter; echo begun; sleep {word}; echo {word}");
    let meta = json!({ "gavel/session_id": "s", "gavel/idempotency_key": "k" });
    let handle = server.begin(json!({ "command": command }), meta).await;
    until("it runs", || !with_word(&word).is_empty()).await;
    // What was printed is kept every half second.
    tokio::time::sleep(Duration::from_millis(800)).await;
    let supervisors = supervisors(server.process);
    assert_eq!(supervisors.len(), 1);
    kill(supervisors[0]);
    let result = server.end(handle).await.expect("an answer").ok();
    assert_eq!((&result["interrupted"], stdout(&result)), (&json!(true), "begun\n"));
    if is_root() || level == "bwrap" {
        until("it ends", || with_word(&word).is_empty()).await;
    } else {
        // Only the command's own process ends by itself, and nothing else knows the others.
        until("it ends", || with_word(&format!("echo {word}")).is_empty()).await;
        with_word(&word).into_iter().for_each(kill);
    }
    assert_eq!(server.keyed("k", &command).await.ok(), result);
    assert_eq!(stdout(&server.run_in("s", "cat counter").await), "x\n", "it ran once");
}

//! What a script gets, what it returns, and that it runs once.

use serde_json::{Value, json};

use crate::harness::world;

#[tokio::test]
async fn a_script_has_its_surroundings_and_its_result() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let result = server
        .run(
            &container,
            "pwd; umask; cat; echo \"$CI $GIT_TERMINAL_PROMPT ${#GAVEL_CALL} ${GAVEL_SUPERVISOR-none}\"
             [ \"$(ps -o sid= -p $$ | tr -d ' ')\" = $$ ] && echo leads; printf 'ä€' >&2; exit 3",
        )
        .await;
    assert_eq!(result["stdout"], "/work\n0022\n1 0 32 none\nleads\n");
    assert_eq!(result["stderr"], "ä€");
    let duration = result["durationMs"].as_u64().expect("a duration");
    assert!(duration < 10_000, "{duration}");
    let rest = json!({
        "exitCode": 3, "signal": null, "timedOut": false, "interrupted": false, "truncated": false, "restarted": false
    });
    for (name, value) in rest.as_object().expect("an object") {
        assert_eq!(&result[name], value, "{name}");
    }
    let killed = server.run(&container, "kill -TERM $$").await;
    assert_eq!(
        (&killed["exitCode"], &killed["signal"]),
        (&json!(143), &json!("SIGTERM"))
    );
    assert_eq!(killed["interrupted"], false);
    // A script of many lines, with every quote, and one that is no shell.
    let odd = server.run(&container, "cat <<'END'\n'\"`$(x)\\\nEND\n").await;
    assert_eq!(odd["stdout"], "'\"`$(x)\\\n");
    let invalid = server.run(&container, "(").await;
    assert_ne!(invalid["exitCode"], 0);
}

#[tokio::test]
async fn the_same_key_runs_a_script_once_and_returns_its_kept_result() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let script = "echo x >>count; sleep 1; wc -l <count; date +%N";
    let run = || server.run_once("k", &container, script);
    let (one, two) = tokio::join!(run(), run());
    let three = run().await;
    assert_eq!(
        one["stdout"].as_str().map(|text| text.starts_with("1\n")),
        Some(true),
        "{one}"
    );
    assert_eq!((&one, &one), (&two, &three));
    // In a new process, too.
    server.kill();
    let other = world.server_of(&server.session).await;
    assert_eq!(other.run_once("k", &container, script).await, one);
    let arguments = json!({ "containerId": container, "script": "echo other" });
    let reused = other.first("k", "executeScript", arguments).await.expect("an answer");
    assert_eq!(reused.code(), "idempotency_key_reused");
    assert_eq!(other.run_once("k2", &container, "wc -l <count").await["stdout"], "1\n");
}

#[tokio::test]
async fn output_that_is_no_text_is_shown_as_text() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let result = server
        .run(&container, "head -c 50000 /dev/urandom; printf '\\n\\n\\000\\377' >&2")
        .await;
    assert!(result["stdout"].as_str().is_some_and(|text| text.contains('\u{fffd}')));
    assert_eq!(result["stderr"], "\n\n\0\u{fffd}");
    assert_eq!(result["truncated"], false);
}

/// On a busy machine, what reads the output can begin after a short script has ended.
#[tokio::test]
async fn output_that_is_read_late_is_not_lost() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let slow = "printf '#!/bin/sh\\nsleep 2; exec /usr/bin/dd \"$@\"' >/usr/local/bin/dd && chmod +x /usr/local/bin/dd";
    server.run(&container, slow).await;
    let result = server.run(&container, "echo out; echo err >&2").await;
    assert_eq!(
        (&result["stdout"], &result["stderr"]),
        (&json!("out\n"), &json!("err\n"))
    );
}

#[tokio::test]
async fn of_an_endless_line_and_of_a_gigabyte_the_end_is_kept_and_memory_stays_flat() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container_with(json!({ "memoryMb": 128 })).await;
    let line = server
        .run(&container, "head -c 3000000 /dev/zero | tr '\\0' x; printf end")
        .await;
    let text = line["stdout"].as_str().expect("text");
    assert_eq!((text.len(), text.ends_with("xend")), (128 * 1024, true));
    assert_eq!(line["truncated"], true);
    let before = server.peak_memory();
    let script = "head -c 1000000000 /dev/zero | tr '\\0' y; yes | head -c 20000000 >&2; echo last";
    let result = server.run(&container, script).await;
    let (out, err) = (
        result["stdout"].as_str().expect("text"),
        result["stderr"].as_str().expect("text"),
    );
    assert_eq!((out.len(), err.len()), (128 * 1024, 128 * 1024));
    assert!(out.ends_with("ylast\n") && err.ends_with("y\n"));
    assert_eq!((&result["exitCode"], &result["truncated"]), (&json!(0), &json!(true)));
    let grown = server.peak_memory() - before;
    assert!(grown < 32 * 1024, "{grown} KiB more");
    let disk = engine.podman(["exec", &container, "du", "-sk", "/var/lib/gavel"]);
    let kib: u64 = disk
        .split_ascii_whitespace()
        .next()
        .and_then(|kib| kib.parse().ok())
        .expect("a number");
    assert!(kib < 40 * 1024, "{kib} KiB on the disk of the container");
}

/// It would take a minute if the call waited for what it started.
#[tokio::test]
async fn a_call_ends_with_its_script_even_if_a_child_holds_the_pipes() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let begun = std::time::Instant::now();
    let result = server
        .run(
            &container,
            "sleep 61 & (trap '' TERM; sleep 62; sleep 62) & setsid sh -c 'sleep 63' & echo done",
        )
        .await;
    assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());
    assert_eq!((&result["stdout"], &result["exitCode"]), (&json!("done\n"), &json!(0)));
    let left = engine.podman(["exec", &container, "ps", "ax", "-o", "args="]);
    assert!(!left.contains("sleep 61") && !left.contains("sleep 62"), "{left}");
    // A server that a script starts in a session of its own remains, for the next scripts.
    assert!(left.contains("sleep 63"), "{left}");
    assert_eq!(server.run(&container, "echo next").await["stdout"], "next\n");
}

#[tokio::test]
async fn no_process_is_left_as_a_zombie() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    server
        .run(&container, "for i in 1 2 3; do (sleep 0.1 &) ; done; sleep 0.5")
        .await;
    let states = engine.podman(["exec", &container, "ps", "ax", "-o", "stat="]);
    assert!(!states.contains('Z'), "{states}");
}

#[tokio::test]
async fn an_invalid_script_is_refused() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    for (arguments, code) in [
        (json!({}), "missing_argument"),
        (json!({ "script": "" }), "missing_argument"),
        (json!({ "script": "a\0b" }), "nul_character"),
        (json!({ "script": "x".repeat(256 * 1024 + 1) }), "too_large"),
        (json!({ "script": "true", "timeoutSeconds": 601 }), "invalid_argument"),
        (json!({ "script": "true", "timeoutSeconds": 0 }), "invalid_argument"),
        (json!({ "script": "true", "user": "root" }), "unknown_argument"),
    ] {
        let mut all: Value = arguments.clone();
        all["containerId"] = container.clone().into();
        assert_eq!(server.call("executeScript", all).await.code(), code);
    }
    let long = format!("# {}\necho whole", "x".repeat(250 * 1024));
    assert_eq!(server.run(&container, &long).await["stdout"], "whole\n");
}

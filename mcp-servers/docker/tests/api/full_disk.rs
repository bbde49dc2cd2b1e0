//! A full disk of a container: the result says so, and is otherwise as it would be.

use serde_json::{Value, json};

use crate::engine::SMALL_IMAGE;
use crate::harness::{Server, world};

/// Fills the disk to its last byte; ends in any case.
const FILL: &str = "dd if=/dev/zero of=big bs=64k count=1000; dd if=/dev/zero of=rest bs=1 count=10000";

async fn run(server: &Server, key: &str, container: &str, script: &str, seconds: u32) -> Value {
    let arguments = json!({ "containerId": container, "script": script, "timeoutSeconds": seconds });
    let reply = server.first(key, "executeScript", arguments).await;
    reply.expect("an answer").ok()
}

#[tokio::test]
async fn a_full_disk_is_named_and_breaks_no_result() {
    let Some((engine, world)) = world() else { return };
    let world = world.set("DOCKER_MOUNTS", &engine.small_disk());
    let server = world.server().await;
    let container = server.container_with(json!({ "image": SMALL_IMAGE })).await;
    let fill = format!("{FILL}; echo after; exit 7");
    let full = run(&server, "full", &container, &fill, 60).await;
    let words = full["stderr"].as_str().expect("text");
    assert_eq!(words.matches("No space left on device").count(), 2, "{full}");
    assert_eq!(
        (&full["stdout"], &full["exitCode"], &full["diskFull"]),
        (&json!("after\n"), &json!(7), &json!(false)),
        "all of it is there: {full}"
    );
    let again = run(&server, "full", &container, &fill, 60).await;
    assert_eq!(again, full, "another attempt returns the kept result");
    let next = json!({ "containerId": container, "script": "true" });
    assert_eq!(server.call("executeScript", next).await.code(), "disk_full");

    // A script is ended as without a full disk, and the result says why, and that a part of it is lost.
    engine.podman(["exec", &container, "rm", "big", "rest"]);
    let stays = format!("echo first; {FILL}; seq 100000; setsid sleep 79 & sleep 79");
    let ended = run(&server, "ended", &container, &stays, 3).await;
    for (name, value) in [
        ("timedOut", true),
        ("diskFull", true),
        ("truncated", true),
        ("restarted", false),
    ] {
        assert_eq!(ended[name], value, "{name}: {ended}");
    }
    let kept = ended["stdout"].as_str().expect("text");
    assert!(kept.starts_with("first\n1\n2\n"), "{kept}");
    // The limit counts from the call, and the script starts a moment later.
    assert!(ended["durationMs"].as_u64().is_some_and(|ms| ms > 0), "{ended}");
    let left = engine.podman(["exec", &container, "ps", "ax", "-o", "args="]);
    assert!(!left.contains("sleep 79"), "{left}");
}

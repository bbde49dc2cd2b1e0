//! The same server as a user without rights, and without control groups: what then contains a command.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{World, stdout};
use crate::observe::{kill, sleeping, unique, until, with_word};

async fn everything_ends_and_nothing_is_written_elsewhere(level: &'static str) {
    let world = World::at(level)
        .unprivileged()
        .set("SHELL_PIDS", "40")
        .set("SHELL_MEMORY_MB", "200");
    let Some(server) = world.server().await else { return };
    assert!(world.log().contains("no control groups"), "{}", world.log());
    let word = unique();
    let begin = Instant::now();
    let many =
        format!("setsid sleep {word} & i=0; while [ $i -lt 200 ]; do sleep {word} & i=$((i+1)); done 2>/dev/null");
    let result = server
        .call(json!({ "command": many, "timeoutSeconds": 5 }), json!({}))
        .await
        .ok();
    assert_ne!(result["exitCode"], 0, "a limit was met: {result}");
    assert!(begin.elapsed() < Duration::from_secs(9));
    assert_eq!(with_word(&word), [0; 0]);
    // Memory is limited for each process, and there is none that belongs to no process.
    let tools = server.client.list_all_tools().await.expect("tools/list");
    let description = tools[0].description.as_deref().expect("a description");
    assert!(
        description.contains("200 MiB of memory for each process"),
        "{description}"
    );
    if level != "host" && cfg!(target_arch = "x86_64") {
        // memfd_create, memfd_secret, shmget, msgget
        let calls = "perl -e 'for my $n (319, 447, 29, 68) { my $r = syscall($n, 0, 4096, 0); print $!+0, \"\\n\" }'";
        assert_eq!(stdout(&server.run(calls).await), "1\n1\n1\n1\n");
    }
    let result = server
        .run("perl -e 'my $x = \"x\" x (400 << 20); print length($x)'")
        .await;
    assert_eq!(stdout(&result), "");
    let secret = world.directory.path().join("secret");
    std::fs::write(&secret, "canary").expect("a file");
    let result = server
        .run(&format!(
            "cat {}; echo x > /tmp/gavel-{word}; cat /proc/*/environ | grep -a SHELL_",
            secret.display()
        ))
        .await;
    if level != "host" {
        assert_eq!(stdout(&result), "");
    }
    assert!(level == "host" || !std::path::Path::new(&format!("/tmp/gavel-{word}")).exists());
    let _ = std::fs::remove_file(format!("/tmp/gavel-{word}"));
    let stubborn = format!("trap '' TERM; echo begun; setsid sleep {word} & sleep {word}");
    let meta = json!({ "gavel/session_id": "s", "gavel/idempotency_key": "k" });
    let _handle = server.begin(json!({ "command": stubborn }), meta).await;
    until("it runs", || sleeping(&word) == 2).await;
    kill(server.process);
    until("it ends", || with_word(&word).is_empty()).await;
    let Some(server) = world.server().await else { return };
    let again = server.keyed("k", &stubborn).await.ok();
    assert_eq!((&again["interrupted"], stdout(&again)), (&json!(true), "begun\n"));
}

#[tokio::test]
async fn bwrap_contains_commands_without_root() {
    everything_ends_and_nothing_is_written_elsewhere("bwrap").await;
}

#[tokio::test]
async fn landlock_contains_commands_without_root() {
    everything_ends_and_nothing_is_written_elsewhere("landlock").await;
}

#[tokio::test]
async fn host_ends_commands_without_root() {
    everything_ends_and_nothing_is_written_elsewhere("host").await;
}

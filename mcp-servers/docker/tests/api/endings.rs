//! Timeouts and cancellations: the script ends, with all that it started.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::engine::Engine;
use crate::harness::{Failing, Server, World, until, world};

/// Whatever a script can start to survive its end.
const SURVIVORS: &str = "setsid sleep 71 & setsid env -i sleep 72 & (trap '' TERM; sleep 73; sleep 73) & \
                         nohup sleep 74 & trap 'echo caught' TERM; echo started; sleep 75; sleep 76";

/// The same, distinguishable from those of other tests.
fn survivors(digit: u8) -> String {
    SURVIVORS.replace("sleep 7", &format!("sleep {digit}{digit}"))
}

/// Whether a process of [`survivors`] runs in any container.
fn survive(digit: u8) -> bool {
    runs(&format!("sleep\0{digit}{digit}"))
}

/// Whether a process whose command line begins like this runs in any container. Podman would take longer to say so.
fn runs(start: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let command = |process: std::fs::DirEntry| std::fs::read(process.path().join("cmdline")).unwrap_or_default();
    processes
        .map(command)
        .any(|command| command.starts_with(start.as_bytes()))
}

/// Whether the runtime below the engine has the container, whatever the engine knows of it.
fn runtime_has(container: &str) -> bool {
    let listed = std::process::Command::new("runc").args(["list", "--quiet"]).output();
    String::from_utf8_lossy(&listed.expect("runc").stdout).contains(container)
}

fn sleeps(engine: &Engine, container: &str) -> String {
    let left = engine.podman(["exec", container, "ps", "ax", "-o", "args="]);
    let lines = left.lines().filter(|line| line.starts_with("sleep 7"));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn at_its_limit_a_script_ends_with_all_that_it_started() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let begun = Instant::now();
    let arguments = json!({ "containerId": container, "script": SURVIVORS, "timeoutSeconds": 1 });
    let reply = server
        .first("k", "executeScript", arguments.clone())
        .await
        .expect("an answer");
    let result = reply.ok();
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    assert_eq!(
        (&result["timedOut"], &result["interrupted"]),
        (&json!(true), &json!(false))
    );
    assert!(
        result["stdout"]
            .as_str()
            .is_some_and(|text| text.starts_with("started\n")),
        "{result}"
    );
    assert_eq!(result["restarted"], false);
    assert_eq!(sleeps(engine, &container), "");
    // The kept result says the same.
    let again = server
        .first("k", "executeScript", arguments)
        .await
        .expect("an answer")
        .ok();
    assert_eq!(again, result);
}

#[tokio::test]
async fn a_callers_deadline_ends_a_script_as_its_limit_does() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let deadline = chrono::Utc::now() + chrono::TimeDelta::seconds(2);
    let meta = json!({ "gavel/session_id": server.session, "gavel/deadline": deadline.to_rfc3339() });
    let arguments = json!({ "containerId": container, "script": "sleep 60" });
    let begun = Instant::now();
    let result = server
        .try_call("executeScript", arguments, meta)
        .await
        .expect("an answer")
        .ok();
    assert_eq!(result["timedOut"], true);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

/// Begins the script, and cancels the call as soon as a process with this command line runs.
async fn cancel_once_it_runs(server: &Server, arguments: &Value, start: &str) {
    let meta = json!({ "gavel/session_id": server.session, "gavel/idempotency_key": "k" });
    let handle = server.send("executeScript", arguments.clone(), meta).await;
    until("the script runs", || runs(start)).await;
    handle.cancel(None).await.expect("cancelled");
}

#[tokio::test]
async fn a_cancelled_script_is_dead_within_five_seconds_and_is_not_run_again() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let arguments = json!({ "containerId": container, "script": format!("echo x >>count; {}", survivors(8)) });
    // What the script itself waits for, after everything else has started.
    cancel_once_it_runs(&server, &arguments, "sleep\0885").await;
    let begun = Instant::now();
    until("the script is dead", || !survive(8)).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let kept = server
        .first("k", "executeScript", arguments)
        .await
        .expect("an answer")
        .ok();
    assert_eq!((&kept["interrupted"], &kept["timedOut"]), (&json!(true), &json!(false)));
    assert_eq!(server.run(&container, "wc -l <count").await["stdout"], "1\n");
}

#[tokio::test]
async fn a_script_that_is_cancelled_while_it_starts_is_ended_or_never_begins() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let cancelled = (0..24_u64).map(|step| {
        let arguments = json!({ "containerId": container, "script": "sleep 595" });
        let meta = json!({ "gavel/session_id": server.session, "gavel/idempotency_key": format!("k{step}") });
        let server = &server;
        async move {
            let handle = server.send("executeScript", arguments, meta).await;
            tokio::time::sleep(Duration::from_millis(40 * step)).await;
            handle.cancel(None).await.expect("cancelled");
        }
    });
    futures_util::future::join_all(cancelled).await;
    // One that begins after its end would run for minutes.
    tokio::time::sleep(Duration::from_secs(4)).await;
    until("no script is left", || !runs("sleep\x00595")).await;
}

/// It fills the table of processes: nothing more can be started there, and its end takes a restart of the container, but
/// for the rare case that the engine's process gets a place that becomes free. A shell would end when it cannot fork.
#[tokio::test]
async fn a_script_that_leaves_no_room_for_processes_is_ended() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container_with(json!({ "pids": 48 })).await;
    let bomb = "echo x >>count; perl -MPOSIX -e 'for (;;) { my $p = fork; $0 = \"gavel-bomb\" if !defined $p; \
                if (defined $p && !$p) { setsid; exec qw(sleep 78) } }' & while :; do :; done";
    let arguments = json!({ "containerId": container, "script": bomb });
    cancel_once_it_runs(&server, &arguments, "gavel-bomb").await;
    let kept = server
        .first("k", "executeScript", arguments)
        .await
        .expect("an answer")
        .ok();
    assert_eq!(
        (&kept["interrupted"], &kept["timedOut"]),
        (&json!(true), &json!(false)),
        "{kept}"
    );
    assert_eq!(sleeps(engine, &container), "");
    assert_eq!(server.run(&container, "wc -l <count").await["stdout"], "1\n");
}

#[tokio::test]
async fn a_script_that_cannot_be_ended_otherwise_is_ended_by_a_restart_that_is_tried_until_the_engine_makes_it() {
    let Some((engine, _)) = world() else { return };
    for (path, seconds) in [("/json", 591), ("/kill", 592), ("/start", 593)] {
        let failing = Failing::new(engine);
        let server = World::at(&failing.host()).server().await;
        let container = server.container().await;
        let script = format!("echo x >>count; sleep {seconds}");
        let arguments = json!({ "containerId": container, "script": script });
        let meta = json!({ "gavel/session_id": server.session, "gavel/idempotency_key": "k" });
        let handle = server.send("executeScript", arguments.clone(), meta).await;
        until("the script runs", || runs(&format!("sleep\0{seconds}"))).await;
        failing.fail("/exec", 1);
        failing.fail(path, 3);
        handle.cancel(None).await.expect("cancelled");
        until("the engine has failed", || {
            failing.has_failed_at("/exec") && failing.has_failed_at(path)
        })
        .await;
        let kept = server
            .first("k", "executeScript", arguments)
            .await
            .expect("an answer")
            .ok();
        assert_eq!(
            (&kept["interrupted"], &kept["restarted"]),
            (&json!(true), &json!(true)),
            "{path}: {kept}"
        );
        assert!(!runs(&format!("sleep\0{seconds}")), "{path}");
        assert_eq!(server.run(&container, "wc -l <count").await["stdout"], "1\n");
    }
}

#[tokio::test]
async fn another_script_of_the_container_is_not_ended_with_one() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let other = server.run(&container, "sleep 6; echo whole");
    let arguments = json!({ "containerId": container, "script": SURVIVORS, "timeoutSeconds": 1 });
    let (other, ended) = tokio::join!(other, server.call("executeScript", arguments));
    assert_eq!(ended.ok()["timedOut"], true);
    assert_eq!(
        (&other["stdout"], &other["interrupted"]),
        (&json!("whole\n"), &json!(false))
    );
}

/// The end of a script can require a restart of its container. What is being removed is not restarted: the engine would
/// forget the container, and its processes would run on. A second server stands for another replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_removed_while_its_script_is_ended_is_gone_with_its_processes() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let other = world.server_of(&server.session).await;
    // Where a script can be ended from inside, and where only a restart ends it.
    let full = "perl -MPOSIX -e 'for (;;) { my $p = fork; $0 = \"gavel-full\" if !defined $p; \
                if (defined $p && !$p) { setsid; exec qw(sleep 600) } }' & while :; do :; done";
    for round in 0..12_u64 {
        let script = if round % 2 == 0 { "sleep 600" } else { full };
        let container = server.container_with(json!({ "pids": 48 })).await;
        let deadline = chrono::Utc::now() + chrono::TimeDelta::milliseconds(1500);
        let meta = json!({ "gavel/session_id": server.session, "gavel/deadline": deadline.to_rfc3339() });
        let run = server.try_call(
            "executeScript",
            json!({ "containerId": container, "script": script }),
            meta,
        );
        let remove = async {
            tokio::time::sleep(Duration::from_millis(1450 + 60 * round)).await;
            match round % 4 < 2 {
                true => {
                    let group = json!({ "group": server.session });
                    let cleaned = server.call("cleanupGroupContainers", group).await.ok();
                    assert_eq!(cleaned, json!({ "removed": [container], "left": [] }), "{round}");
                }
                false => {
                    let destroyed = other
                        .call("destroyContainer", json!({ "containerId": container }))
                        .await;
                    assert_eq!(destroyed.ok()["destroyed"], true, "{round}");
                }
            }
        };
        let (_, ()) = tokio::join!(run, remove);
        assert!(
            !engine
                .podman(["ps", "--all", "--quiet", "--no-trunc"])
                .contains(&container),
            "{round}"
        );
        assert!(
            !runtime_has(&container),
            "{round}: the engine forgot a container that runs"
        );
    }
}

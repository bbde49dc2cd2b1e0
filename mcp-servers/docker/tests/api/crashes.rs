//! A crash of the server, of the engine's service or of the container: the script runs once.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{World, until, world};

const SCRIPT: &str = "echo x >>count; echo begun; sleep 4; wc -l <count";

fn script(container: &str) -> Value {
    json!({ "containerId": container, "script": SCRIPT })
}

fn is_whole(result: &Value) -> bool {
    result["stdout"] == "begun\n1\n" && result["exitCode"] == 0 && result["interrupted"] == false
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_in_mid_script_is_joined_by_the_next_attempt() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let meta = json!({ "gavel/session_id": server.session, "gavel/idempotency_key": "k" });
    let lost = server.send("executeScript", script(&container), meta.clone()).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    server.kill();
    assert!(lost.await_response().await.is_err());
    let mut again = meta;
    again["gavel/first_attempt_at"] = "2026-03-31T09:00:00Z".into();
    let server = world.server_of(&server.session).await;
    let result = server
        .try_call("executeScript", script(&container), again)
        .await
        .expect("an answer")
        .ok();
    assert!(is_whole(&result), "{result}");
}

/// As at an update of gavel: its servers are stopped in good order, and what they wait for continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_stopped_in_mid_script_leaves_it_for_the_next_attempt() {
    let Some((_, world)) = world() else { return };
    for signal in ["TERM", "the end of its input"] {
        let mut server = world.server().await;
        let container = server.container().await;
        let meta = json!({ "gavel/session_id": server.session, "gavel/idempotency_key": "k" });
        let lost = server.send("executeScript", script(&container), meta).await;
        tokio::time::sleep(Duration::from_millis(1000)).await;
        match signal {
            "TERM" => {
                let process = server.process.to_string();
                let sent = std::process::Command::new("kill").args(["-TERM", &process]).status();
                assert!(sent.expect("kill").success());
            }
            _ => {
                server
                    .client
                    .close_with_timeout(Duration::from_secs(5))
                    .await
                    .expect("closed");
            }
        }
        assert!(lost.await_response().await.is_err());
        let next = world.server_of(&server.session).await;
        let result = next.run_once("k", &container, SCRIPT).await;
        assert!(is_whole(&result), "{signal}: {result}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_whose_service_is_killed_in_mid_script_is_waited_for() {
    let Some((engine, _)) = world() else { return };
    let mut service = engine.other_service();
    let world = World::at(&service.host());
    let server = world.server().await;
    let container = server.container().await;
    let run = server.run_once("k", &container, SCRIPT);
    let crash = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        service.kill();
        tokio::time::sleep(Duration::from_millis(700)).await;
        tokio::task::block_in_place(|| engine.serve_again(&mut service));
    };
    let (result, ()) = tokio::join!(run, crash);
    assert!(is_whole(&result), "{result}");
    service.kill();
    until("the engine is gone", || {
        std::os::unix::net::UnixStream::connect(&service.host()[7..]).is_err()
    })
    .await;
    // Nothing was done, and the server works again as soon as the engine does.
    let next = script(&container);
    let refused = server
        .first("k2", "executeScript", next.clone())
        .await
        .expect("an answer");
    assert_eq!(refused.code(), "engine_unavailable");
    engine.serve_again(&mut service);
    let result = server.first("k2", "executeScript", next).await.expect("an answer").ok();
    assert_eq!(result["stdout"], "begun\n2\n");
    service.kill();
}

/// The server and the engine may both be gone for as long as the script runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_kept_while_neither_the_server_nor_the_engine_is_there() {
    let Some((engine, _)) = world() else { return };
    let mut service = engine.other_service();
    let world = World::at(&service.host());
    let server = world.server().await;
    let container = server.container().await;
    let meta = json!({ "gavel/session_id": server.session, "gavel/idempotency_key": "k" });
    let lost = server.send("executeScript", script(&container), meta).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    service.kill();
    server.kill();
    assert!(lost.await_response().await.is_err());
    tokio::time::sleep(Duration::from_secs(4)).await;
    engine.serve_again(&mut service);
    let result = world
        .server_of(&server.session)
        .await
        .run_once("k", &container, SCRIPT)
        .await;
    assert!(is_whole(&result), "{result}");
    service.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_vanishes_in_mid_script_is_not_found() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let run = server.first("k", "executeScript", script(&container));
    let vanish = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        tokio::task::block_in_place(|| engine.podman(["rm", "--force", "--time", "0", &container]));
    };
    let (reply, ()) = tokio::join!(run, vanish);
    assert_eq!(reply.expect("an answer").code(), "not_found");
}

/// What the script did until then is known; whether it did the rest is not for this server to find out by running it.
#[tokio::test(flavor = "multi_thread")]
async fn a_script_whose_container_was_restarted_is_interrupted_and_not_run_again() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let run = server.run_once("k", &container, SCRIPT);
    let restart = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        tokio::task::block_in_place(|| engine.podman(["restart", "--time", "0", &container]));
    };
    let (result, ()) = tokio::join!(run, restart);
    assert_eq!(
        (&result["interrupted"], &result["exitCode"]),
        (&json!(true), &Value::Null),
        "{result}"
    );
    assert_eq!(result["stdout"], "begun\n");
    assert_eq!(server.run_once("k", &container, SCRIPT).await["interrupted"], true);
    assert_eq!(server.run(&container, "wc -l <count").await["stdout"], "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_whose_container_stopped_says_so() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let run = server.first("k", "executeScript", script(&container));
    let stop = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        tokio::task::block_in_place(|| engine.podman(["stop", "--time", "0", &container]));
    };
    let (reply, ()) = tokio::join!(run, stop);
    assert_eq!(reply.expect("an answer").code(), "not_running");
}

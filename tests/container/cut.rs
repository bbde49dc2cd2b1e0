//! A script under way when gavel is killed (PLANNING 13.5), and when the deadline passes (13.9).

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::engine::IMAGE;
use crate::model::{Task, call, model, script};
use crate::postgres;
use crate::service::{Gavel, World, started};
use crate::whole::FILES;

const TOOLS: [&str; 2] = ["createContainer", "executeScript"];

fn task(text: &str, quote: &'static str) -> Vec<Task> {
    vec![Task {
        title: "Run the tests",
        tools: &TOOLS,
        steps: vec![
            call("createContainer", json!({"options": {"image": IMAGE}})),
            script(text),
        ],
        quote,
    }]
}

/// Waits until the script has written its own counter; returns the container.
async fn under_way(world: &World, session: &str) -> String {
    let began = Instant::now();
    loop {
        // One that is only created cannot be looked into.
        if let [container] = world.containers_in(session, &["--filter", "status=running"]).as_slice() {
            let read = ["exec", container, "sh", "-c", "cat /work/counter 2>/dev/null || true"];
            if !world.engine.podman(read).is_empty() {
                return container.clone();
            }
        }
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "the script does not begin: {}",
            world.log()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn killed(database: Option<String>) {
    let Some(engine) = started().await else { return };
    let counts = "echo once >>/work/counter; sleep 8; echo \"ran $(wc -l </work/counter) times\"";
    let world = World::new(engine, database, &FILES, |_| model(task(counts, "ran 1 times"))).await;
    let mut gavel = world.start().await;
    let session = world.plan(&gavel, Duration::from_secs(3600)).await;
    world.execute(&gavel, &session).await;
    under_way(&world, &session).await;
    for _ in 0..2 {
        gavel.kill();
        gavel = world.start().await;
    }
    let ended = world.ended(&gavel, &session).await;
    assert_eq!(ended["status"], "COMPLETED", "{ended}");
    let observations = world.observations(&gavel, &session, "t1").await;
    assert_eq!(observations.len(), 2, "no step is lost or made twice: {observations:?}");
    assert_eq!(observations[1]["stdout"], "ran 1 times\n");
    assert_eq!(world.containers(&session), [""; 0], "{}", ended["result"]);
    gavel.stop();
    world.verify_audit();
}

/// PLANNING 13.5, P-305
#[tokio::test(flavor = "multi_thread")]
async fn a_script_runs_once_although_gavel_is_killed_meanwhile_on_sqlite() {
    killed(None).await;
}

/// PLANNING 13.5, P-305
#[tokio::test(flavor = "multi_thread")]
async fn a_script_runs_once_although_gavel_is_killed_meanwhile_on_postgres() {
    killed(Some(postgres::database().await)).await;
}

/// Whether a process with this argument runs. The containers' processes are processes of the machine.
fn runs(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|line| line.split(|byte| *byte == 0).any(|given| given == argument.as_bytes()))
}

async fn wait(what: &str, until: Instant, holds: impl AsyncFn() -> bool) {
    while !holds().await {
        assert!(Instant::now() < until, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn passes(database: Option<String>, number: u32) {
    const TIME: Duration = Duration::from_secs(25);
    let Some(engine) = started().await else { return };
    // Processes of other tests are processes of this machine too.
    let argument = &format!("31415.{}{number}", std::process::id());
    // One process that ignores the request to end, and one in a session of its own.
    let script =
        format!("trap '' TERM; setsid sleep {argument} & echo 1 >/work/counter; sleep {argument}; sleep {argument}");
    let world = World::new(engine, database, &FILES, |_| model(task(&script, "never"))).await;
    let gavel: Gavel = world.start().await;
    let deadline = Instant::now() + TIME;
    let session = world.plan(&gavel, TIME).await;
    world.execute(&gavel, &session).await;
    under_way(&world, &session).await;
    assert!(
        runs(argument) && Instant::now() < deadline,
        "the script runs before the deadline"
    );
    tokio::time::sleep_until(deadline.into()).await;
    let asked = world.gemini.requests().len();
    // The deadline of the session was set some milliseconds after this one's clock was read.
    let in_time = deadline + Duration::from_millis(5500);
    wait("the script is dead", in_time, async || !runs(argument)).await;
    let status = async || world.get(&gavel, &session).await["status"] == "DEADLINE_EXCEEDED";
    wait("the session has ended", in_time, status).await;
    let cleaned = async || world.containers(&session).is_empty();
    wait("the containers are gone", deadline + Duration::from_secs(30), cleaned).await;
    let log = world.get(&gavel, &format!("{session}/log")).await;
    let actions = log["actions"].as_array().unwrap();
    let said = actions
        .iter()
        .map(|action| [&action["tool"], &action["status"], &action["taskId"]]);
    let expected = [
        json!(["createContainer", "completed", "t1"]),
        json!(["executeScript", "in_doubt", "t1"]),
        json!(["cleanupGroupContainers", "completed", null]),
    ];
    assert_eq!(said.map(|action| json!(action)).collect::<Vec<_>>(), expected, "{log}");
    let done = world.watched.done().into_iter();
    let late: Vec<_> = done.filter(|(at, _)| *at > deadline).map(|(_, what)| what).collect();
    assert_eq!(
        late,
        ["cleanupGroupContainers"],
        "after the deadline nothing begins but the cleanup"
    );
    assert_eq!(
        world.gemini.requests().len(),
        asked,
        "no model is asked after the deadline"
    );
    assert!(world.github.seen("POST").is_empty());
    gavel.stop();
    world.verify_audit();
}

/// PLANNING 13.9, P-302
#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_ends_a_script_and_its_container_on_sqlite() {
    passes(None, 1).await;
}

/// PLANNING 13.9, P-302
#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_ends_a_script_and_its_container_on_postgres() {
    passes(Some(postgres::database().await), 2).await;
}

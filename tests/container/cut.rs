//! A script under way when gavel is killed, and when its session is cancelled or the deadline passes, also while gavel
//! is off.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::engine::IMAGE;
use crate::model::{Task, call, model, script};
use crate::postgres;
use crate::service::{Gavel, World, started};
use crate::whole::FILES;

const HOUR: Duration = Duration::from_secs(3600);
/// How soon a script is dead, and its session has ended.
const SOON: Duration = Duration::from_secs(5);

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
pub async fn under_way(world: &World, session: &str) -> String {
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

/// A script that writes its own counter, and ends once the file `end` is there.
const COUNTS: &str = "echo once >>/work/counter; until [ -e /work/end ]; do sleep 0.2; done
echo \"ran $(wc -l </work/counter) times\"";

async fn killed(database: Option<String>) {
    const TIME: Duration = Duration::from_secs(15);
    let Some(engine) = started().await else { return };
    let world = World::new(engine, database, &FILES, |_| model(task(COUNTS, "ran 1 times"))).await;
    let mut gavel = world.start().await;
    let session = world.plan(&gavel, HOUR).await;
    world.execute(&gavel, &session).await;
    let container = under_way(&world, &session).await;
    // The deadline of another session passes while gavel is off.
    let deadline = Instant::now() + TIME;
    let late = world.plan(&gavel, TIME).await;
    world.execute(&gavel, &late).await;
    under_way(&world, &late).await;
    gavel.kill();
    assert!(Instant::now() < deadline, "the deadline has not passed yet");
    // The deadline of the session was set some milliseconds after this one's clock was read.
    tokio::time::sleep_until((deadline + Duration::from_millis(500)).into()).await;
    gavel = world.start().await;
    is_cut(&world, &gavel, &late, Instant::now(), "DEADLINE_EXCEEDED").await;
    gavel.kill();
    gavel = world.start().await;
    // Detached: the script ends at once, and its container with it.
    engine.podman(["exec", "--detach", &container, "touch", "/work/end"]);
    let ended = world.ended(&gavel, &session).await;
    assert_eq!(ended["status"], "COMPLETED", "{ended}");
    let observations = world.observations(&gavel, &session, "t1").await;
    assert_eq!(observations.len(), 2, "no step is lost or made twice: {observations:?}");
    assert_eq!(observations[1]["stdout"], "ran 1 times\n");
    assert_eq!(world.containers(&session), [""; 0], "{}", ended["result"]);
    gavel.stop();
    world.verify_audit();
}

/// A session whose script was cut at this time: it has ended 5 s later, and its containers are gone 30 s later.
async fn is_cut(world: &World, gavel: &Gavel, session: &str, at: Instant, status: &str) {
    let has_status = async || world.get(gavel, session).await["status"] == status;
    wait("the session has ended", at + SOON, has_status).await;
    let cleaned = async || world.containers(session).is_empty();
    wait("the containers are gone", at + Duration::from_secs(30), cleaned).await;
    let noted = |session: &Value| !session["result"]["cleanup"]["removed"][0].is_null();
    world.once(gavel, session, "the cleanup is noted", noted).await;
    let log = world.get(gavel, &format!("{session}/log")).await;
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
}

/// P-305
#[tokio::test(flavor = "multi_thread")]
async fn a_script_runs_once_although_gavel_is_killed_meanwhile_on_sqlite() {
    killed(None).await;
}

/// P-305
#[tokio::test(flavor = "multi_thread")]
async fn a_script_runs_once_although_gavel_is_killed_meanwhile_on_postgres() {
    killed(Some(postgres::database().await)).await;
}

/// Whether a process with this argument runs in a container. Its processes are processes of the machine.
fn runs(argument: &str, container: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut of_container = processes.filter(|process| {
        let groups = fs::read_to_string(process.path().join("cgroup"));
        groups.is_ok_and(|groups| groups.contains(container))
    });
    of_container.any(|process| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|given| given == argument.as_bytes())
    })
}

async fn wait(what: &str, until: Instant, holds: impl AsyncFn() -> bool) {
    while !holds().await {
        assert!(Instant::now() < until, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// How long the processes of [`stubborn`] sleep: an argument by which they are found.
const ARGUMENT: &str = "31415.9";

/// A script with one process that ignores the request to end, and one in a session of its own.
fn stubborn() -> String {
    format!("trap '' TERM; setsid sleep {ARGUMENT} & echo 1 >/work/counter; sleep {ARGUMENT}; sleep {ARGUMENT}")
}

async fn passes(database: Option<String>) {
    const TIME: Duration = Duration::from_secs(25);
    let Some(engine) = started().await else { return };
    let world = World::new(engine, database, &FILES, |_| model(task(&stubborn(), "never"))).await;
    let gavel: Gavel = world.start().await;
    let deadline = Instant::now() + TIME;
    let session = world.plan(&gavel, TIME).await;
    world.execute(&gavel, &session).await;
    let container = under_way(&world, &session).await;
    assert!(
        runs(ARGUMENT, &container) && Instant::now() < deadline,
        "the script runs before the deadline"
    );
    tokio::time::sleep_until(deadline.into()).await;
    let asked = world.gemini.requests().len();
    // The deadline of the session was set some milliseconds after this one's clock was read.
    let at = deadline + Duration::from_millis(500);
    wait("the script is dead", at + SOON, async || !runs(ARGUMENT, &container)).await;
    is_cut(&world, &gavel, &session, at, "DEADLINE_EXCEEDED").await;
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

/// P-302
#[tokio::test(flavor = "multi_thread")]

async fn a_cancellation_ends_a_script_and_its_container() {
    let Some(engine) = started().await else { return };
    let world = World::new(engine, None, &FILES, |_| model(task(&stubborn(), "never"))).await;
    let gavel: Gavel = world.start().await;
    let session = world.plan(&gavel, HOUR).await;
    world.execute(&gavel, &session).await;
    cancel(&world, &gavel, &session, ARGUMENT).await;
    gavel.stop();
    world.verify_audit();
}

/// Cancels a session in mid-script.
async fn cancel(world: &World, gavel: &Gavel, session: &str, argument: &str) {
    let container = under_way(world, session).await;
    assert!(runs(argument, &container), "the script runs");
    let at = Instant::now();
    let why = json!({"reason": "another way was found"});
    let (status, body) = world.post(gavel, &format!("{session}/cancel"), why).await;
    assert!([200, 202].contains(&status), "{body}");
    wait("the script is dead", at + SOON, async || !runs(argument, &container)).await;
    is_cut(world, gavel, session, at, "CANCELLED").await;
    let reason = world.get(gavel, session).await["statusReason"].clone();
    assert_eq!(reason["code"], "cancelled");
    let detail = reason["detail"].as_str().unwrap();
    for part in ["ann", "another way was found"] {
        assert!(detail.contains(part), "{part} is not in {detail}");
    }
}

/// P-302
#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_ends_a_script_and_its_container_on_sqlite() {
    passes(None).await;
}

/// P-302
#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_ends_a_script_and_its_container_on_postgres() {
    passes(Some(postgres::database().await)).await;
}

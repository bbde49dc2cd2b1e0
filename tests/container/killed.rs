//! Sessions whose gavel is killed again and again, at moments that a seed chooses: each ends as if nothing had happened.
//!
//! Slow, so ignored: `cargo test --test container killed -- --ignored`. `GAVEL_KILLED_SESSIONS` (10) and
//! `GAVEL_KILLED_SEED` choose how many sessions there are on each database, and the moments.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cut::under_way;
use crate::engine::IMAGE;
use crate::gemini::Reply;
use crate::model::{Task, call, model, script};
use crate::postgres;
use crate::service::{World, started};
use crate::whole::{FILES, tasks};

/// How often gavel is killed in one session.
const KILLS: u32 = 10;
/// Tasks whose scripts count themselves, and the scripts of one. Few, since the history of a long task is shortened.
const COUNTING: usize = 3;
const SCRIPTS: usize = 7;

/// The plan of a session that opens a pull request, with a task between that has many short steps.
fn long(url: &str) -> Vec<Task> {
    let mut all = tasks(url);
    let counts = |n: usize| script(&format!("echo {n} >>/work/count; echo counted {n}"));
    for part in 0..COUNTING {
        let mut steps = vec![call("listContainers", json!({}))];
        steps.extend((1..=SCRIPTS).map(|n| counts(part * SCRIPTS + n)));
        steps.push(script("echo all of them: $(cat /work/count)"));
        let counting = Task {
            title: "Count",
            tools: &["listContainers", "executeScript"],
            steps,
            quote: "all of them: 1 2 3",
        };
        all.insert(2 + part, counting);
    }
    all
}

/// A number that the environment may set.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// The next number of a sequence (xorshift).
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

async fn killed(database: impl AsyncFn() -> Option<String>) {
    let Some(engine) = started().await else { return };
    let mut seed = number("GAVEL_KILLED_SEED", 0x5eed_2026);
    for _ in 0..number("GAVEL_KILLED_SESSIONS", 10) {
        let slow = |url: &str| Reply::After(Duration::from_millis(500), Box::new(model(long(url))));
        let mut world = World::new(engine, database().await, &FILES, slow).await;
        world.further = vec![("GAVEL_RUNS_LEASE_SECONDS", "1".to_owned())];
        let mut gavel = world.start().await;
        let session = world.plan(&gavel, Duration::from_secs(3600)).await;
        world.execute(&gavel, &session).await;
        for _ in 0..KILLS {
            let moment = Duration::from_millis(4000 + next(&mut seed) % 6000);
            tokio::time::sleep(moment).await;
            gavel.kill();
            gavel = world.start().await;
        }
        let ended = world.once(&gavel, &session, "it has a result", |session| {
            !session["result"].is_null()
        });
        let ended = ended.await;
        is_whole(&world, &gavel.url, &session, &ended);
        for part in 1..=COUNTING {
            let steps = world.observations(&gavel, &session, &format!("t{}", 2 + part)).await;
            assert_eq!(steps.len(), SCRIPTS + 2, "a step was lost or made twice: {steps:?}");
            let all: Vec<_> = (1..=part * SCRIPTS).map(|n| n.to_string()).collect();
            let said = format!("all of them: {}\n", all.join(" "));
            assert_eq!(steps[SCRIPTS + 1]["stdout"], said);
        }
        gavel.stop();
        world.verify_audit();
    }
}

/// The session has one pull request, every action once, and nothing left.
fn is_whole(world: &World, url: &str, session: &str, ended: &Value) {
    assert_eq!(ended["status"], "COMPLETED", "{url}: {ended}");
    assert_eq!(ended["pullRequests"].as_array().unwrap().len(), 1, "{ended}");
    let pulls = world
        .github
        .state(|state| state.repository("acme", "dates").pulls.len());
    assert_eq!((pulls, world.git.pushes()), (1, 1));
    let log = ended["result"]["log"].as_array().unwrap();
    let statuses = log.iter().filter(|action| action["status"] != "completed");
    assert_eq!(statuses.collect::<Vec<_>>(), [&Value::Null; 0]);
    let expected: usize = long("").iter().map(|task| task.steps.len()).sum();
    assert_eq!(
        log.len(),
        expected + 1,
        "every step of the plan, and the cleanup: {log:?}"
    );
    let cleanup = &ended["result"]["cleanup"];
    assert_eq!(cleanup["left"], json!([]), "{cleanup}");
    assert_eq!(world.containers(session), [""; 0], "{cleanup}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn killed_sessions_end_with_one_pull_request_and_nothing_left_on_sqlite() {
    killed(async || None).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn killed_sessions_end_with_one_pull_request_and_nothing_left_on_postgres() {
    killed(async || Some(postgres::database().await)).await;
}

/// A script that is under way until the file `end` is there: no process can bring the session further.
const HANGS: &str = "echo 1 >/work/counter; until [ -e /work/end ]; do sleep 0.1; done";

/// Longer than the lease of a process that died, so that the next one works on the run.
const TAKEN: Duration = Duration::from_secs(4);

/// A session whose processes are lost without progress fails, and is cleaned up then: by a process that does nothing else,
/// and that may be killed as well. It continues when its plan is executed again.
async fn is_lost(database: Option<String>) {
    let Some(engine) = started().await else { return };
    let create = || call("createContainer", json!({"options": {"image": IMAGE}}));
    let task = Task {
        title: "Run the tests",
        tools: &["createContainer", "executeScript"],
        steps: vec![
            create(),
            script(HANGS),
            create(),
            script("echo finished after $((20 + 1)) tries"),
        ],
        quote: "finished after 21 tries",
    };
    let world = World::new(engine, database, &FILES, |_| model(vec![task])).await;
    let mut gavel = world.start().await;
    let session = world.plan(&gavel, Duration::from_secs(3600)).await;
    world.execute(&gavel, &session).await;
    under_way(&world, &session).await;
    let asked = world.gemini.requests().len();
    // The first one has progressed.
    for _ in 0..=3 {
        gavel.kill();
        let read = world.start().await;
        gavel = read;
        tokio::time::sleep(TAKEN).await;
    }
    let ended = world.once(&gavel, &session, "it has a result", |session| {
        !session["result"].is_null()
    });
    let ended = ended.await;
    let reason = &ended["statusReason"];
    assert_eq!(
        (&ended["status"], &reason["code"]),
        (&json!("FAILED"), &json!("internal"))
    );
    assert!(
        reason["detail"].to_string().contains("3 processes in a row"),
        "{reason}"
    );
    assert_eq!(world.gemini.requests().len(), asked, "no model is asked");
    let cleanup = &ended["result"]["cleanup"];
    assert_eq!(
        (cleanup["removed"].as_array().unwrap().len(), &cleanup["left"]),
        (1, &json!([]))
    );
    assert_eq!(world.containers(&session), [""; 0]);
    let log = world.get(&gavel, &format!("{session}/log")).await;
    assert_eq!(ended["result"]["log"], log["actions"]);
    let said = log["actions"].as_array().unwrap().iter();
    let said: Vec<_> = said.map(|action| json!([action["tool"], action["status"]])).collect();
    let in_doubt = json!(["executeScript", "in_doubt"]);
    let cleaned = json!(["cleanupGroupContainers", "completed"]);
    assert_eq!(
        said,
        [json!(["createContainer", "completed"]), in_doubt, cleaned],
        "{log}"
    );

    world.execute(&gavel, &session).await;
    let waits = |session: &Value| session["waitingFor"][0]["kind"] == "in_doubt";
    let waits = world.once(&gavel, &session, "a person is waited for", waits).await;
    let action = waits["waitingFor"][0]["actionId"].as_str().unwrap();
    let settle = format!("/api/agent/actions/{action}/settle");
    let (status, body) = world.post(&gavel, &settle, json!({"happened": true})).await;
    assert_eq!(status, 200, "{body}");
    let again = world.once(&gavel, &session, "it has a result", |session| {
        !session["result"].is_null()
    });
    let again = again.await;
    assert_eq!(again["status"], "COMPLETED", "{again}");
    assert_eq!(world.containers(&session), [""; 0], "{again}");
    gavel.stop();
    world.verify_audit();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_session_is_cleaned_up_and_continues_when_it_is_executed_again_on_sqlite() {
    is_lost(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_session_is_cleaned_up_and_continues_when_it_is_executed_again_on_postgres() {
    is_lost(Some(postgres::database().await)).await;
}

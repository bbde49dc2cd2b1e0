//! The process is killed with -9 within each single write of actions that a user approves, from the approval on
//! (promises: at most once, truthful states; R-14). Each action is done once, or its outcome is unknown, and then it is
//! never repeated and a person settles it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::agents::processes::{Place, adds_two};
use crate::audit::audit_is_whole;
use crate::brake::{Brake, DEATHS, Write};
use crate::crash::Process;
use crate::gemini::Gemini;
use crate::harness::{client, until};

/// Every row that a resolution, its action, its run and its thread write.
const WRITES: [(&str, &str); 6] = [
    ("agent_action", "status"),
    ("agent_run", "status"),
    ("agent_run_entry", "body"),
    ("thread_message", "body"),
    ("tool_invocation_log", "status"),
    ("audit", "kind"),
];

/// A user with a client that repeats unanswered requests.
struct Person {
    url: String,
    run: String,
}

impl Person {
    async fn get(&self, path: &str) -> Option<Value> {
        let answer = client()
            .get(format!("{}/api/agent/{path}", self.url))
            .send()
            .await
            .ok()?;
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        answer.json().await.ok()
    }

    async fn post(&self, path: &str, body: Value) -> Option<(u16, Value)> {
        let request = client().post(format!("{}/api/agent/{path}", self.url));
        let answer = request.json(&body).send().await.ok()?;
        Some((answer.status().as_u16(), answer.json().await.ok()?))
    }

    /// Approves every request of the run until the run ends; `None` if the process is dead.
    async fn approves(&self, given: &mut Vec<Value>) -> Option<Value> {
        loop {
            // A request in flight when the process died is repeated, and counts once.
            for approval in given.clone() {
                self.says_yes(&approval).await?;
            }
            let run = self.get(&format!("runs/{}", self.run)).await?;
            if ["completed", "failed"].contains(&run["status"].as_str().unwrap()) {
                return Some(run);
            }
            for waiting in self.get("approvals/pending").await?["approvals"].as_array().unwrap() {
                given.push(waiting["approvalId"].clone());
                self.says_yes(&waiting["approvalId"]).await?;
            }
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
    }

    async fn says_yes(&self, approval: &Value) -> Option<()> {
        let yes = json!({"approvalId": approval, "decision": "approve_once"});
        let (status, body) = self.post("approvals/resolve", yes).await?;
        // 500: the process was shutting down and does not know the outcome.
        assert!([200, 500, 503].contains(&status), "{status}: {body}");
        Some(())
    }
}

struct Outcome {
    /// Whether there was such a write.
    reached: bool,
    writes: i64,
    place: Place,
    /// A user of the process that runs now.
    person: Person,
    run: Value,
    _process: Process,
}

/// Makes a run that requests approval twice, and whose process dies within write `at` after the first request.
async fn dies_at(at: i64, write: Write, postgres: bool, settings: Value) -> Outcome {
    let place = Place::on(postgres).await;
    let gemini = Gemini::scripted(vec![adds_two(Arc::default()).reply]).await;
    let mut one = place.start_with(&gemini, &settings).await;
    let mut person = Person {
        url: one.url.clone(),
        run: String::new(),
    };
    let (status, asked) = person.post("run", json!({"prompt": "Add two."})).await.unwrap();
    assert_eq!(
        (status, &asked["status"]),
        (200, &json!("awaiting_confirmation")),
        "{asked}"
    );
    person.run = asked["runId"].as_str().unwrap().to_owned();
    let mut brake = Brake::new(&place.record, &WRITES).await;
    brake.stop_at(at).await;
    let first = Person {
        url: one.url.clone(),
        run: person.run.clone(),
    };
    let answers = tokio::spawn(async move {
        let mut given = Vec::new();
        first.approves(&mut given).await;
        given
    });
    let begun = Instant::now();
    let reached = loop {
        if brake.has_stopped().await {
            break true;
        }
        if answers.is_finished() {
            break false;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{at}: the run neither blocks nor ends"
        );
        tokio::time::sleep(Duration::from_millis(40)).await;
    };
    one.child.0.kill().unwrap();
    one.child.0.wait().unwrap();
    let mut given = answers.await.unwrap();
    if reached {
        brake.release(write).await;
    }
    let writes = brake.writes().await;
    let process = place.start_with(&gemini, &settings).await;
    person.url = process.url.clone();
    let run = person.approves(&mut given).await.expect("the process stays alive");
    Outcome {
        reached,
        writes,
        place,
        person,
        run,
        _process: process,
    }
}

/// Kills the process at every write. `check` returns how many calls were in doubt.
async fn at_every_write<F: Future<Output = usize> + Send + 'static>(
    (postgres, write): (bool, Write),
    settings: Value,
    check: impl Fn(i64, Outcome) -> F + Copy + Send + 'static,
) -> usize {
    let whole = dies_at(0, write, postgres, settings.clone()).await;
    assert!(!whole.reached && whole.writes > 20, "{} writes", whole.writes);
    let mut deaths = JoinSet::new();
    for at in 1..=whole.writes {
        let settings = settings.clone();
        deaths.spawn(async move {
            let _place = DEATHS.acquire().await.unwrap();
            let outcome = dies_at(at, write, postgres, settings).await;
            assert!(outcome.reached, "{at} of {} was never written", whole.writes);
            audit_is_whole(&outcome.place.record, &format!("killed at {at}")).await;
            check(at, outcome).await
        });
    }
    deaths.join_all().await.into_iter().sum()
}

/// The tool takes a key: both calls are done once, and the death does not show.
async fn both_are_done_once(at: i64, outcome: Outcome) -> usize {
    let Outcome { place, run, .. } = outcome;
    assert_eq!(
        (&run["status"], &run["summary"]),
        (&json!("completed"), &json!("Added.")),
        "killed at {at}: {run}"
    );
    for action in run["actions"].as_array().unwrap() {
        assert_eq!(action["state"], "completed", "killed at {at}: {run}");
    }
    assert_eq!(place.tasks().await, ["one", "two"], "killed at {at}");
    0
}

/// The tool takes no key: a call that was sent and not answered is in doubt until a person settles it, and is never
/// sent again.
async fn each_is_done_or_in_doubt(at: i64, outcome: Outcome) -> usize {
    let Outcome { place, person, run, .. } = outcome;
    // The tool server may still have been working when gavel died; it exits when its input closes.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let tasks = place.tasks().await;
    let actions = run["actions"].as_array().unwrap();
    assert_eq!(actions.len(), 2, "killed at {at}: {run}");
    let mut in_doubt = 0;
    for (action, name) in actions.iter().zip(["one", "two"]) {
        let times = tasks.iter().filter(|task| *task == name).count();
        match action["state"].as_str().unwrap() {
            "completed" => assert_eq!(times, 1, "killed at {at}: {run}"),
            "in_doubt" => {
                assert!(times <= 1, "killed at {at}: {tasks:?}");
                let path = format!("actions/{}/settle", action["actionId"].as_str().unwrap());
                let (status, settled) = person.post(&path, json!({"happened": times == 1})).await.unwrap();
                assert_eq!(status, 200, "{settled}");
                let found = settled["actions"].as_array().unwrap().iter();
                let found = found.filter(|one| one["actionId"] == action["actionId"]);
                let states: Vec<_> = found.map(|one| one["state"].as_str().unwrap()).collect();
                let expected = if times == 1 { "completed" } else { "failed" };
                assert_eq!(states, [expected], "killed at {at}: {settled}");
                in_doubt += 1;
            }
            _ => panic!("killed at {at}: {run}"),
        }
    }
    let expected = match in_doubt {
        0 => ("completed", "completed"),
        _ => ("failed", "in_doubt"),
    };
    assert_eq!(
        (run["status"].as_str(), run["state"].as_str()),
        (Some(expected.0), Some(expected.1)),
        "killed at {at}: {run}"
    );
    let summary = run["summary"].as_str().unwrap();
    assert!(summary.starts_with("Added."), "killed at {at}: {run}");
    assert_eq!(summary.contains("unknown"), in_doubt > 0, "killed at {at}: {run}");
    assert!(in_doubt <= 1, "killed at {at}: {run}");
    until("no approval request to wait", || async {
        let pending = person.get("approvals/pending").await.unwrap();
        pending["approvals"].as_array().unwrap().is_empty()
    })
    .await;
    in_doubt
}

macro_rules! killed_within_every_write {
    ($($name:ident: $postgres:literal, $write:ident;)*) => {$(
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn an_approved_call_is_done_once() {
                let settings = json!({"trustHints": true});
                at_every_write(($postgres, Write::$write), settings, both_are_done_once).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn an_approved_call_without_a_key_is_never_sent_twice() {
                let tool = json!({"sideEffect": true, "idempotency": "none"});
                let settings = json!({"trustHints": true, "tools": {"add_task": tool}});
                let in_doubt = at_every_write(($postgres, Write::$write), settings, each_is_done_or_in_doubt).await;
                assert!(in_doubt > 0, "a process died while a call was in flight");
            }
        }
    )*};
}

killed_within_every_write! {
    on_sqlite: false, Lost;
    on_postgres: true, Lost;
    on_postgres_unacknowledged: true, OutcomeUnknown;
}

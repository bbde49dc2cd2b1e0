//! A background run whose process is killed with -9 within each single write (promises: at most once, truthful states):
//! the n-th write is blocked, and then the process dies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::processes::{Place, adds_two, all_runs, is_whole, over};
use super::{has_ended, id, path_of};
use crate::audit::{audit_is_whole, rows};
use crate::brake::{Brake, DEATHS, Write};
use crate::crash::Process;
use crate::gemini::Gemini;
use crate::harness::client;

/// Every row that a run, its journal or its calls write. `UPDATE OF status` excludes the lease renewals.
const WRITES: [(&str, &str); 4] = [
    ("agent_run", "status"),
    ("agent_run_entry", "body"),
    ("tool_invocation_log", "status"),
    ("audit", "kind"),
];

/// Diagnostics for a failed test: the journals and the calls.
async fn on_record(url: &str) -> Vec<Vec<String>> {
    let journals = "SELECT created_at, run_id, number, body FROM agent_run_entry ORDER BY created_at, run_id, number";
    let calls = "SELECT created_at, tool, status, duration_us, error_code, error_message FROM tool_invocation_log ORDER BY created_at";
    [rows(url, journals).await, rows(url, calls).await].concat()
}

/// Makes a background run for a client that repeats its request with the same key until it is answered; `None` if the
/// process is dead.
async fn queued(url: &str, agent: &str) -> Option<Value> {
    loop {
        let answer = client()
            .post(format!("{url}{}", path_of(agent)))
            .header("prefer", "respond-async")
            .header("idempotency-key", "the-run")
            .json(&json!({"query": "x"}))
            .send()
            .await
            .ok()?;
        let status = answer.status();
        let body: Value = answer.json().await.ok()?;
        if status.is_success() {
            return Some(body);
        }
        // The dead process may still count as the one at work. A write that is blocked too long is abandoned, and the
        // answer says so.
        let expected = match status.as_u16() {
            409 | 503 => true,
            500 => body["code"] == "outcome_unrecorded",
            _ => false,
        };
        assert!(expected, "{status}: {body}");
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
}

/// The outcome of a run whose process died within a write.
struct Outcome {
    /// Whether the run made this write.
    reached: bool,
    /// How many it made.
    writes: i64,
    place: Place,
    process: Process,
    run: Value,
}

/// Makes a run whose process dies within its write `at`, and that another process then claims.
async fn dies_at(at: i64, write: Write, postgres: bool, agent: &'static str, settings: Value) -> Outcome {
    let place = Place::on(postgres).await;
    let gemini = Gemini::scripted(vec![adds_two(Arc::default()).reply]).await;
    let mut one = place.start_with(&gemini, &settings).await;
    let mut brake = Brake::new(&place.record, &WRITES).await;
    brake.stop_at(at).await;
    let url = one.url.clone();
    let asked = tokio::spawn(async move { queued(&url, agent).await });
    let begun = Instant::now();
    let reached = loop {
        if brake.has_stopped().await {
            break true;
        }
        let over = "SELECT count(*) FROM agent_run WHERE parent_run_id IS NULL AND completed_at IS NOT NULL";
        if brake.number(over).await > 0 {
            break false;
        }
        if begun.elapsed() > Duration::from_secs(30) {
            panic!(
                "{at}: the run neither blocks nor ends: {:#?}",
                on_record(&place.record).await
            );
        }
        tokio::time::sleep(Duration::from_millis(40)).await;
    };
    one.child.0.kill().unwrap();
    one.child.0.wait().unwrap();
    asked.await.unwrap();
    if reached {
        brake.release(write).await;
    }
    let writes = brake.writes().await;
    let process = place.start_with(&gemini, &settings).await;
    let reported = tokio::time::timeout(Duration::from_secs(30), queued(&process.url, agent));
    let run = reported
        .await
        .expect("the run is reported")
        .expect("the process stays alive");
    let run = over(&process, &id(&run)).await;
    Outcome {
        reached,
        writes,
        place,
        process,
        run,
    }
}

/// Kills the process at every write of an agent's run. `check` asserts the outcome and returns whether it shows the
/// death.
async fn at_every_write<F: Future<Output = bool> + Send + 'static>(
    (postgres, write): (bool, Write),
    agent: &'static str,
    settings: Value,
    check: impl Fn(i64, Outcome) -> F + Copy + Send + 'static,
) {
    let whole = dies_at(0, write, postgres, agent, settings.clone()).await;
    assert!(!whole.reached && whole.writes > 10, "{} writes", whole.writes);
    let mut deaths = JoinSet::new();
    for at in 1..=whole.writes {
        let settings = settings.clone();
        deaths.spawn(async move {
            let _place = DEATHS.acquire().await.unwrap();
            let outcome = dies_at(at, write, postgres, agent, settings).await;
            // A read that takes long is written twice, so a quicker run makes fewer writes.
            let made = outcome.writes;
            assert!(outcome.reached || made < at, "{at} of {made} was never written");
            // at every write, the audit log is one chain and contains every effect in the tool-call log.
            audit_is_whole(&outcome.place.record, &format!("killed at {at}")).await;
            check(at, outcome).await
        });
    }
    let shown = deaths.join_all().await.into_iter().filter(|shown| *shown).count();
    assert!(shown > 1, "of {} deaths {shown} show", whole.writes);
}

/// The tool takes a key: the final state is the same as without a death, and each effect happens once.
async fn ends_as_if_nothing_had_happened(at: i64, outcome: Outcome) -> bool {
    let Outcome {
        place, process, run, ..
    } = outcome;
    assert_eq!(
        (&run["status"], &run["summary"]),
        (&json!("completed"), &json!("Both are there.")),
        "killed at {at}: {run}"
    );
    let tasks = place.tasks().await;
    assert_eq!(
        tasks,
        ["one", "two"],
        "killed at {at}: {:#?}",
        on_record(&place.record).await
    );
    is_whole(&process, &format!("write {at}")).await;
    run["recovered_from"] == "crash"
}

/// The tool takes no key: a call that was sent and not answered is in doubt until a person settles it, and is never
/// sent again.
async fn ends_or_waits_for_a_settlement(at: i64, outcome: Outcome) -> bool {
    let Outcome {
        place,
        process,
        mut run,
        ..
    } = outcome;
    let in_doubt = run["status"] == "paused";
    if in_doubt {
        assert_eq!(run["stop_reason"], "in_doubt", "killed at {at}: {run}");
        let calls = run["in_doubt"].as_array().unwrap();
        assert_eq!(calls.len(), 1, "killed at {at}: {run}");
        // The tool server may still have been working when gavel died; it exits when its input closes.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let there = place.tasks().await;
        let happened = there.iter().any(|task| calls[0]["arguments"]["description"] == **task);
        let body = json!({"settled": {calls[0]["action_id"].as_str().unwrap(): happened}});
        let answer = client()
            .post(format!("{}/api/runs/{}/resume", process.url, id(&run)))
            .json(&body);
        run = answer.send().await.unwrap().json().await.unwrap();
    }
    assert_eq!(
        (&run["status"], &run["summary"]),
        (&json!("completed"), &json!("Added.")),
        "killed at {at}: {run}"
    );
    let tasks = place.tasks().await;
    let times = |name: &str| tasks.iter().filter(|task| *task == name).count();
    assert!(times("one") <= 1 && times("two") <= 1, "killed at {at}: {tasks:?}");
    for run in all_runs(&process).await {
        assert!(has_ended(&run), "killed at {at}: {run}");
    }
    in_doubt
}

macro_rules! killed_within_every_write {
    ($($name:ident: $postgres:literal, $write:ident;)*) => {$(
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_run_with_keyed_calls_ends_as_if_no_process_had_died() {
                let settings = json!({"trustHints": true});
                at_every_write(($postgres, Write::$write), "chief", settings, ends_as_if_nothing_had_happened).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_call_without_a_key_is_never_sent_twice() {
                let tool = json!({"sideEffect": true, "idempotency": "none"});
                let settings = json!({"trustHints": true, "tools": {"add_task": tool}});
                at_every_write(($postgres, Write::$write), "helper", settings, ends_or_waits_for_a_settlement).await;
            }
        }
    )*};
}

killed_within_every_write! {
    on_sqlite: false, Lost;
    on_postgres: true, Lost;
    on_postgres_unacknowledged: true, OutcomeUnknown;
}

//! Runs that a user cancels, and runs that stop between two steps (X-4, X-15).

use gavel::domain::agent_run::{RunStatus, StopReason};
use gavel::domain::journal::Entry;
use gavel::domain::tool::FailureCode;
use gavel::engine::limits::Stop;
use gavel::engine::log::Halt;
use gavel::ports::runs::Runs;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::model::{call, never_answers, words};
use crate::rig::{Begun, Outcome, Rig};
use crate::support::TestDb;
use crate::tools::Does;

const BOSS: &str = r#"
name: boss
description: Leads.
promptConfig: { query: "${query}", systemPrompt: boss }
toolConfig: { tools: [read, send] }
sub_agents: [helper]
approval: never
"#;

const HELPER: &str = r#"
name: helper
description: Helps.
promptConfig: { query: "${query}", systemPrompt: helper }
toolConfig: { tools: [read, send] }
approval: never
"#;

const FLOW: &str = r#"
name: flow
description: One after another.
flow_type: sequential
steps: [{ name: one, agent: boss }, { name: two, agent: helper }]
"#;

/// Drives the run and cancels it as soon as `waited_for` reports a call that never returns.
async fn cancelled_when(rig: &Rig, begun: Begun, waited_for: &tokio::sync::Notify) -> Outcome {
    let process = rig.process(rig.store.clone());
    let cancel = CancellationToken::new();
    let driven = rig.drive_until(&process, begun, cancel.clone(), Halt::default());
    let (ended, ()) = tokio::join!(driven, async {
        waited_for.notified().await;
        cancel.cancel();
    });
    assert_eq!(ended.unwrap().end.status, RunStatus::Cancelled);
    rig.outcome(begun.id).await
}

/// X-4, X-15: each run ends as `cancelled` and keeps the text it had produced. A call that may have had its effect is
/// in doubt.
pub(crate) async fn a_cancelled_run_and_its_called_runs_keep_their_results(db: TestDb) {
    let rig = Rig::on(db, &[BOSS, HELPER]).await;
    rig.tools.script("send", [Does::Never]);
    rig.model.script(
        "boss",
        [call("helper", json!({"query": "help"}))
            .and("send", json!({"after": 1}))
            .saying("I delegate.")],
    );
    rig.model.script(
        "helper",
        [call("send", json!({"n": 1})).and("read", json!({})).saying("I send.")],
    );
    let begun = rig.begin("boss", json!({"query": "go"}), None).await;
    let run = cancelled_when(&rig, begun, &rig.tools.waited_for).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Cancelled, "I delegate."));
    assert!(run.row.completed_at.is_some() && run.row.duration_ms.is_some());
    let child = rig.outcome(run.called()[0]).await;
    assert_eq!((child.status(), child.summary()), (RunStatus::Cancelled, "I send."));
    assert_eq!(child.row.in_doubt.len(), 1);
    assert_eq!(child.row.in_doubt[0].parameters, json!({"n": 1}));
    assert_eq!(rig.tools.sent().len(), 1, "no call starts after the cancellation");
    assert_eq!(
        rig.db
            .count("SELECT count(*) FROM decision_log WHERE status = 'closed' AND surface = 'agent'")
            .await,
        2
    );
    assert_eq!(
        rig.db
            .count("SELECT count(*) FROM tool_invocation_log WHERE status = 'started'")
            .await,
        0
    );
}

/// X-4: a run that waits for its model is cancelled at once.
#[tokio::test]
async fn a_run_that_waits_for_its_model_is_cancelled_at_once() {
    let rig = Rig::new(&[BOSS, HELPER]).await;
    rig.model
        .script("boss", [call("read", json!({})).saying("I read."), never_answers()]);
    let begun = rig.begin("boss", json!({"query": "go"}), None).await;
    let run = cancelled_when(&rig, begun, &rig.model.waited_for).await;
    assert_eq!(
        (run.status(), run.summary(), run.row.steps),
        (RunStatus::Cancelled, "I read.", 1)
    );
    assert_eq!(run.row.in_doubt.len(), 0);
}

/// X-4: a cancelled flow keeps the output of its completed steps.
#[tokio::test]
async fn a_cancelled_flow_has_the_output_of_the_steps_that_were_done() {
    let rig = Rig::new(&[BOSS, HELPER, FLOW]).await;
    rig.model.script("boss", [words("One is done.")]);
    rig.model.script("helper", [never_answers()]);
    let begun = rig.begin("flow", json!({"query": "go"}), None).await;
    let run = cancelled_when(&rig, begun, &rig.model.waited_for).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Cancelled, "One is done."));
    assert_eq!(
        rig.runs().await,
        ["flow cancelled", "boss completed", "helper cancelled"]
    );
}

/// X-4, X-15: a run that is cancelled while no process works on it ends, with all its called runs, when a worker claims
/// it.
#[tokio::test]
async fn a_run_cancelled_while_its_process_is_dead_ends_when_a_worker_claims_it() {
    let rig = Rig::new(&[BOSS, HELPER]).await;
    rig.tools.script("send", [Does::Never]);
    rig.model
        .script("boss", [call("helper", json!({"query": "help"})).saying("I delegate.")]);
    rig.model
        .script("helper", [call("send", json!({"n": 1})).saying("I send.")]);
    let begun = rig.begin("boss", json!({"query": "go"}), None).await;
    let process = rig.process(rig.store.clone());
    tokio::select! {
        ended = rig.drive(&process, begun) => panic!("{ended:?}"),
        () = rig.tools.waited_for.notified() => {}
    }
    drop(process);
    let begun = rig.take_over(begun).await.unwrap();
    rig.store.cancel(begun.id, "ann").await.unwrap();
    let run = rig.finish(begun).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Cancelled, "I delegate."));
    let child = rig.outcome(run.called()[0]).await;
    assert_eq!((child.status(), child.summary()), (RunStatus::Cancelled, "I send."));
    assert_eq!(child.row.in_doubt.len(), 1);
    assert_eq!(rig.tools.sent().len(), 1);
    assert_eq!(rig.model.asked().len(), 2);
}

/// X-4: a cancelled run whose tools no longer exist ends as cancelled, not as failed.
#[tokio::test]
async fn a_cancelled_run_whose_tools_no_longer_exist_is_cancelled_not_failed() {
    let rig = Rig::new(&[BOSS, HELPER]).await;
    rig.tools.script("send", [Does::Never]);
    rig.model.script("boss", [call("send", json!({})).saying("I send.")]);
    let begun = rig.begin("boss", json!({"query": "go"}), None).await;
    let process = rig.process(rig.store.clone());
    tokio::select! {
        ended = rig.drive(&process, begun) => panic!("{ended:?}"),
        () = rig.tools.waited_for.notified() => {}
    }
    rig.tools.withdraw("send");
    let begun = rig.take_over(begun).await.unwrap();
    rig.store.cancel(begun.id, "ann").await.unwrap();
    let run = rig.finish(begun).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Cancelled, "I send."));
    assert_eq!(run.row.in_doubt.len(), 1);
}

/// X-15: a sub-agent that is cancelled alone is reported to its caller as an error, and the caller continues.
#[tokio::test]
async fn a_sub_agent_that_is_cancelled_alone_is_an_error_to_its_caller() {
    let rig = Rig::new(&[BOSS, HELPER]).await;
    rig.model.script(
        "boss",
        [call("helper", json!({"query": "help"})), words("I continue alone.")],
    );
    rig.model.script("helper", [never_answers()]);
    let begun = rig.begin("boss", json!({"query": "go"}), None).await;
    let process = rig.process(rig.store.clone());
    let (ended, ()) = tokio::join!(rig.drive(&process, begun), async {
        rig.model.waited_for.notified().await;
        let rows = rig.db.rows("SELECT id FROM agent_run WHERE agent_id = 'helper'").await;
        let child = rows[0][0].as_deref().unwrap();
        process.running.cancel(gavel::domain::ids::RunId::parse(child).unwrap());
    });
    assert_eq!(ended.unwrap().end.status, RunStatus::Completed);
    assert_eq!(rig.model.asked_of("boss")[1].failures(), [Some(FailureCode::Cancelled)]);
    assert_eq!(rig.runs().await, ["boss completed", "helper cancelled"]);
}

/// Promise: truthful states. A process that stops at the end of its drain time records this in the journals of its runs
/// and of their called runs. The next worker does not count it as a crash.
#[tokio::test]
async fn a_run_interrupted_by_an_orderly_shutdown_has_not_crashed() {
    let rig = Rig::new(&[BOSS, HELPER]).await;
    rig.model
        .script("boss", [call("helper", json!({"query": "help"})), words("All done.")]);
    let again = std::sync::atomic::AtomicBool::new(false);
    rig.model.answers("helper", move |_| {
        match again.swap(true, std::sync::atomic::Ordering::SeqCst) {
            false => never_answers(),
            true => words("Done."),
        }
    });
    let begun = rig.begin("boss", json!({"query": "go"}), None).await;
    cut_when(&rig, begun, &rig.model.waited_for).await;
    let begun = rig.take_over(begun).await.unwrap();
    let run = rig.finish(begun).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "All done."));
    let child = rig.outcome(run.called()[0]).await;
    for run in [&run, &child] {
        assert_eq!(run.row.recovered_from, None);
        let handed_over = run.journal.iter().filter(|entry| matches!(entry, Entry::Halted));
        assert_eq!(handed_over.count(), 1);
    }
}

/// Promise: at most once. A call that is interrupted is in doubt, even if the shutdown was orderly.
#[tokio::test]
async fn a_call_interrupted_by_an_orderly_shutdown_is_in_doubt() {
    let rig = Rig::new(&[HELPER]).await;
    rig.tools.script("send", [Does::Never]);
    rig.model.script("helper", [call("send", json!({}))]);
    let begun = rig.begin("helper", json!({"query": "go"}), None).await;
    cut_when(&rig, begun, &rig.tools.waited_for).await;
    let begun = rig.take_over(begun).await.unwrap();
    let run = rig.finish(begun).await;
    assert_eq!(
        (run.status(), run.row.stop_reason, run.row.recovered_from),
        (RunStatus::Paused, Some(StopReason::InDoubt), None)
    );
    assert_eq!(rig.tools.sent().len(), 1);
}

/// Drives the run and halts it as soon as `waited_for` reports a call that never returns.
async fn cut_when(rig: &Rig, begun: Begun, waited_for: &tokio::sync::Notify) {
    let (process, halt) = (rig.process(rig.store.clone()), Halt::default());
    let driven = rig.drive_until(&process, begun, CancellationToken::new(), halt.clone());
    let (driven, ()) = tokio::join!(driven, async {
        waited_for.notified().await;
        halt.at_once.cancel();
    });
    assert!(matches!(driven, Err(Stop::Halted)), "{driven:?}");
}

/// A process that stops releases its run between two steps. The next worker does not ask the model again for a turn
/// that is recorded.
#[tokio::test]
async fn a_run_that_stops_between_two_steps_resumes_at_the_next_step() {
    let rig = Rig::new(&[BOSS, HELPER]).await;
    let halt = Halt::default();
    let fires = halt.between_steps.clone();
    rig.model.answers("boss", move |asked| {
        fires.cancel();
        match asked.before {
            0 => call("send", json!({})),
            _ => words("Done."),
        }
    });
    let begun = rig.begin("boss", json!({"query": "go"}), None).await;
    let process = rig.process(rig.store.clone());
    let driven = rig.drive_until(&process, begun, CancellationToken::new(), halt).await;
    assert!(matches!(driven, Err(Stop::Halted)), "{driven:?}");
    assert_eq!((rig.model.asked().len(), rig.tools.sent().len()), (1, 0));
    let begun = rig.take_over(begun).await.unwrap();
    let run = rig.finish(begun).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "Done."));
    assert_eq!((rig.model.asked().len(), rig.tools.effects().len()), (2, 1));
    // No process crashed, so the row records no crash (promise: truthful states).
    assert_eq!(run.row.recovered_from, None);
    let handed_over = run.journal.iter().filter(|entry| matches!(entry, Entry::Halted));
    assert_eq!(handed_over.count(), 1);
}

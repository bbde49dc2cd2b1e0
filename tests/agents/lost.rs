//! Processes that are lost while they work on a run: what ends it, what it may do then, and how it continues.

use std::sync::Arc;

use gavel::domain::agent_run::{RunStatus, StopReason};
use gavel::domain::journal::Entry;
use gavel::ports::runs::{MOST_CLAIMS, MOST_TAKES, Runs};
use serde_json::json;

use crate::crash::{Death, Dying};
use crate::flows::{pipeline_on, whales};
use crate::in_doubt::{BOSS, CLERK, go};
use crate::model::{call, words};
use crate::rig::{Begun, Outcome, Rig, seconds};
use crate::support::TestDb;
use crate::tools::Does;

/// The process is killed: its lease expires, and another process claims the run. `None`: no process may.
async fn killed(rig: &Rig, begun: Begun) -> Option<Begun> {
    let expire = "UPDATE agent_run SET holder = 'another', lease_until = 1 WHERE lease_until IS NOT NULL";
    rig.db.run(expire).await;
    let lease = rig.store.take(begun.id).await.unwrap()?;
    Some(Begun { lease, ..begun })
}

/// Kills a process at its n-th write, before or after that reaches the store, and lets another one claim the run.
async fn dies(rig: &Rig, begun: Begun, write: usize, death: Death) -> Begun {
    let process = rig.process(Dying::at(&rig.store, write, death));
    rig.drive(&process, begun).await.unwrap_err();
    killed(rig, begun).await.expect("another process may claim it")
}

/// Kills a process within a call of this tool, which was called this often before.
async fn killed_within_call(rig: &Rig, begun: Begun, tool: &str, before: usize) -> Begun {
    let process = rig.process(Arc::clone(&rig.store));
    let called = async {
        while rig.tools.calls(tool) == before {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        driven = rig.drive(&process, begun) => panic!("{driven:?}"),
        () = called => {}
    }
    killed(rig, begun).await.expect("another process may claim it")
}

/// Kills as many processes as fail a run: each at its first write, which never reaches the store.
async fn lost(rig: &Rig, mut begun: Begun) -> Begun {
    for _ in 0..MOST_TAKES {
        begun = dies(rig, begun, 1, Death::Before).await;
    }
    begun
}

async fn resumed(rig: &Rig, ended: &Outcome) -> Outcome {
    assert_eq!(
        (ended.status(), ended.row.stop_reason),
        (RunStatus::Failed, Some(StopReason::ProcessLost)),
        "{ended:?}"
    );
    assert!(ended.error().contains("3 processes in a row"), "{}", ended.error());
    let settled: Vec<_> = ended.row.in_doubt.iter().map(|call| (call.action_id, true)).collect();
    rig.resume(ended.id, &settled).await
}

/// Each process is lost after a turn of its model or a result: the run continues, however many were lost.
pub(crate) async fn progress_resets_the_count_of_lost_processes(db: TestDb) {
    let mut rig = Rig::on(db, &[BOSS, CLERK]).await;
    for agent in ["clerk", "boss"] {
        rig = rig.afresh();
        rig.model.script("boss", [call("clerk", go()), words("Done.")]);
        let turns = (0..8).map(|n| call("put", json!({"n": n})));
        rig.model.script("clerk", turns.chain([words("Done.")]));
        let mut begun = rig.begin(agent, go(), None).await;
        let mut deaths = 0;
        loop {
            let process = rig.process(Dying::at(&rig.store, 4, Death::After));
            if rig.drive(&process, begun).await.is_ok() {
                break;
            }
            deaths += 1;
            match killed(&rig, begun).await {
                Some(again) => begun = again,
                None => break,
            }
        }
        let run = rig.outcome(begun.id).await;
        assert_eq!(
            (run.status(), run.summary()),
            (RunStatus::Completed, "Done."),
            "{agent}: {run:?}"
        );
        assert!(deaths > MOST_TAKES, "{agent}: {deaths}");
        assert_eq!(rig.tools.effects().len(), 8, "{agent}");
    }
}

/// What processes write only because they take a run over is no progress.
pub(crate) async fn a_run_without_progress_is_ended_by_the_process_after_the_third(db: TestDb) {
    let rig = Rig::on(db, &[CLERK]).await;
    rig.model.script("clerk", [call("put", json!({"x": 1})), words("Put.")]);
    rig.tools
        .script("put", [Does::Never, Does::Never, Does::Never, Does::Never]);
    let mut begun = rig.begin("clerk", go(), None).await;
    // The first one adds a turn. Each of the others repeats the call, and adds that it recovered the run and started it.
    for n in 0..=MOST_TAKES {
        begun = killed_within_call(&rig, begun, "put", n as usize).await;
    }
    let ended = rig.finish(begun).await;
    assert_eq!(
        (rig.model.asked().len(), rig.tools.calls("put")),
        (1, 4),
        "nothing begins"
    );
    assert_eq!(ended.row.in_doubt.len(), 1, "{ended:?}");
    let run = resumed(&rig, &ended).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "Put."));
    assert_eq!(run.row.attempts.len(), 1);
}

/// A process that ends the run may be lost as well; the count is not reset by what it writes.
pub(crate) async fn the_end_of_a_lost_run_is_repeated_until_the_store_ends_it(db: TestDb) {
    let rig = Rig::on(db, &[BOSS, CLERK]).await;
    rig.model.script("boss", [call("clerk", go()), words("Done.")]);
    rig.model
        .script("clerk", [call("send", json!({"x": 1})), words("Sent.")]);
    let begun = rig.begin("boss", go(), None).await;
    let mut begun = lost(&rig, begun).await;
    for _ in MOST_TAKES..MOST_CLAIMS - 1 {
        begun = dies(&rig, begun, 1, Death::Before).await;
    }
    let process = rig.process(Dying::at(&rig.store, 1, Death::Before));
    rig.drive(&process, begun).await.unwrap_err();
    assert!(killed(&rig, begun).await.is_none());
    let other = rig.db.open().await;
    assert_eq!(other.give_up(9).await.unwrap(), [begun.id]);
    let ended = rig.outcome(begun.id).await;
    assert_eq!(ended.row.stop_reason, Some(StopReason::ProcessLost));
}

/// A call without an answer is in doubt in the journal, also that of a called agent, and a person settles it.
pub(crate) async fn the_calls_of_a_lost_run_are_in_doubt_and_it_continues_after_them(db: TestDb) {
    let rig = Rig::on(db, &[BOSS, CLERK]).await;
    rig.model.answers("boss", |asked| match asked.before {
        0 => call("clerk", go()),
        _ => words("Done."),
    });
    rig.model.answers("clerk", |asked| match asked.before {
        0 => call("send", json!({"x": 1})),
        _ => words("Sent."),
    });
    rig.tools.script("send", [Does::Never]);
    let begun = rig.begin("boss", go(), None).await;
    let begun = killed_within_call(&rig, begun, "send", 0).await;
    let begun = lost(&rig, begun).await;
    let ended = rig.finish(begun).await;
    assert_eq!(ended.row.in_doubt.len(), 1, "{ended:?}");
    assert_eq!(rig.tools.calls("send"), 1);
    let clerk = rig.outcome(ended.called()[0]).await;
    assert_eq!(
        (clerk.status(), clerk.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::ProcessLost))
    );
    let started = "SELECT COUNT(*) FROM tool_invocation_log WHERE status = 'started'";
    assert_eq!(rig.db.count(started).await, 0);
    let run = resumed(&rig, &ended).await;
    assert_eq!(
        (run.status(), run.summary()),
        (RunStatus::Completed, "Done."),
        "{run:?}"
    );
    assert_eq!(rig.tools.calls("send"), 1, "a call that happened is not sent again");
}

/// The steps of a lost flow that completed are not made again, and the one at work continues.
pub(crate) async fn a_lost_flow_continues_with_its_step(db: TestDb) {
    let rig = pipeline_on(db, "").await;
    let mut begun = rig.begin("article", whales(), None).await;
    let process = rig.process(Dying::at(&rig.store, 6, Death::After));
    rig.drive(&process, begun).await.unwrap_err();
    begun = killed(&rig, begun).await.unwrap();
    let begun = lost(&rig, begun).await;
    let ended = rig.finish(begun).await;
    let before = rig.model.asked().len();
    let run = resumed(&rig, &ended).await;
    assert_eq!(
        (run.status(), run.summary()),
        (RunStatus::Completed, "Good."),
        "{run:?}"
    );
    assert!(before + rig.model.asked().len() >= 3 && rig.model.asked_of("critic").len() == 1);
    let resumes = run
        .journal
        .iter()
        .filter(|entry| matches!(entry, Entry::Resumed { .. }));
    assert_eq!(resumes.count(), 1);
}

/// The time limit counts what a process worked that was lost before it wrote anything, as far as its lease was renewed.
/// The run of an agent that was called counts it too.
pub(crate) async fn the_time_limit_counts_the_work_of_lost_processes(db: TestDb) {
    let mut rig = Rig::on(db, &[BOSS, CLERK]).await;
    for (agent, worked, status) in [
        ("clerk", 0, RunStatus::Completed),
        ("clerk", 7, RunStatus::Paused),
        ("boss", 7, RunStatus::Paused),
    ] {
        rig = rig.afresh();
        rig.model.script("boss", [call("clerk", go()), words("Done.")]);
        rig.model.script("clerk", [words("Slow.").after(seconds(4))]);
        let begun = rig.begin(agent, go(), Some(seconds(10))).await;
        let death = if agent == "boss" { 4 } else { 1 };
        let begun = dies(&rig, begun, death, Death::After).await;
        let count = format!(
            "UPDATE agent_run SET worked_us = {}000000 WHERE id = '{}'",
            worked, begun.id
        );
        rig.db.run(&count).await;
        let run = rig.finish(begun).await;
        assert_eq!(run.status(), status, "{agent} {worked}: {run:?}");
        let limit = (status == RunStatus::Paused).then_some(StopReason::TimeLimit);
        assert_eq!(run.row.stop_reason, limit, "{agent} {worked}");
    }
}

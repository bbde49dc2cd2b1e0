//! A process that cannot be sure that it still holds its run sends nothing more, whether or not it can reach the store
//! (promise: at most once). No lease is renewed here, and scripted durations advance the clock.

use gavel::domain::agent_run::{RunStatus, StopReason};
use gavel::engine::limits::Stop;
use serde_json::json;

use crate::in_doubt::{BOSS, CLERK, go};
use crate::model::{call, words};
use crate::rig::{Begun, Outcome, Rig, seconds};
use crate::tools::Does;

/// A process works past the end of its 10 s lease. Only its own clock shows that: the store would still accept its
/// writes.
async fn works_too_long(rig: &Rig, agent: &str) -> Begun {
    let begun = rig.begin(agent, go(), None).await;
    let driven = rig.drive_for(&rig.process(rig.store.clone()), begun, seconds(10)).await;
    assert!(matches!(driven, Err(Stop::LeaseLost)), "{driven:?}");
    begun
}

async fn continues_elsewhere(rig: &Rig, begun: Begun) -> Outcome {
    let begun = rig.take_over(begun).await.unwrap();
    rig.finish(begun).await
}

/// A call that started in time keeps its result. Later calls are left to the next holder.
#[tokio::test]
async fn after_a_call_that_outlasts_the_lease_no_further_call_starts() {
    for agent in ["clerk", "boss"] {
        let rig = Rig::new(&[BOSS, CLERK]).await;
        rig.model.script("boss", [call("clerk", go()), words("Both are sent.")]);
        rig.model.script(
            "clerk",
            [
                call("send", json!({"n": 1})).and("send", json!({"n": 2})),
                words("Both are sent."),
            ],
        );
        rig.tools.script("send", [Does::Takes(seconds(10))]);
        let begun = works_too_long(&rig, agent).await;
        assert_eq!(rig.tools.calls("send"), 1, "{agent}");
        let run = continues_elsewhere(&rig, begun).await;
        assert_eq!((run.status(), run.summary()), (RunStatus::Completed, "Both are sent."));
        assert_eq!((rig.tools.calls("send"), rig.tools.effects().len()), (2, 2), "{agent}");
    }
}

/// Even a harmless call is not repeated, because the next holder may have done something else since.
#[tokio::test]
async fn a_call_without_an_answer_is_not_repeated_after_the_lease_has_expired() {
    let rig = Rig::new(&[CLERK]).await;
    rig.model.script("clerk", [call("put", json!({"x": 1})), words("Put.")]);
    rig.tools.script("put", [Does::LosesTheAnswerAfter(seconds(9))]);
    let begun = rig.begin("clerk", go(), None).await;
    let ended = rig.drive_for(&rig.process(rig.store.clone()), begun, seconds(10)).await;
    // No other process claimed the run, so this one may record what it knows.
    assert_eq!(ended.unwrap().end.stop_reason, Some(StopReason::InDoubt));
    assert_eq!(rig.tools.calls("put"), 1);

    let rig = rig.afresh();
    rig.model.script("clerk", [call("put", json!({"x": 1})), words("Put.")]);
    rig.tools.script("put", [Does::LosesTheAnswerAfter(seconds(8))]);
    let begun = rig.begin("clerk", go(), None).await;
    let ended = rig.drive_for(&rig.process(rig.store.clone()), begun, seconds(10)).await;
    assert_eq!(ended.unwrap().end.status, RunStatus::Completed);
    assert_eq!(
        rig.tools.calls("put"),
        2,
        "the lease is considered expired a tenth early, not more"
    );
}

/// After a crash too: the worker that claimed the run may have been delayed before it continued.
#[tokio::test]
async fn an_interrupted_call_is_not_repeated_by_a_worker_whose_lease_has_expired() {
    let rig = Rig::new(&[CLERK]).await;
    rig.model.script("clerk", [call("put", json!({"x": 1})), words("Put.")]);
    rig.tools.script("put", [Does::Never]);
    let begun = rig.begin("clerk", go(), None).await;
    let process = rig.process(rig.store.clone());
    tokio::select! {
        ended = rig.drive(&process, begun) => panic!("{ended:?}"),
        () = rig.tools.waited_for.notified() => {}
    }
    let begun = rig.take_over(begun).await.unwrap();
    let driven = rig.drive_for(&process, begun, seconds(0)).await;
    assert!(matches!(driven, Err(Stop::LeaseLost)), "{driven:?}");
    assert_eq!(rig.tools.calls("put"), 1);
    let run = continues_elsewhere(&rig, begun).await;
    assert_eq!((run.status(), rig.tools.calls("put")), (RunStatus::Completed, 2));
}

/// A renewed lease is valid from the instant of the request, not of the answer.
#[tokio::test]
async fn a_lease_counts_from_its_request_and_ends_a_tenth_early() {
    let rig = Rig::new(&[CLERK]).await;
    let begun = rig.begin("clerk", go(), None).await;
    let hold = rig.hold(begun, seconds(10));
    assert!(hold.is_ours());
    assert_eq!(hold.left(), seconds(9));
    rig.clock.advance(seconds(4));
    hold.prolong(rig.now());
    rig.clock.advance(seconds(8));
    assert_eq!(hold.left(), seconds(1));
    // An answer that arrives after a newer one does not shorten the lease.
    hold.prolong(rig.now() - seconds(12));
    assert_eq!(hold.left(), seconds(1));
    rig.clock.advance(seconds(1));
    assert!(!hold.is_ours());
    hold.prolong(rig.now());
    assert!(
        hold.is_ours(),
        "the store confirmed that no other process held the run meanwhile"
    );
}

//! Settlements of in-doubt actions while the run of a planning session is in progress.

use gavel::adapters::store::Store;
use gavel::api::runs::InDoubtCall;
use gavel::domain::action::{ActionStatus, Resolution};
use gavel::domain::agent_run::RunStatus;
use gavel::domain::ids::{ActionId, ApprovalId, PlanningSessionId, RunId};
use gavel::domain::tool::FailureCode;
use gavel::ports::actions::{Actions, Resolve, Settle, SettleDone};
use gavel::ports::commit::{ActionOutcome, Commit, Committed, Fact, NewAction, Recorder, Wait, Writer};
use gavel::ports::planning::{Moved, PlanningSessions, SessionWait};
use gavel::ports::records::{ClosedCall, OpenCall};
use gavel::ports::runs::{Lease, NewRun, Runs};
use serde_json::json;

use crate::audit::{asked, whole};
use crate::commits::{Append, Writes, entries, finished, suspend};
use crate::executing::{Executing, executing};
use crate::planning::{DEADLINE, cancel, cancelled, run_status};
use crate::support::{T0, TestDb, begin, called_run, failed, intent, new_run, tenant, tool};

/// A call of this run that was sent, and its record: the outcome is unknown.
pub(crate) async fn in_doubt(store: &Store, lease: Lease, run: &NewRun, number: u32) -> (OpenCall, ClosedCall) {
    let sent = OpenCall {
        tool: Some(tool("send")),
        created_at: T0,
        ..intent(&run.decision, number)
    };
    let action = NewAction {
        approval: None,
        ..asked(sent.id, ApprovalId::new())
    };
    let first = u64::from(number) * 2 - 1;
    let begins = Append {
        run: run.id,
        intents: vec![sent.clone()],
        actions: vec![action],
        ..entries(lease, first..=first)
    };
    assert_eq!(store.append(begins).await.unwrap(), Committed::Written);
    let mut call = failed(&sent, FailureCode::InDoubt, "it did not answer");
    call.open.name = "send".into();
    let mut ends = Commit::from(Append {
        run: run.id,
        outcomes: vec![is_in_doubt(sent.id)],
        ..entries(lease, first + 1..=first + 1)
    });
    ends.facts.push(Fact::Called(vec![call.clone()]));
    assert_eq!(store.commit(ends).await.unwrap(), Committed::Written);
    (sent, call)
}

fn is_in_doubt(action: ActionId) -> ActionOutcome {
    ActionOutcome {
        id: action,
        status: ActionStatus::InDoubt,
        error: Some((FailureCode::InDoubt, "it did not answer".into())),
        words: None,
    }
}

fn settle(root: RunId, action: ActionId, happened: bool) -> Settle {
    Settle {
        action,
        root,
        happened,
        by: "dave".into(),
        words: "said".into(),
    }
}

/// A wait of an outermost run for the settlement of these actions.
fn waits(lease: Lease, actions: &[ActionId]) -> Commit {
    Commit {
        writer: Writer::Holder { lease, run: lease.run },
        entries: Vec::new(),
        facts: vec![Fact::Waits(Wait::Settlement(actions.to_vec()))],
        cleans_up: false,
        progresses: false,
    }
}

/// P-306, R-14: an in-doubt action of a session is settled while its run is in progress. What the run commits later, from
/// its own journal, does not replace what the person said: not in the action, not in the tool-call log, not in the list
/// of in-doubt calls. Elsewhere a settlement waits for the end of the run.
pub(crate) async fn an_action_of_a_session_is_settled_while_its_run_is_in_progress(db: TestDb) {
    let store = db.open().await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    let (sent, _) = in_doubt(&store, lease, &run, 1).await;
    let refused = store.settle(settle(run.id, sent.id, true)).await.unwrap();
    assert_eq!(refused, SettleDone::RunInProgress);

    let work = executing(&store).await;
    let task = called_run(work.lease, work.run.id);
    begin(&store, &task).await;
    for (number, happened, status) in [(1, true, "completed"), (2, false, "failed")] {
        let (sent, call) = in_doubt(&store, work.lease, &task, number).await;
        for done in [SettleDone::Done, SettleDone::Again] {
            let settled = store.settle(settle(work.run.id, sent.id, happened)).await.unwrap();
            assert_eq!(settled, done);
        }
        assert_eq!(run_status(&store, work.run.id).await, RunStatus::Running);
        let state = format!(
            "SELECT a.status, a.settled_by, t.status FROM agent_action a JOIN tool_invocation_log t ON t.id = a.id \
             WHERE a.id = '{}'",
            sent.id
        );
        let settled = format!("{status} dave {status}");
        assert_eq!(db.line(&state).await, settled);
        // The commit of its outcome was not acknowledged, and is repeated.
        let entry = u64::from(number) * 2;
        let mut again = Commit::from(Append {
            run: task.id,
            outcomes: vec![is_in_doubt(sent.id)],
            ..entries(work.lease, entry..=entry)
        });
        again.facts.push(Fact::Called(vec![call.clone()]));
        assert_eq!(store.commit(again).await.unwrap(), Committed::Written);
        assert_eq!(db.line(&state).await, settled);
        if number == 2 {
            let in_doubt = InDoubtCall {
                action_id: sent.id,
                tool: "send".to_owned(),
                parameters: json!({}),
            };
            for (run, calls) in [(&task, vec![call]), (&work.run, vec![])] {
                let mut end = finished(work.lease, run, RunStatus::Failed, calls);
                end.in_doubt = vec![in_doubt.clone()];
                assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
                assert!(store.run_state(run.id).await.unwrap().unwrap().end.in_doubt.is_empty());
            }
            assert_eq!(db.line(&state).await, settled);
        }
    }
    whole(&db).await;
}

/// P-306: a run in which only calls in doubt are left waits until a person has settled all of them, and then continues
/// with any process. If they are settled already, it continues at once.
pub(crate) async fn a_run_waits_until_all_of_its_actions_are_settled(db: TestDb) {
    let store = db.open().await;
    let Executing { run, lease, .. } = executing(&store).await;
    let mut actions = Vec::new();
    for number in 1..=3 {
        actions.push(in_doubt(&store, lease, &run, number).await.0.id);
    }
    store.settle(settle(run.id, actions[0], true)).await.unwrap();
    let settled = store.commit(waits(lease, &actions[..1])).await.unwrap();
    assert_eq!(settled, Committed::Answered);
    assert_eq!(run_status(&store, run.id).await, RunStatus::Running);

    // One whose acknowledgement was lost is repeated.
    for _ in 0..2 {
        let waits = store.commit(waits(lease, &actions)).await.unwrap();
        assert_eq!(waits, Committed::Written);
    }
    assert_eq!(run_status(&store, run.id).await, RunStatus::AwaitingConfirmation);
    assert_eq!(store.take(run.id).await.unwrap(), None);
    store.settle(settle(run.id, actions[2], false)).await.unwrap();
    assert_eq!(store.take(run.id).await.unwrap(), None);
    store.settle(settle(run.id, actions[1], true)).await.unwrap();
    let lease = store.take(run.id).await.unwrap().expect("all of them are settled");

    // A later wait for an approval is not one for a settlement.
    let (sent, _) = in_doubt(&store, lease, &run, 4).await;
    let waits = suspend(lease, run.id, vec![asked(ActionId::new(), ApprovalId::new())]);
    assert_eq!(store.commit(waits).await.unwrap(), Committed::Written);
    store.settle(settle(run.id, sent.id, true)).await.unwrap();
    assert_eq!(run_status(&store, run.id).await, RunStatus::AwaitingConfirmation);
    assert_eq!(store.sweep(DEADLINE, 0, 9).await.unwrap(), 1);
    assert_eq!(run_status(&store, run.id).await, RunStatus::AwaitingConfirmation);
}

/// P-306: a run that waits for a settlement continues, so that it can end, once its session is cancelled or the deadline
/// has passed; also if it began to wait after that.
pub(crate) async fn a_run_that_waits_for_a_settlement_ends_with_its_session(db: TestDb) {
    let store = db.open().await;
    for by_person in [true, false] {
        for waits_first in [true, false] {
            let Executing {
                session, run, lease, ..
            } = executing(&store).await;
            let (sent, _) = in_doubt(&store, lease, &run, 1).await;
            let wait = async || {
                let waits = store.commit(waits(lease, &[sent.id])).await.unwrap();
                assert_eq!(waits, Committed::Written);
            };
            if waits_first {
                wait().await;
                assert_eq!(store.sweep(DEADLINE - 1, 0, 9).await.unwrap(), 0);
                assert_eq!(store.take(run.id).await.unwrap(), None);
            }
            match by_person {
                true => assert_eq!(cancelled(&store, cancel(session)).await, Moved::Yes),
                false => assert_eq!(store.sweep(DEADLINE, 0, 9).await.unwrap(), 1),
            }
            if !waits_first {
                wait().await;
                assert_eq!(store.sweep(DEADLINE, 0, 9).await.unwrap(), u32::from(!by_person));
            }
            let lease = store.take(run.id).await.unwrap().expect("it can end");
            assert_eq!(store.sweep(DEADLINE, 0, 9).await.unwrap(), 0);
            let end = finished(lease, &run, RunStatus::Failed, vec![]);
            assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
        }
    }
}

async fn missing(store: &Store, session: PlanningSessionId) -> Vec<SessionWait> {
    PlanningSessions::waiting(store, session).await.unwrap()
}

/// P-305, R-14: a session names the actions that wait for a person, with their runs, until they are resolved or settled.
/// An action names its session.
pub(crate) async fn a_session_says_what_it_waits_for(db: TestDb) {
    let store = db.open().await;
    let Executing {
        session, run, lease, ..
    } = executing(&store).await;
    let other = executing(&store).await;
    in_doubt(&store, other.lease, &other.run, 1).await;
    assert_eq!(missing(&store, session).await, []);
    let task = called_run(lease, run.id);
    begin(&store, &task).await;
    let (sent, _) = in_doubt(&store, lease, &task, 1).await;
    let (action, approval) = (ActionId::new(), ApprovalId::new());
    let waits = suspend(lease, task.id, vec![asked(action, approval)]);
    assert_eq!(store.commit(waits).await.unwrap(), Committed::Written);
    let wait = |action, status, approval_id| SessionWait {
        status,
        approval_id,
        action,
        run: task.id,
        tool: "send".into(),
    };
    let (doubt, ask) = (
        wait(sent.id, ActionStatus::InDoubt, None),
        wait(action, ActionStatus::AwaitingConfirmation, Some(approval)),
    );
    assert_eq!(missing(&store, session).await, [doubt.clone(), ask]);
    let shown = store.of_approval(&tenant(), None, approval).await.unwrap().unwrap();
    assert_eq!((shown.session, shown.run, shown.root), (Some(session), task.id, run.id));
    let of_run = store.of_run(run.id).await.unwrap();
    assert!(of_run.iter().all(|action| action.session == Some(session)));

    let yes = Resolve {
        approval,
        action,
        root: run.id,
        resolution: Resolution::Reject,
        reason: None,
        by: "ann".into(),
        grant: None,
        words: "no".into(),
    };
    store.resolve(yes).await.unwrap();
    assert_eq!(missing(&store, session).await, [doubt]);
    store.settle(settle(run.id, sent.id, true)).await.unwrap();
    assert_eq!(missing(&store, session).await, []);
    // A session that has ended waits for nothing.
    assert_eq!(missing(&store, other.session).await.len(), 1);
    assert_eq!(cancelled(&store, cancel(other.session)).await, Moved::Yes);
    assert_eq!(missing(&store, other.session).await, []);

    let free = new_run();
    let lease = begin(&store, &free).await;
    let (sent, _) = in_doubt(&store, lease, &free, 1).await;
    let shown = store.action(&tenant(), None, sent.id).await.unwrap().unwrap();
    assert_eq!(shown.session, None);
}

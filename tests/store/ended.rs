//! A run that has ended never changes.

use std::collections::BTreeSet;

use gavel::adapters::store::Store;
use gavel::domain::action::Resolution;
use gavel::domain::agent_run::RunStatus;
use gavel::domain::ids::{ActionId, ApprovalId, GrantId};
use gavel::ports::actions::{Actions, Resolve, Settle, SettleDone};
use gavel::ports::commit::{Committed, Recorder};
use gavel::ports::runs::{Lease, MOST_TAKES, NewRun, Runs, Started, Turn};

use crate::audit::asked;
use crate::commits::{Append, Writes, entries, finished, suspend};
use crate::support::{T0, TestDb, begin, called_run, intent, new_run};
use crate::waiting::suspended;

/// Whose lease a write uses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    /// The last holder, which ended the run.
    Last,
    /// Another process, which held it before.
    Old,
}

/// An operation that can still be tried on a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Try {
    Resolve(Resolution),
    Expire,
    Cancel,
    Settle(bool),
    Take,
    Append(By),
    Suspend(By),
    Finish(By, RunStatus),
    Call(By),
    Renew(By),
    Release(By),
}

/// All of them.
fn tries() -> Vec<Try> {
    let mut all = vec![
        Try::Resolve(Resolution::ApproveOnce),
        Try::Resolve(Resolution::ApproveAndAlwaysAllowRecipient),
        Try::Resolve(Resolution::Reject),
        Try::Expire,
        Try::Cancel,
        Try::Settle(true),
        Try::Settle(false),
        Try::Take,
    ];
    for by in [By::Last, By::Old] {
        all.extend([
            Try::Append(by),
            Try::Suspend(by),
            Try::Call(by),
            Try::Renew(by),
            Try::Release(by),
        ]);
        all.extend(ends().map(|status| Try::Finish(by, status)));
    }
    all
}

/// The statuses of an ended run.
fn ends() -> impl Iterator<Item = RunStatus> {
    RunStatus::ALL.iter().copied().filter(|status| status.has_ended())
}

/// The state of the run at the time of the operation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RunIs {
    Works,
    Waits,
    Over(RunStatus),
}

/// A run that waited once, was approved, and was claimed by another process.
struct Tried {
    run: NewRun,
    old: Lease,
    last: Lease,
    /// Its resolution.
    yes: Resolve,
}

impl Tried {
    async fn on([last, old]: [&Store; 2], run_is: RunIs) -> Self {
        let (run, before, store) = (new_run(), old, last);
        let old = begin(before, &run).await;
        let yes = suspended(before, &run, old).await;
        store.resolve(yes.clone()).await.unwrap();
        let last = store
            .take(run.id)
            .await
            .unwrap()
            .expect("its approval request was resolved");
        let yes = match run_is {
            RunIs::Waits => suspended(store, &run, last).await,
            RunIs::Works | RunIs::Over(_) => yes,
        };
        if let RunIs::Over(status) = run_is {
            let end = finished(last, &run, status, Vec::new());
            assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
        }
        Self { run, old, last, yes }
    }

    fn lease(&self, by: By) -> Lease {
        match by {
            By::Last => self.last,
            By::Old => self.old,
        }
    }

    /// All data of the run: its row, its journal, its decision, its calls and its called runs.
    async fn reported(&self, db: &TestDb) -> Vec<Vec<Vec<Option<String>>>> {
        let id = self.run.id;
        let mut reported = Vec::new();
        for rows in [
            format!("agent_run WHERE root_id = '{id}' ORDER BY id"),
            format!("agent_run_entry WHERE run_id = '{id}' ORDER BY number"),
            format!("decision_log WHERE id = '{id}'"),
            format!("tool_invocation_log WHERE decision_id = '{id}' ORDER BY id"),
        ] {
            reported.push(db.rows(&format!("SELECT * FROM {rows}")).await);
        }
        reported
    }

    async fn status(&self, db: &TestDb) -> String {
        db.line(&format!("SELECT status FROM agent_run WHERE id = '{}'", self.run.id))
            .await
    }

    /// Restores its approval request as if the run had not ended: only the port protects the run then.
    async fn ask_again(&self, db: &TestDb, change: &str) {
        db.run(&format!(
            "UPDATE agent_action SET resolution = NULL, resolved_by = NULL, resolved_at = NULL, completed_at = NULL, \
             error_code = NULL, {change} WHERE id = '{}'",
            self.yes.action
        ))
        .await;
    }

    async fn is_tried(&self, db: &TestDb, store: &Store, tried: Try) {
        let waits = "status = 'awaiting_confirmation', expires_at = created_at + 3600000000";
        match tried {
            Try::Resolve(resolution) => {
                self.ask_again(db, waits).await;
                let resolve = Resolve {
                    resolution,
                    grant: (resolution == Resolution::ApproveAndAlwaysAllowRecipient).then(GrantId::new),
                    ..self.yes.clone()
                };
                drop(store.resolve(resolve).await);
            }
            Try::Expire => {
                self.ask_again(db, "status = 'awaiting_confirmation', expires_at = created_at")
                    .await;
                drop(store.expire(100).await);
            }
            Try::Cancel => store.cancel(self.run.id, "eve").await.unwrap(),
            Try::Settle(happened) => {
                let doubt = "status = 'in_doubt', resolution = 'approve_once', resolved_by = 'ann', resolved_at = created_at, \
                             started_at = created_at, completed_at = created_at, error_code = 'in_doubt'";
                let change = format!("UPDATE agent_action SET {doubt} WHERE id = '{}'", self.yes.action);
                db.run(&change).await;
                let settle = Settle {
                    action: self.yes.action,
                    root: self.run.id,
                    happened,
                    by: "eve".into(),
                    words: "so it is".into(),
                };
                let done = store.settle(settle).await.unwrap();
                assert!(matches!(done, SettleDone::Done | SettleDone::RunInProgress), "{done:?}");
            }
            Try::Take => drop(store.take(self.run.id).await.unwrap()),
            Try::Append(by) => {
                let append = Append {
                    intents: vec![intent(&self.run.decision, 7)],
                    ..entries(self.lease(by), 7..=8)
                };
                drop(store.append(append).await);
            }
            Try::Suspend(by) => {
                let action = ActionId::new();
                let mut suspend = suspend(self.lease(by), self.run.id, vec![asked(action, ApprovalId::new())]);
                suspend.entries = entries(self.lease(by), 7..=8).entries;
                drop(store.commit(suspend).await);
            }
            Try::Finish(by, status) => {
                let mut end = finished(self.lease(by), &self.run, status, Vec::new());
                end.summary = Some("It was another process.".into());
                end.completed_at = T0 + 9_999_999;
                end.entries = entries(self.lease(by), 7..=8).entries;
                drop(store.finish(end).await);
            }
            Try::Call(by) => drop(store.create(called_run(self.lease(by), self.run.id)).await),
            Try::Renew(by) => drop(store.renew(vec![self.lease(by)]).await),
            Try::Release(by) => drop(store.release(vec![self.lease(by)]).await),
        }
    }
}

/// R-states, R-14. Promise: truthful states. No operation changes a run that has ended, or
/// any data of it. This covers a resolution, a settlement, a cancellation, an approval request, journal entries and
/// another end, by the last holder or an earlier one. The same operations do change a run in progress.
pub(crate) async fn no_operation_changes_a_run_that_has_ended(db: TestDb) {
    let (last, old) = (db.open().await, db.open().await);
    let stores: [&Store; 2] = [&last, &old];
    for status in ends() {
        for tried in tries() {
            let case = Tried::on(stores, RunIs::Over(status)).await;
            assert_eq!(case.status(&db).await, status.as_str());
            let before = case.reported(&db).await;
            for store in stores {
                case.is_tried(&db, store, tried).await;
                assert_eq!(case.status(&db).await, status.as_str(), "{tried:?} of {status:?}");
                assert_eq!(case.reported(&db).await, before, "{tried:?} of {status:?}");
                assert_eq!(store.take(case.run.id).await.unwrap(), None, "{tried:?} of {status:?}");
            }
            let waits = last.waiting(Turn::Tenant(""), MOST_TAKES).await.unwrap();
            assert_eq!(waits, None, "{tried:?} of {status:?}");
            assert!(last.give_up(10).await.unwrap().is_empty(), "{tried:?} of {status:?}");
        }
    }
    let (mut changed, mut threats) = (BTreeSet::new(), BTreeSet::new());
    for tried in tries() {
        let by = match tried {
            Try::Append(by)
            | Try::Suspend(by)
            | Try::Finish(by, _)
            | Try::Call(by)
            | Try::Renew(by)
            | Try::Release(by) => by,
            _ => By::Last,
        };
        for run_is in [RunIs::Works, RunIs::Waits] {
            let case = Tried::on(stores, run_is).await;
            let before = case.reported(&db).await;
            let store = stores[usize::from(by == By::Old)];
            case.is_tried(&db, store, tried).await;
            if case.reported(&db).await != before {
                changed.insert(format!("{tried:?}"));
            }
        }
        // A settlement waits for the end of its run, and a run that is in progress or waiting cannot be claimed.
        if by == By::Last && !matches!(tried, Try::Settle(_) | Try::Take) {
            threats.insert(format!("{tried:?}"));
        }
    }
    assert_eq!(changed, threats, "every operation can change a run in progress");
}

/// R-states: a run that is cancelled before it starts has ended like any other.
pub(crate) async fn a_run_cancelled_before_its_start_never_starts(db: TestDb) {
    let store = db.open().await;
    let run = NewRun {
        queued: true,
        ..new_run()
    };
    assert_eq!(store.create(run.clone()).await.unwrap(), Started::Now(None));
    store.cancel(run.id, "ann").await.unwrap();
    let row = format!("SELECT * FROM agent_run WHERE id = '{}'", run.id);
    let before = db.rows(&row).await;
    assert_eq!(store.take(run.id).await.unwrap(), None);
    // A process that believes it holds the run, with no fence or with the first one.
    for fence in [0, 1] {
        let lease = Lease { run: run.id, fence };
        for status in ends() {
            let end = finished(lease, &run, status, Vec::new());
            assert_eq!(store.finish(end).await.unwrap(), Committed::LeaseLost, "{status:?}");
        }
        assert_eq!(store.append(entries(lease, 1..=1)).await.unwrap(), Committed::LeaseLost);
        let action = ActionId::new();
        let suspend = suspend(lease, run.id, vec![asked(action, ApprovalId::new())]);
        assert_eq!(store.commit(suspend).await.unwrap(), Committed::LeaseLost);
        store.renew(vec![lease]).await.unwrap();
        store.release(vec![lease]).await.unwrap();
    }
    store.cancel(run.id, "bob").await.unwrap();
    assert_eq!(db.rows(&row).await, before);
}

//! Runs that come to wait for a person.

use gavel::adapters::store::Store;
use gavel::domain::action::Resolution;
use gavel::domain::ids::{ActionId, ApprovalId};
use gavel::ports::actions::{Actions, Resolve, Resolved};
use gavel::ports::runs::{Append, Held, Lease, NewRun, Runs, Suspend, Suspended};

use crate::audit::asked;
use crate::support::{TestDb, begin, entries, new_run};

/// A run that waits for a person in this one call.
async fn suspended(store: &Store, run: &NewRun, lease: Lease) -> Resolve {
    let (action, approval) = (ActionId::new(), ApprovalId::new());
    let suspend = Suspend {
        lease,
        run: run.id,
        entries: Vec::new(),
        outcomes: Vec::new(),
        actions: vec![asked(action, approval)],
        waits: vec![action],
        child: None,
    };
    assert_eq!(store.suspend(suspend).await.unwrap(), Suspended::Yes);
    Resolve {
        approval,
        action,
        root: run.id,
        resolution: Resolution::ApproveOnce,
        reason: Some("fine by me".into()),
        by: "ann".into(),
        grant: None,
        words: "yes".into(),
    }
}

/// whoever cancels a run at one process, just before it comes to wait at another, has it ended: it does not wait for an answer.
pub(crate) async fn a_cancellation_is_not_lost_where_the_run_comes_to_wait(db: TestDb) {
    let store = db.open().await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    store.cancel(run.id, "ann").await.unwrap();
    suspended(&store, &run, lease).await;
    assert_eq!(db.line("SELECT status FROM agent_run").await, "running");
    assert!(store.take(run.id).await.unwrap().is_some(), "somebody takes it up");
    let other = new_run();
    let lease = begin(&store, &other).await;
    suspended(&store, &other, lease).await;
    assert!(
        store.take(other.id).await.unwrap().is_none(),
        "one that nobody cancelled waits"
    );
}

/// DESIGN.md section 6: the same answer again is the stored one, whatever its reason; and what was approved and could not
/// begin in time says so, and keeps who approved it, and why.
pub(crate) async fn an_answer_stays_as_it_was_given(db: TestDb) {
    let store = db.open().await;
    let run = new_run();
    let lease = begin(&store, &run).await;
    let yes = suspended(&store, &run, lease).await;
    assert_eq!(store.resolve(yes.clone()).await.unwrap(), Resolved::Done);
    for reason in [Some("fine by me".into()), None, Some("as I said".into())] {
        let again = Resolve { reason, ..yes.clone() };
        assert_eq!(store.resolve(again).await.unwrap(), Resolved::Again);
    }
    let other = Resolve {
        by: "bob".into(),
        ..yes.clone()
    };
    assert!(matches!(store.resolve(other).await.unwrap(), Resolved::Late(..)));
    db.run("UPDATE agent_action SET expires_at = created_at").await;
    let lease = store.take(run.id).await.unwrap().expect("it was answered");
    let begins = Append {
        asked: vec![yes.action],
        ..entries(lease, 1..=1)
    };
    assert_eq!(store.append(begins).await.unwrap(), Held::NoLeave);
    let row = "SELECT status, resolution, resolved_by, reason FROM agent_action";
    assert_eq!(db.line(row).await, "expired approve_once ann fine by me");
    let why = "SELECT COUNT(*) FROM audit WHERE kind = 'approval_expired' AND detail LIKE '%not_begun_in_time%'";
    assert_eq!(db.line(why).await, "1");
}

//! Recovery: rows that dead processes left open, and rows whose commit had no answer.

use std::sync::Arc;
use std::time::Duration;

use gavel::adapters::store::{Store, StoreConfig};
use gavel::ports::claims::Claimed;
use gavel::ports::commit::Recorder;

use crate::commits::{Writes, claim};
use crate::support::{TestDb, closed, done, eventually, intent, open_decision};

const STATES: &str = "SELECT d.status, d.decision_type, d.outcome_category, d.intent, d.recovered, t.status, \
                      t.error_code FROM decision_log d LEFT JOIN tool_invocation_log t ON t.decision_id = d.id \
                      ORDER BY d.created_at";

/// A store whose lease has expired: its process died.
async fn died(db: &TestDb, store: Arc<Store>) {
    // Without `shutdown`; then its lease is ended as time would.
    drop(store);
    eventually("its tasks have ended", async || {
        db.try_run("UPDATE instance SET lease_until = 0").await.is_ok()
    })
    .await;
}

/// A dead process's open row becomes ERROR:INTERNAL, its started calls are in doubt.
pub(crate) async fn a_dead_process_is_recovered_by_the_next(db: TestDb) {
    let dead = db.open().await;
    let (acting, mut idle) = (open_decision(), claim("scope", "body"));
    idle.decision.created_at += 1;
    dead.open(acting.clone(), vec![intent(&acting, 1)]).await.unwrap();
    assert_eq!(dead.claims(idle).await.unwrap(), Claimed::New);
    died(&db, dead).await;

    let next = db.open().await;
    // Recovered before `open` returned.
    let rows: Vec<String> = db
        .rows(STATES)
        .await
        .into_iter()
        .map(|row| {
            row.into_iter()
                .map(|cell| cell.unwrap_or("-".into()))
                .collect::<Vec<_>>()
                .join(" ")
        })
        .map(|row| row.replace(" t ", " 1 "))
        .collect();
    assert_eq!(
        rows,
        [
            "closed INVOKE_TOOL ERROR:INTERNAL add_task 1 in_doubt in_doubt",
            "closed RESPOND_ONLY ERROR:INTERNAL none 1 - -",
        ]
    );
    let Claimed::Answered(stored) = next.claims(claim("scope", "body")).await.unwrap() else {
        panic!("the claim of the dead process is not answered");
    };
    assert_eq!(stored.status, 500);
}

/// The sweeper finds processes that die while others run.
pub(crate) async fn the_sweeper_recovers_without_a_restart(db: TestDb) {
    let short = |db: &TestDb| StoreConfig {
        lease: Duration::from_millis(300),
        ..db.config()
    };
    let alive = Store::open(short(&db)).await.unwrap();
    let dead = db.open().await;
    let open = open_decision();
    dead.open(open.clone(), vec![intent(&open, 1)]).await.unwrap();
    died(&db, dead).await;
    eventually("the sweeper closed it", async || {
        db.line("SELECT status FROM decision_log").await == "closed"
    })
    .await;
    assert_eq!(db.line("SELECT status FROM tool_invocation_log").await, "in_doubt");
    drop(alive);
}

/// The rows of living processes stay unchanged.
pub(crate) async fn a_living_process_keeps_its_rows(db: TestDb) {
    let alive = db.open().await;
    let open = open_decision();
    alive.open(open.clone(), vec![intent(&open, 1)]).await.unwrap();
    // Sweeps when it opens.
    let other = db.open().await;
    assert_eq!(db.line("SELECT status FROM decision_log").await, "open");
    assert_eq!(db.line("SELECT status FROM tool_invocation_log").await, "started");
    drop(other);
}

/// Two concurrent recoveries close each row once.
pub(crate) async fn two_processes_recover_at_once(db: TestDb) {
    let dead = db.open().await;
    for _ in 0..50 {
        let open = open_decision();
        dead.open(open.clone(), vec![intent(&open, 1), intent(&open, 2)])
            .await
            .unwrap();
    }
    died(&db, dead).await;
    let (one, two, three) = tokio::join!(db.open(), db.open(), db.open());
    assert_eq!(
        db.count("SELECT COUNT(*) FROM decision_log WHERE status = 'closed' AND recovered")
            .await,
        50
    );
    assert_eq!(
        db.count("SELECT COUNT(*) FROM tool_invocation_log WHERE status = 'in_doubt'")
            .await,
        100
    );
    for store in [one, two, three] {
        store.available().unwrap();
    }
}

/// A process that was only cut off has better data than recovery.
pub(crate) async fn the_owners_outcome_replaces_that_of_recovery(db: TestDb) {
    let owner = db.open().await;
    let open = open_decision();
    let intent = intent(&open, 1);
    owner.open(open.clone(), vec![intent.clone()]).await.unwrap();
    let other = db.open_after_all_expired().await;
    assert_eq!(db.line("SELECT status FROM tool_invocation_log").await, "in_doubt");
    owner.close(closed(open, vec![done(&intent)], true)).await.unwrap();
    assert_eq!(
        db.line("SELECT outcome_category FROM decision_log WHERE NOT recovered")
            .await,
        "SUCCESS:TASK_COMPLETED"
    );
    assert_eq!(
        db.line("SELECT status, error_code FROM tool_invocation_log").await,
        "completed -"
    );
    drop(other);
}

/// Promise: recorded. A caller with the answer "not recorded" did nothing. A row that was written all the same says so,
/// and its key may be used again.
pub(crate) async fn a_decision_opened_without_an_answer_is_closed_as_not_started(db: TestDb) {
    open_without_an_answer(&db, async |store| store.shutdown().await).await;
}

/// The same if the database refuses that for a while: then it is tried again, and not taken for a lost outcome.
pub(crate) async fn what_was_not_started_is_no_lost_outcome_after_a_fault(db: TestDb) {
    let (refuse, accept) = match db.is_sqlite() {
        true => (
            "CREATE TRIGGER refuse BEFORE UPDATE ON decision_log BEGIN SELECT RAISE(ABORT, 'not now'); END",
            "DROP TRIGGER refuse",
        ),
        false => (
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$; \
             CREATE TRIGGER refuse BEFORE UPDATE ON decision_log FOR EACH ROW EXECUTE FUNCTION refuse()",
            "DROP TRIGGER refuse ON decision_log; DROP FUNCTION refuse",
        ),
    };
    db.open().await.shutdown().await;
    db.run(refuse).await;
    open_without_an_answer(&db, async |store| {
        // The writer tries at once, and after a refusal with each tick of the maintenance.
        tokio::time::sleep(Duration::from_millis(400)).await;
        db.run(accept).await;
        eventually("what was opened is closed", async || {
            db.count("SELECT COUNT(*) FROM decision_log WHERE status = 'open'")
                .await
                == 0
        })
        .await;
        store.shutdown().await;
        db.run(refuse).await;
    })
    .await;
}

/// Opens a decision and claims a key, and stops waiting for both while the writer waits for a lock. `settle` ends with
/// everything written.
async fn open_without_an_answer(db: &TestDb, settle: impl AsyncFn(Arc<Store>)) {
    let unacknowledged = "SELECT COUNT(*) FROM decision_log WHERE recovered AND error_detail LIKE 'not begun%'";
    for _ in 0..20 {
        let store = db.open().await;
        let lock = db.lock().await;
        let opened = open_decision();
        let calling = async {
            tokio::join!(
                store.open(opened.clone(), vec![intent(&opened, 1)]),
                store.claims(claim("scope", "body"))
            )
        };
        assert!(tokio::time::timeout(Duration::from_millis(50), calling).await.is_err());
        lock.release().await;
        settle(store).await;
        if db.count(unacknowledged).await > 0 {
            break;
        }
    }
    assert_ne!(
        db.count(unacknowledged).await,
        0,
        "the writer never had it when the caller stopped waiting"
    );
    let others = "SELECT status, error_message FROM tool_invocation_log WHERE status <> 'not_sent'";
    assert!(db.rows(others).await.is_empty(), "{:?}", db.rows(others).await);
    let others =
        "SELECT status, decision_type FROM decision_log WHERE decision_type <> 'RESPOND_ONLY' OR status = 'open'";
    assert!(db.rows(others).await.is_empty(), "{:?}", db.rows(others).await);
    let store = db.open().await;
    assert_eq!(store.claims(claim("scope", "body")).await.unwrap(), Claimed::New);
}

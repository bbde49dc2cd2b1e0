//! The lease of a run: claimed by one process, held, lost, released, and found when its holder is dead.

use std::sync::Arc;
use std::time::Duration;

use gavel::adapters::store::{Process, ReadOnly, Store, StoreConfig};
use gavel::domain::agent_run::RunStatus;
use gavel::domain::ids::{InstanceId, RunId, TenantId, UserId};
use gavel::ports::commit::Committed;
use gavel::ports::definitions::{Definitions, NewVersion, PutVersion};
use gavel::ports::runs::{Lease, MOST_CLAIMS, MOST_TAKES, NewRun, Renewed, Reopen, Runs, Started, Turn};

use crate::commits::{Append, FinishedRun, Writes, by_caller, entries, finished, key, reopen};
use crate::support::{
    T0, TestDb, begin, called_run, closed, done, entry, eventually, intent, new_run, open_decision, queued_run, tenant,
};

/// Expires every lease, as if its holder had not renewed it.
async fn time_passes(db: &TestDb) {
    db.run("UPDATE agent_run SET lease_until = 1 WHERE lease_until IS NOT NULL")
        .await;
}

/// Claims a run to which another process may be writing right now.
async fn taken_at_last(store: &Store, run: RunId) -> Lease {
    loop {
        if let Some(lease) = store.take(run).await.unwrap() {
            return lease;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Of many concurrent claims of a run, on two processes, one succeeds.
pub(crate) async fn of_twenty_concurrent_claims_one_succeeds(db: TestDb) {
    let stores = [db.open().await, db.open().await];
    let run = queued_run();
    assert_eq!(stores[0].create(run.clone()).await.unwrap(), Started::Now(None));
    for fence in 1..=3 {
        let mut racing = tokio::task::JoinSet::new();
        for n in 0..20 {
            let store = Arc::clone(&stores[n % 2]);
            racing.spawn(async move { store.take(run.id).await.unwrap() });
        }
        let taken: Vec<_> = racing.join_all().await.into_iter().flatten().collect();
        assert_eq!(taken, [Lease { run: run.id, fence }]);
        time_passes(&db).await;
    }
}

/// A run is claimed from the queue, or from a holder whose lease expired; its start time stays. A run that
/// has ended cannot be claimed.
pub(crate) async fn a_run_is_claimed_from_the_queue_and_from_dead_processes(db: TestDb) {
    let (one, two) = (db.open().await, db.open().await);
    let run = queued_run();
    one.create(run.clone()).await.unwrap();
    assert_eq!(
        db.line("SELECT status, started_at, fence FROM agent_run").await,
        "queued - 0"
    );
    let first = one.take(run.id).await.unwrap().unwrap();
    let started = "SELECT started_at FROM agent_run";
    let began = db.count(started).await;
    assert!(began > 0);
    assert_eq!(one.load(run.id).await.unwrap().unwrap().end.status, RunStatus::Running);
    assert_eq!(two.take(run.id).await.unwrap(), None);
    assert_eq!(
        one.take(run.id).await.unwrap(),
        None,
        "not even its holder can claim it twice"
    );

    time_passes(&db).await;
    let second = two.take(run.id).await.unwrap().unwrap();
    assert_eq!((first.fence, second.fence), (1, 2));
    assert_eq!(db.count(started).await, began);
    let end = finished(second, &run, RunStatus::Completed, vec![]);
    assert_eq!(two.finish(end).await.unwrap(), Committed::Written);
    time_passes(&db).await;
    assert_eq!(one.take(run.id).await.unwrap(), None);
    assert_eq!(one.take(RunId::new()).await.unwrap(), None);
}

/// A process that lost its lease writes nothing, and gets that as the result. Writes of others in the same commit
/// succeed.
pub(crate) async fn a_process_with_a_lost_lease_writes_nothing(db: TestDb) {
    let (lost, next) = (db.open().await, db.open().await);
    let run = new_run();
    let old = begin(&lost, &run).await;
    let child = called_run(old, run.id);
    begin(&lost, &child).await;
    assert_eq!(lost.append(entries(old, 1..=1)).await.unwrap(), Committed::Written);
    time_passes(&db).await;
    // No other process has claimed it yet, so it is not lost: a delayed holder continues.
    assert_eq!(lost.append(entries(old, 2..=2)).await.unwrap(), Committed::Written);
    assert_eq!(lost.renew(vec![old]).await.unwrap(), Renewed::default());
    assert_eq!(next.take(run.id).await.unwrap(), None, "it was renewed");
    time_passes(&db).await;
    let new = next.take(run.id).await.unwrap().unwrap();

    let beside = new_run();
    let held = begin(&lost, &beside).await;
    let tables = ["agent_run", "agent_run_entry", "decision_log", "tool_invocation_log"];
    let before = {
        let mut rows = Vec::new();
        for table in tables {
            rows.push(db.rows(&format!("SELECT * FROM {table} ORDER BY 1, 2")).await);
        }
        rows
    };
    let of_child = Append {
        run: child.id,
        ..entries(old, 1..=1)
    };
    let intents = Append {
        intents: vec![intent(&run.decision, 1)],
        ..entries(old, 3..=3)
    };
    let chat = closed(open_decision(), vec![], false);
    let (root, called, end, made, renewed, released, other, recorded) = tokio::join!(
        lost.append(intents),
        lost.append(of_child),
        lost.finish(finished(old, &run, RunStatus::Completed, vec![])),
        lost.create(called_run(old, run.id)),
        lost.renew(vec![old, held]),
        lost.release(vec![old]),
        lost.append(entries(held, 1..=1)),
        Writes::close(&*lost, chat),
    );
    assert_eq!(
        (root.unwrap(), called.unwrap(), end.unwrap()),
        (Committed::LeaseLost, Committed::LeaseLost, Committed::LeaseLost)
    );
    assert_eq!(made.unwrap(), Started::LeaseLost);
    assert_eq!(renewed.unwrap().lost, [old]);
    released.unwrap();
    assert_eq!(other.unwrap(), Committed::Written);
    recorded.unwrap();
    db.run(&format!("DELETE FROM agent_run_entry WHERE run_id = '{}'", beside.id))
        .await;
    db.run("DELETE FROM decision_log WHERE surface = 'chat'").await;
    // The renewing and claiming processes made their own writes there.
    for (table, before) in tables.into_iter().zip(before).skip(1) {
        assert_eq!(
            db.rows(&format!("SELECT * FROM {table} ORDER BY 1, 2")).await,
            before,
            "{table}"
        );
    }
    let fence = format!("SELECT status, fence FROM agent_run WHERE id = '{}'", run.id);
    assert_eq!(db.line(&fence).await, "running 2");

    // The same fence with another owner is no lease either.
    assert_eq!(lost.append(entries(new, 3..=3)).await.unwrap(), Committed::LeaseLost);
    assert_eq!(next.append(entries(new, 3..=3)).await.unwrap(), Committed::Written);
    let end = finished(new, &child, RunStatus::Completed, vec![]);
    assert_eq!(
        next.finish(end).await.unwrap(),
        Committed::Written,
        "the child came with it"
    );
}

/// Leases are renewed by the database's clock, however many, and lost ones are reported.
pub(crate) async fn leases_are_renewed_by_the_database_s_clock(db: TestDb) {
    let store = Store::open(StoreConfig {
        run_lease: Duration::from_secs(1000),
        ..db.config()
    })
    .await
    .unwrap();
    let mut leases = Vec::new();
    for _ in 0..70 {
        leases.push(begin(&store, &new_run()).await);
    }
    let now = if db.is_sqlite() {
        "CAST(unixepoch('now', 'subsec') * 1000000 AS BIGINT)"
    } else {
        "CAST(extract(epoch FROM now()) * 1000000 AS BIGINT)"
    };
    let fresh =
        format!("SELECT COUNT(*) FROM agent_run WHERE lease_until BETWEEN {now} + 900000000 AND {now} + 1000000000");
    assert_eq!(db.count(&fresh).await, 70);
    time_passes(&db).await;
    assert_eq!(db.count(&fresh).await, 0);
    let stale = Lease { fence: 7, ..leases[3] };
    let unknown = Lease {
        run: RunId::new(),
        fence: 1,
    };
    let mut asked = leases.clone();
    asked[3] = stale;
    asked.push(unknown);
    let renewed = store.renew(asked).await.unwrap();
    assert_eq!(renewed.lost, [stale, unknown]);
    assert!(renewed.cancelled.is_empty());
    assert!(db.count(&fresh).await >= 69);
    assert_eq!(store.renew(vec![]).await.unwrap(), Renewed::default());
}

/// A process that has just ended a run has not lost it, even before it receives the answer. A process whose run was
/// claimed by another has lost it, even after its end.
pub(crate) async fn a_run_that_its_holder_ended_is_not_lost(db: TestDb) {
    let (store, next) = (db.open().await, db.open().await);
    let (ended, paused, taken) = (new_run(), new_run(), new_run());
    let mut leases = Vec::new();
    for run in [&ended, &paused, &taken] {
        leases.push(begin(&store, run).await);
    }
    for (lease, run, status) in [
        (leases[0], &ended, RunStatus::Completed),
        (leases[1], &paused, RunStatus::Paused),
    ] {
        let end = finished(lease, run, status, vec![]);
        assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
    }
    let over = db.rows("SELECT * FROM agent_run WHERE completed_at IS NOT NULL").await;
    assert_eq!(store.renew(leases.clone()).await.unwrap(), Renewed::default());
    assert_eq!(
        db.rows("SELECT * FROM agent_run WHERE completed_at IS NOT NULL").await,
        over
    );
    time_passes(&db).await;
    let lease = next.take(taken.id).await.unwrap().unwrap();
    let end = finished(lease, &taken, RunStatus::Completed, vec![]);
    assert_eq!(next.finish(end).await.unwrap(), Committed::Written);
    assert_eq!(store.renew(leases.clone()).await.unwrap().lost, [leases[2]]);
    assert_eq!(next.renew(vec![lease]).await.unwrap(), Renewed::default());
}

/// A process that shuts down releases its runs, so the next one need not wait for the leases to expire.
pub(crate) async fn a_released_lease_is_claimed_at_once(db: TestDb) {
    let (leaving, next) = (db.open().await, db.open().await);
    let (run, other) = (new_run(), new_run());
    let (lease, second) = (begin(&leaving, &run).await, begin(&leaving, &other).await);
    assert!(in_turn(&next).await.is_empty());
    leaving.release(vec![lease, second]).await.unwrap();
    assert_eq!(leaving.renew(vec![lease]).await.unwrap().lost, [lease]);
    assert_eq!(in_turn(&next).await, [run.id]);
    let taken = next.take(run.id).await.unwrap().unwrap();
    assert_eq!(taken.fence, 2);
    leaving.release(vec![lease]).await.unwrap();
    assert_eq!(
        leaving.append(entries(lease, 1..=1)).await.unwrap(),
        Committed::LeaseLost
    );
    assert_eq!(next.append(entries(taken, 1..=1)).await.unwrap(), Committed::Written);

    // A write that was in flight at the release is still made while no other process has claimed the run.
    for _ in 0..2 {
        let end = finished(second, &other, RunStatus::Completed, vec![]);
        assert_eq!(leaving.finish(end).await.unwrap(), Committed::Written);
    }
    assert_eq!(next.take(other.id).await.unwrap(), None);
    assert!(in_turn(&next).await.is_empty());
}

/// The runs whose turn it is, of the first user of each tenant.
async fn in_turn(store: &Store) -> Vec<RunId> {
    let (mut after, mut found) = (String::new(), Vec::new());
    while let Some(waiting) = store.waiting(Turn::Tenant(&after), MOST_TAKES).await.unwrap() {
        after = waiting.tenant.as_str().to_owned();
        found.push(waiting.run);
    }
    found
}

/// Runs of dead processes, and queued runs that never started, are found; no others are.
pub(crate) async fn runs_that_wait_for_a_process_are_found(db: TestDb) {
    let store = db.open().await;
    let (living, over, dead, queued) = (new_run(), new_run(), new_run(), queued_run());
    begin(&store, &living).await;
    let lease = begin(&store, &over).await;
    store
        .finish(finished(lease, &over, RunStatus::Completed, vec![]))
        .await
        .unwrap();
    let cancelled = queued_run();
    store.create(cancelled.clone()).await.unwrap();
    store.cancel(cancelled.id, "ann").await.unwrap();
    assert!(in_turn(&store).await.is_empty());
    let lease = begin(&store, &dead).await;
    begin(&store, &called_run(lease, dead.id)).await;
    db.run(&format!(
        "UPDATE agent_run SET lease_until = 1 WHERE id = '{}'",
        dead.id
    ))
    .await;
    store.create(queued).await.unwrap();
    let found = store.waiting(Turn::Tenant(""), MOST_TAKES).await.unwrap().unwrap();
    assert_eq!((found.run, found.takes), (dead.id, 1), "the oldest");
    assert!(store.take(dead.id).await.unwrap().is_some());
    let next = in_turn(&store).await;
    assert!(store.take(next[0]).await.unwrap().is_some());
    assert!(in_turn(&store).await.is_empty());
}

/// Tenants take turns, and within a tenant its users, however many runs one of them has queued before.
pub(crate) async fn tenants_and_their_users_take_turns(db: TestDb) {
    let store = db.open().await;
    for (tenant, user, runs) in [("a", "ann", 3), ("a", "bob", 1), ("b", "ann", 1)] {
        for _ in 0..runs {
            let mut run = queued_run();
            run.decision.tenant = TenantId::parse(tenant).unwrap();
            run.decision.user = UserId::parse(user).unwrap();
            store.create(run).await.unwrap();
        }
    }
    let whose = async |turn: Turn<'_>| {
        let waiting = store.waiting(turn, MOST_TAKES).await.unwrap();
        waiting.map(|run| format!("{} {}", run.tenant.as_str(), run.user.as_str()))
    };
    let a = TenantId::parse("a").unwrap();
    assert_eq!(whose(Turn::Tenant("")).await.as_deref(), Some("a ann"));
    assert_eq!(whose(Turn::Tenant("a")).await.as_deref(), Some("b ann"));
    assert_eq!(whose(Turn::Tenant("b")).await, None);
    assert_eq!(whose(Turn::User(&a, "ann")).await.as_deref(), Some("a bob"));
    assert_eq!(whose(Turn::User(&a, "bob")).await, None);
}

/// A run that three processes in a row claimed and did not return fails with all that belongs to it, and is not claimed
/// again. Sent calls are in doubt.
pub(crate) async fn a_run_that_no_process_returns_fails(db: TestDb) {
    let run = new_run();
    let (first, last) = (db.open().await, db.open().await);
    let lease = begin(&first, &run).await;
    let mut lease = Some(lease);
    for n in 2..=i64::from(MOST_CLAIMS) {
        let store = db.open().await;
        time_passes(&db).await;
        assert!(last.give_up(10).await.unwrap().is_empty());
        lease = store.take(run.id).await.unwrap();
        // The current holder has not lost it yet.
        assert!(last.give_up(10).await.unwrap().is_empty());
        assert_eq!(store.load(run.id).await.unwrap().unwrap().is_lost, n > 3);
        if n < i64::from(MOST_CLAIMS) {
            continue;
        }
        let child = called_run(lease.unwrap(), run.id);
        begin(&store, &child).await;
        let append = |of: &NewRun| Append {
            run: of.id,
            intents: vec![intent(&of.decision, 1)],
            ..entries(lease.unwrap(), 1..=1)
        };
        assert_eq!(store.append(append(&run)).await.unwrap(), Committed::Written);
        assert_eq!(store.append(append(&child)).await.unwrap(), Committed::Written);
    }
    let other = new_run();
    let alive = begin(&last, &other).await;
    time_passes(&db).await;
    last.renew(vec![alive]).await.unwrap();
    assert!(in_turn(&last).await.is_empty(), "it is not offered for a claim");
    assert_eq!(last.take(run.id).await.unwrap(), None);
    assert_eq!(last.give_up(10).await.unwrap(), [run.id]);
    assert!(last.give_up(10).await.unwrap().is_empty(), "once");
    let ended = last.get(&tenant(), None, run.id).await.unwrap().unwrap();
    assert_eq!(
        (ended.status, ended.error_code().as_deref(), ended.in_doubt.len()),
        (RunStatus::Failed, Some("process_lost"), 2)
    );
    let why = ended.error_message.unwrap();
    assert!(why.contains("3 processes in a row were lost"), "{why}");
    let open = "SELECT COUNT(*) FROM decision_log WHERE surface = 'agent' AND status = 'open'";
    assert_eq!(db.count(open).await, 1, "that of the other run");
    let in_doubt = "SELECT COUNT(*) FROM tool_invocation_log WHERE status = 'in_doubt'";
    assert_eq!(db.count(in_doubt).await, 2);
    assert_eq!(
        db.count("SELECT COUNT(*) FROM agent_run WHERE completed_at IS NULL")
            .await,
        1
    );
    // Its last holder was alive after all: its write is too late.
    assert_eq!(
        first.append(entries(lease.unwrap(), 2..=2)).await.unwrap(),
        Committed::LeaseLost
    );
}

/// The time between renewals counts as work, whichever process holds the run, and a resume begins again at zero.
pub(crate) async fn renewals_count_how_long_processes_have_worked_on_a_run(db: TestDb) {
    let (one, two) = (db.open().await, db.open().await);
    let run = new_run();
    let mut lease = begin(&one, &run).await;
    let worked = async || two.load(run.id).await.unwrap().unwrap().worked;
    let pause = Duration::from_millis(200);
    let mut before = Duration::ZERO;
    for (n, store) in [&one, &two].into_iter().enumerate() {
        assert_eq!(worked().await, before);
        for _ in 0..2 {
            tokio::time::sleep(pause).await;
            store.renew(vec![lease]).await.unwrap();
        }
        assert!(worked().await >= before + pause * 2, "{before:?}");
        before = worked().await;
        // The time after its death is not counted.
        time_passes(&db).await;
        tokio::time::sleep(pause).await;
        if n == 0 {
            lease = two.take(run.id).await.unwrap().unwrap();
        }
    }
}

/// A run that its processes release in an orderly way never fails, however often it is claimed.
pub(crate) async fn a_run_that_is_released_in_an_orderly_way_never_fails(db: TestDb) {
    let (run, other) = (new_run(), db.open().await);
    let mut store = db.open().await;
    let mut lease = begin(&store, &run).await;
    for _ in 0..6 {
        store.release(vec![lease]).await.unwrap();
        assert!(other.give_up(10).await.unwrap().is_empty());
        store = db.open().await;
        lease = store.take(run.id).await.unwrap().unwrap();
    }
    // Neither does one whose holder could not write for a while, and claims it again itself.
    for _ in 0..6 {
        time_passes(&db).await;
        assert!(other.give_up(10).await.unwrap().is_empty());
        assert!(store.take(run.id).await.unwrap().is_some());
    }
}

/// An append without an answer is stored completely or not at all, and the next worker continues from the stored
/// journal.
pub(crate) async fn an_append_without_an_answer_is_stored_completely_or_not_at_all(db: TestDb) {
    let (cut_off, next) = (db.open().await, db.open().await);
    let mut found = [false; 2];
    for round in 0..40 {
        let run = new_run();
        let lease = begin(&cut_off, &run).await;
        let lock = db.lock().await;
        let more = Append {
            intents: vec![intent(&run.decision, 1)],
            ..entries(lease, 1..=3)
        };
        let appending = tokio::time::timeout(Duration::from_millis(20), cut_off.append(more));
        assert!(appending.await.is_err());
        lock.release().await;
        if round % 2 == 1 {
            // Every second time the writer gets a moment: SQLite sends no event when the lock is free, and waiters poll
            // up to 100 ms apart.
            let written = async {
                while next.journal(run.id, 0, 1).await.unwrap().is_empty() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(1), written).await.ok();
        }
        time_passes(&db).await;
        let taken = taken_at_last(&next, run.id).await;
        // From here on the old holder cannot change what was read.
        let journal = next.journal(run.id, 0, 9).await.unwrap();
        let intents = format!(
            "SELECT COUNT(*) FROM tool_invocation_log WHERE decision_id = '{}'",
            run.id
        );
        let written = !journal.is_empty();
        assert_eq!(journal.len(), if written { 3 } else { 0 });
        assert_eq!(db.count(&intents).await, i64::from(written));
        found[usize::from(written)] = true;
        let after = journal.len() as u64 + 1;
        assert_eq!(
            next.append(entries(taken, after..=after)).await.unwrap(),
            Committed::Written
        );
        assert_eq!(next.journal(run.id, 0, 9).await.unwrap().len() as u64, after);
        if found[1] {
            break;
        }
    }
    assert!(found[1], "the writer never had it when the caller stopped waiting");
}

/// A run is claimed before or after an append of its previous holder, never in between: the new holder has read all
/// that was written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_not_claimed_during_an_append() {
    let db = TestDb::postgres().await;
    let (old, next) = (db.open().await, db.open().await);
    let run = new_run();
    let lease = begin(&old, &run).await;
    time_passes(&db).await;
    // The append has passed its check, and waits with its entry.
    let lock = db.hold("LOCK TABLE agent_run_entry IN SHARE MODE").await;
    let appending = tokio::spawn({
        let old = Arc::clone(&old);
        async move { old.append(entries(lease, 1..=1)).await.unwrap() }
    });
    db.stuck(1).await;
    for _ in 0..3 {
        assert_eq!(next.take(run.id).await.unwrap(), None, "it is being written to");
    }
    lock.release().await;
    assert_eq!(appending.await.unwrap(), Committed::Written);
    assert_eq!(taken_at_last(&next, run.id).await.fence, 2);
    let journal = next.journal(run.id, 0, 9).await.unwrap();
    assert_eq!(journal, [entry(1)]);
}

/// Many runs with sub-agents at once, on two processes with several writers each, do not deadlock, which PostgreSQL
/// would resolve only after a second. Nothing is lost.
pub(crate) async fn many_concurrent_runs_do_not_deadlock(db: TestDb) {
    const RUNS: u64 = 24;
    const TURNS: u64 = 10;
    let stores = [db.open().await, db.open().await];
    let start = std::time::Instant::now();
    let mut working = tokio::task::JoinSet::new();
    for n in 0..RUNS {
        let store = Arc::clone(&stores[usize::try_from(n % 2).unwrap()]);
        working.spawn(async move {
            let run = new_run();
            let lease = begin(&store, &run).await;
            let children = [
                called_run(lease, run.id),
                called_run(lease, run.id),
                called_run(lease, run.id),
            ];
            let work = children.iter().map(async |child| {
                begin(&store, child).await;
                for turn in 1..=TURNS {
                    let more = Append {
                        run: child.id,
                        ..entries(lease, turn..=turn)
                    };
                    let (held, renewed) = tokio::join!(store.append(more), store.renew(vec![lease]));
                    assert_eq!(held.unwrap(), Committed::Written);
                    assert_eq!(renewed.unwrap(), Renewed::default());
                }
                let end = finished(lease, child, RunStatus::Completed, vec![]);
                assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
            });
            futures_util::future::join_all(work).await;
            let end = finished(lease, &run, RunStatus::Completed, vec![]);
            assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
        });
    }
    working.join_all().await;
    let whole = "SELECT COUNT(*) FROM agent_run WHERE status = 'completed'";
    assert_eq!(db.count(whole).await, i64::try_from(RUNS * 4).unwrap());
    let written = db.count("SELECT COUNT(*) FROM agent_run_entry").await;
    assert_eq!(written, i64::try_from(RUNS * 3 * TURNS).unwrap());
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    if !db.is_sqlite() {
        let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        assert_eq!(db.count(deadlocks).await, 0);
    }
}

/// Two processes that store the same new definitions in different orders do not deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_may_be_stored_in_any_order() {
    let db = TestDb::postgres().await;
    let stores = [db.open().await, db.open().await];
    for round in 0..40 {
        let work = stores.iter().enumerate().map(|(n, store)| async move {
            let mut order: Vec<_> = (0..24).collect();
            if n == 1 {
                order.reverse();
            }
            let making = order.into_iter().map(|n| {
                let mut run = queued_run();
                run.snapshot.hash = format!("{round}-{n}").into();
                store.create(run)
            });
            for made in futures_util::future::join_all(making).await {
                assert_eq!(made.unwrap(), Started::Now(None));
            }
        });
        futures_util::future::join_all(work).await;
    }
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(db.count(deadlocks).await, 0);
}

/// A replica that hangs within a transaction blocks one run for a moment, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_of_a_locked_run_neither_waits_nor_blocks() {
    use sqlx::{AssertSqlSafe, Connection, PgConnection};
    let db = TestDb::postgres().await;
    let store = db.open().await;
    let run = queued_run();
    store.create(run.clone()).await.unwrap();
    let mut frozen = PgConnection::connect(&db.url).await.unwrap();
    let lock = format!("SELECT 1 FROM agent_run WHERE id = '{}' FOR UPDATE", run.id);
    sqlx::raw_sql("BEGIN").execute(&mut frozen).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut frozen).await.unwrap();
    // As long as a write may take before its caller times out, so a wait for the lock would fail them.
    let takes = (0..12).map(|_| store.take(run.id));
    for taken in futures_util::future::join_all(takes).await {
        assert_eq!(taken.unwrap(), None);
    }
    Writes::close(&*store, closed(open_decision(), vec![], false))
        .await
        .unwrap();
    frozen.close().await.unwrap();
    eventually("the run can be claimed", async || {
        store.take(run.id).await.unwrap().is_some()
    })
    .await;
}

/// The database itself ends such a transaction if others wait for a lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_transaction_is_ended_by_the_database_within_two_seconds() {
    use sqlx::{Connection, PgConnection};
    let db = TestDb::postgres().await;
    // The writers' settings belong to their connections; a function in the database reads those of one writer.
    db.open().await.shutdown().await;
    let mut admin = PgConnection::connect(&db.url).await.unwrap();
    sqlx::raw_sql(
        "CREATE TABLE seen (value TEXT); CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO seen VALUES (current_setting('idle_in_transaction_session_timeout')); RETURN NEW; END $$; \
         CREATE TRIGGER look AFTER INSERT ON agent_run FOR EACH ROW EXECUTE FUNCTION look()",
    )
    .execute(&mut admin)
    .await
    .unwrap();
    db.open().await.create(queued_run()).await.unwrap();
    assert_eq!(db.line("SELECT value FROM seen").await, "2s");
}

/// A commit whose acknowledgment is lost on the wire is retried, and answers as if it had been received.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_without_an_answer_is_retried_and_reported_as_it_was() {
    let db = TestDb::postgres().await;
    let wire = Wire::to(&db.url).await;
    let config = StoreConfig::new(&wire.url, InstanceId::new());
    let store = Store::open(StoreConfig {
        // No heartbeat replaces the commit whose answer must be lost.
        lease: Duration::from_secs(3600),
        write_deadline: Duration::from_secs(10),
        close_deadline: Duration::from_secs(10),
        ..config
    })
    .await
    .unwrap();
    let (queued, paused) = (queued_run(), new_run());

    wire.lose_the_next_commit();
    assert_eq!(store.create(queued.clone()).await.unwrap(), Started::Now(None));
    wire.lose_the_next_commit();
    let taken = store.take(queued.id).await.unwrap();
    assert_eq!(
        taken,
        Some(Lease {
            run: queued.id,
            fence: 1
        })
    );
    wire.lose_the_next_commit();
    let lease = begin(&store, &paused).await;
    wire.lose_the_next_commit();
    let announced = intent(&paused.decision, 1);
    let more = Append {
        intents: vec![announced.clone()],
        ..entries(lease, 1..=2)
    };
    assert_eq!(store.append(more).await.unwrap(), Committed::Written);
    wire.lose_the_next_commit();
    assert_eq!(store.renew(vec![lease]).await.unwrap(), Renewed::default());
    wire.lose_the_next_commit();
    let end = FinishedRun {
        entries: vec![entry(3)],
        ..finished(lease, &paused, RunStatus::Paused, vec![done(&announced)])
    };
    assert_eq!(store.finish(end).await.unwrap(), Committed::Written);
    let resuming = Reopen {
        session: None,
        place: by_caller(false, Some(key("scope", "body")), &[]),
        ..reopen(paused.id, 0)
    };
    wire.lose_the_next_commit();
    let Started::Now(Some(lease)) = store.reopen(resuming).await.unwrap() else {
        panic!("it is reopened")
    };
    let child = called_run(lease, paused.id);
    wire.lose_the_next_commit();
    assert_eq!(begin(&store, &child).await, lease);
    wire.lose_the_next_commit();
    store.cancel(paused.id, "ann").await.unwrap();
    wire.lose_the_next_commit();
    store.release(vec![lease]).await.unwrap();
    let version = NewVersion {
        tenant: tenant(),
        project: queued.project.clone(),
        agent: "a".into(),
        hash: "h".into(),
        definition: "{}".into(),
        author: "ann".into(),
        created_at: T0,
        expected: Some(0),
        beside: None,
    };
    wire.lose_the_next_commit();
    assert_eq!(store.put(version).await.unwrap(), PutVersion::Made(1));

    assert_eq!(wire.lost(), 11, "each commit was lost once");
    assert_eq!(db.count("SELECT COUNT(*) FROM agent_run").await, 3);
    assert_eq!(db.count("SELECT COUNT(*) FROM agent_run_entry").await, 4);
    assert_eq!(db.count("SELECT COUNT(*) FROM decision_log").await, 3);
    assert_eq!(db.line("SELECT status FROM tool_invocation_log").await, "completed");
    eventually("it can be claimed", async || {
        store.take(paused.id).await.unwrap().is_some()
    })
    .await;
}

/// A connection to PostgreSQL that can break just when the server reports its commit.
struct Wire {
    url: String,
    state: Arc<WireState>,
}

#[derive(Default)]
struct WireState {
    armed: std::sync::atomic::AtomicBool,
    lost: std::sync::atomic::AtomicUsize,
}

impl Wire {
    async fn to(url: &str) -> Self {
        let (before, rest) = url.split_once("127.0.0.1:").unwrap();
        let (port, database) = rest.split_once('/').unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap().port();
        let (there, state) = (format!("127.0.0.1:{port}"), Arc::new(WireState::default()));
        let carried = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut server = tokio::net::TcpStream::connect(&there).await.unwrap();
                let state = Arc::clone(&carried);
                tokio::spawn(async move { state.carry(&mut client, &mut server).await });
            }
        });
        Self {
            url: format!("{before}127.0.0.1:{here}/{database}"),
            state,
        }
    }

    fn lose_the_next_commit(&self) {
        self.state.armed.store(true, std::sync::atomic::Ordering::SeqCst);
    }

    fn lost(&self) -> usize {
        self.state.lost.load(std::sync::atomic::Ordering::SeqCst)
    }
}

impl WireState {
    /// Forwards both ways until one side ends, or an acknowledgment must be lost: then both ends are closed.
    async fn carry(&self, client: &mut tokio::net::TcpStream, server: &mut tokio::net::TcpStream) {
        use std::sync::atomic::Ordering::SeqCst;
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut up, mut down) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
        loop {
            tokio::select! {
                read = client.read(&mut up) => {
                    let Ok(read @ 1..) = read else { return };
                    if server.write_all(&up[..read]).await.is_err() {
                        return;
                    }
                }
                read = server.read(&mut down) => {
                    let Ok(read @ 1..) = read else { return };
                    // The tag of a completed command (PostgreSQL manual, "Message Formats").
                    let committed = down[..read].windows(7).any(|tag| tag == b"COMMIT\0");
                    if committed && self.armed.swap(false, SeqCst) {
                        self.lost.fetch_add(1, SeqCst);
                        return;
                    }
                    if client.write_all(&down[..read]).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// A command names the gavel that uses the database: a server before a command, and none that has ended.
pub(crate) async fn the_process_that_uses_a_database_says_where_it_serves(db: TestDb) {
    let url = Some("http://localhost:8080".to_owned());
    let config = StoreConfig {
        serves: url.clone(),
        ..db.config()
    };
    let server = Store::open(config).await.unwrap();
    let command = db.open().await;
    assert_eq!(command.running_process().await.unwrap(), Some(Process { url }));
    server.shutdown().await;
    assert_eq!(command.running_process().await.unwrap(), Some(Process { url: None }));
    let reader = ReadOnly::open(&db.url).await.unwrap();
    command.shutdown().await;
    assert_eq!(reader.running_process().await.unwrap(), None);
    reader.close().await;
}

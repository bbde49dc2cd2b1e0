//! The database is locked, full, away, silent: an answer comes in bounded time, and nothing is lost that was promised.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gavel::adapters::store::{AtStart, Store, StoreConfig, StoreError};
use gavel::domain::ids::{InstanceId, TenantId};
use gavel::ports::records::{Decisions, ListQuery, RecordError, Recorder};
use gavel::ports::runs::{self, NewRun};

use crate::postgres::{Server, Wire};
use crate::support::{TestDb, closed, done, eventually, intent, open_decision, queued_run, tenant};

/// Deadlines that a test can wait for.
fn hasty(db: &TestDb) -> StoreConfig {
    StoreConfig {
        write_deadline: Duration::from_millis(300),
        close_deadline: Duration::from_millis(500),
        ..db.config()
    }
}

fn unavailable<T: std::fmt::Debug>(result: Result<T, RecordError>) {
    assert!(matches!(result, Err(RecordError::Unavailable(_))), "{result:?}");
}

/// Promise 1: a locked database is an answer, not a hang; reads go on; it comes back by itself.
pub(crate) async fn a_locked_database_is_unavailable_in_bounded_time(db: TestDb) {
    let store = Store::open(hasty(&db)).await.unwrap();
    store.close(closed(open_decision(), vec![], false)).await.unwrap();
    let lock = db.lock().await;
    let start = Instant::now();
    let open = open_decision();
    unavailable(store.open(open.clone(), vec![intent(&open, 1)]).await);
    // Three deadlines' time, since other tests use the machine as well.
    assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
    unavailable(store.available());
    let page = ListQuery {
        page_size: 10,
        ..ListQuery::default()
    };
    assert_eq!(store.list(&tenant(), &page).await.unwrap().items.len(), 1);
    assert!(store.ping().await.is_err());
    assert!(Store::try_write(&db.url).await.is_err());

    lock.release().await;
    Store::try_write(&db.url).await.unwrap();
    assert_eq!(db.count("SELECT COUNT(*) FROM instance WHERE id = 'doctor'").await, 0);
    eventually("available again", async || store.available().is_ok()).await;
    store.ping().await.unwrap();
    store.close(closed(open_decision(), vec![], false)).await.unwrap();
    // The one that was refused was never begun, and is not open.
    eventually("nothing is open", async || {
        db.count("SELECT COUNT(*) FROM decision_log WHERE status = 'open'")
            .await
            == 0
    })
    .await;
}

/// Promise 1: somebody holds the database while gavel starts, and gavel starts; it needs no lock to see that all is there.
pub(crate) async fn a_database_that_is_locked_at_start_holds_nobody_up(db: TestDb) {
    db.open().await.shutdown().await;
    let lock = db.lock().await;
    let config = StoreConfig {
        at_start: AtStart::Background,
        ..hasty(&db)
    };
    let start = Instant::now();
    let store = Store::open(config).await.unwrap();
    // PostgreSQL's lock is waited for for 2 s.
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    unavailable(store.open(open_decision(), vec![]).await);
    lock.release().await;
    eventually("available", async || store.available().is_ok()).await;
    store.close(closed(open_decision(), vec![], false)).await.unwrap();
}

/// Promise 1: rows do not go into a file that nobody will find. SQLite itself would go on writing to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sqlite_file_that_is_removed_or_replaced_is_a_store_that_is_away() {
    let db = TestDb::sqlite().await;
    let store = Store::open(hasty(&db)).await.unwrap();
    store.close(closed(open_decision(), vec![], false)).await.unwrap();
    let (file, aside) = (db.file(), db.file().with_extension("aside"));
    std::fs::rename(&file, &aside).unwrap();
    let refused = store.close(closed(open_decision(), vec![], false)).await;
    let Err(RecordError::Unavailable(reason)) = refused else {
        panic!("{refused:?}");
    };
    assert!(reason.contains("was removed or replaced"), "{reason}");
    assert!(!file.exists(), "no other one is begun in its place");
    assert!(store.ping().await.is_err());
    std::fs::copy(&aside, &file).unwrap();
    unavailable(store.close(closed(open_decision(), vec![], false)).await);

    std::fs::rename(&aside, &file).unwrap();
    eventually("available again", async || store.available().is_ok()).await;
    store.close(closed(open_decision(), vec![], false)).await.unwrap();
    store.shutdown().await;
    let answered = "SELECT COUNT(*) FROM decision_log WHERE NOT recovered";
    assert_eq!(db.count(answered).await, 2);
}

/// DESIGN.md 7: commit 2 that fails after an effect is finished when the store is back, by nobody's asking.
pub(crate) async fn a_close_that_failed_after_an_effect_is_finished_later(db: TestDb) {
    let store = Store::open(hasty(&db)).await.unwrap();
    let open = open_decision();
    let intent = intent(&open, 1);
    store.open(open.clone(), vec![intent.clone()]).await.unwrap();
    let lock = db.lock().await;
    unavailable(store.close(closed(open, vec![done(&intent)], true)).await);
    // One without an effect was told "not recorded"; where it was all the same, the row says that nobody heard.
    unavailable(store.close(closed(open_decision(), vec![], false)).await);
    lock.release().await;
    eventually("closed", async || {
        db.count("SELECT COUNT(*) FROM decision_log WHERE status = 'closed'")
            .await
            > 0
    })
    .await;
    eventually("available again", async || store.available().is_ok()).await;
    eventually("one is told as it came out", async || {
        db.rows("SELECT outcome_category FROM decision_log WHERE NOT recovered")
            .await
            == [[Some("SUCCESS:TASK_COMPLETED".to_owned())]]
    })
    .await;
    assert_eq!(db.line("SELECT status FROM tool_invocation_log").await, "completed");
}

/// A full queue answers at once, and what it cannot keep of an open decision is closed by recovery.
pub(crate) async fn a_full_queue_is_unavailable_at_once(db: TestDb) {
    let store = Store::open(StoreConfig {
        queue: 1,
        close_deadline: Duration::from_secs(20),
        ..hasty(&db)
    })
    .await
    .unwrap();
    let open = open_decision();
    let intent = intent(&open, 1);
    store.open(open.clone(), vec![intent.clone()]).await.unwrap();
    let lock = db.lock().await;
    let mut closing = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let store = Arc::clone(&store);
        closing.spawn(async move { store.close(closed(open_decision(), vec![], false)).await });
    }
    let refused = async {
        while let Some(result) = closing.join_next().await {
            if result.unwrap().is_err() {
                return true;
            }
        }
        false
    };
    assert!(refused.await, "a queue of one took fifty");
    // Keep it full, and close the decision that had its effect.
    let fill: Vec<_> = (0..50)
        .map(|_| store.close(closed(open_decision(), vec![], false)))
        .collect();
    let filled = tokio::time::timeout(Duration::from_millis(100), futures_util::future::join_all(fill));
    let last = store.close(closed(open, vec![done(&intent)], true));
    let (_, last) = tokio::join!(filled, last);
    unavailable(last);
    lock.release().await;
    eventually("recovery closed it", async || {
        db.count("SELECT COUNT(*) FROM decision_log WHERE status = 'open'")
            .await
            == 0
    })
    .await;
    assert_eq!(db.line("SELECT status FROM tool_invocation_log").await, "in_doubt");
}

/// SIGTERM: what is queued is written before the store is gone; what comes later is told so.
pub(crate) async fn shutdown_writes_what_is_queued(db: TestDb) {
    let store = db.open().await;
    let mut closing = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let store = Arc::clone(&store);
        closing.spawn(async move { store.close(closed(open_decision(), vec![], false)).await });
    }
    let (first, ()) = tokio::join!(closing.join_next(), store.shutdown());
    let mut acknowledged = i64::from(first.unwrap().unwrap().is_ok());
    while let Some(result) = closing.join_next().await {
        acknowledged += i64::from(result.unwrap().is_ok());
    }
    assert_eq!(db.count("SELECT COUNT(*) FROM decision_log").await, acknowledged);
    unavailable(store.close(closed(open_decision(), vec![], false)).await);
    // Its lease is over, so the next process need not wait for it.
    assert_eq!(
        db.count("SELECT COUNT(*) FROM instance WHERE lease_until > started_at + 3000000000")
            .await,
        0
    );
}

/// A disk that is full refuses writes; reads go on, and room makes it whole again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_unavailable_until_there_is_room() {
    let db = TestDb::sqlite().await;
    let store = Store::open(StoreConfig {
        max_bytes: Some(400 * 1024),
        ..hasty(&db)
    })
    .await
    .unwrap();
    let mut recorded = 0;
    loop {
        let mut decision = closed(open_decision(), vec![], false);
        decision.response = "x".repeat(20_000).into();
        match store.close(decision).await {
            Ok(()) => recorded += 1,
            Err(error) => {
                assert!(error.to_string().contains("full"), "{error}");
                break;
            }
        }
        assert!(recorded < 1000, "never full");
    }
    unavailable(store.available());
    assert_eq!(db.count("SELECT COUNT(*) FROM decision_log").await, recorded);
    db.run("DELETE FROM decision_log").await;
    eventually("available again", async || store.available().is_ok()).await;
    store.close(closed(open_decision(), vec![], false)).await.unwrap();
}

/// PostgreSQL crashes in mid-work and comes back: nothing acknowledged is lost, nothing opened stays open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_stopped_and_back() {
    let server = tokio::task::spawn_blocking(Server::start_new).await.unwrap();
    let url = server.database().await;
    let store = Store::open(StoreConfig {
        write_deadline: Duration::from_millis(300),
        close_deadline: Duration::from_millis(500),
        ..StoreConfig::new(&url, InstanceId::new())
    })
    .await
    .unwrap();
    let open = open_decision();
    let intent = intent(&open, 1);
    store.open(open.clone(), vec![intent.clone()]).await.unwrap();
    let server = tokio::task::spawn_blocking(move || {
        server.stop();
        server
    })
    .await
    .unwrap();
    unavailable(store.close(closed(open.clone(), vec![done(&intent)], true)).await);
    unavailable(store.available());
    assert!(store.ping().await.is_err());
    let server = tokio::task::spawn_blocking(move || {
        server.start();
        server
    })
    .await
    .unwrap();
    eventually("available again", async || store.available().is_ok()).await;
    eventually("the close was finished", async || {
        let found = store.get(&tenant(), open.id).await;
        matches!(found, Ok(Some(row)) if row["status"] == "closed" && row["tool_calls"][0]["status"] == "completed")
    })
    .await;
    drop(server);
}

/// A connection that falls silent (a lost host, a firewall) is given up, and the wait for it is bounded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_postgres_is_unavailable_in_bounded_time() {
    let url = crate::postgres::database().await;
    let wire = Wire::to(&url).await;
    let store = Store::open(StoreConfig {
        write_deadline: Duration::from_millis(300),
        close_deadline: Duration::from_millis(300),
        ..StoreConfig::new(&wire.url, InstanceId::new())
    })
    .await
    .unwrap();
    store.close(closed(open_decision(), vec![], false)).await.unwrap();
    wire.silence(true);
    let start = Instant::now();
    unavailable(store.close(closed(open_decision(), vec![], false)).await);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    unavailable(store.available());
    wire.silence(false);
    eventually("available again", async || store.available().is_ok()).await;
}

/// Promise 1: "not written" is said only of what is not, also later. Where a COMMIT was sent and nobody heard of it, that is
/// said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_committed_is_not_told_as_unwritten() {
    let db = TestDb::postgres().await;
    let wire = Wire::to(&db.url).await;
    let store = Store::open(StoreConfig {
        write_deadline: Duration::from_millis(500),
        // No beat takes the place of what is looked at.
        lease: Duration::from_secs(3600),
        ..StoreConfig::new(&wire.url, InstanceId::new())
    })
    .await
    .unwrap();
    let (unwritten, written) = (queued_run(), queued_run());
    let rows = async |run: &NewRun| {
        let id = run.id;
        db.count(&format!("SELECT COUNT(*) FROM agent_run WHERE id = '{id}'"))
            .await
    };
    wire.silence(true);
    unavailable(runs::Runs::create(&*store, unwritten.clone()).await);
    wire.silence(false);
    eventually("available again", async || store.available().is_ok()).await;
    // Writers take turns, and a new connection commits something of its own first.
    for _ in 0..6 {
        store.close(closed(open_decision(), vec![], false)).await.unwrap();
    }

    wire.lose_commits(true);
    let made = runs::Runs::create(&*store, written.clone()).await;
    assert!(matches!(made, Err(RecordError::Uncertain(_))), "{made:?}");
    assert_eq!((rows(&unwritten).await, rows(&written).await), (0, 1));
    wire.lose_commits(false);
    // Nobody was told of it, so nobody begins it.
    let given_up = format!(
        "SELECT COUNT(*) FROM agent_run WHERE id = '{}' AND status = 'failed'",
        written.id
    );
    eventually("the run was given up", async || db.count(&given_up).await == 1).await;
    assert_eq!(rows(&unwritten).await, 0);
}

/// A database that is away at start: an error, or a store that becomes available later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_is_away_at_start() {
    let server = tokio::task::spawn_blocking(Server::start_new).await.unwrap();
    let url = server.database().await;
    let server = tokio::task::spawn_blocking(move || {
        server.stop();
        server
    })
    .await
    .unwrap();
    let config = |at_start| StoreConfig {
        at_start,
        ..StoreConfig::new(&url, InstanceId::new())
    };
    let error = Store::open(config(AtStart::Fail)).await.err();
    assert!(matches!(error, Some(StoreError::Unavailable(_))), "{error:?}");
    let background = Store::open(config(AtStart::Background)).await.unwrap();
    let reason = background.available().unwrap_err().to_string();
    assert!(reason.contains("refused"), "an operator is told why: {reason}");
    let server = tokio::task::spawn_blocking(move || {
        server.start();
        server
    })
    .await
    .unwrap();
    eventually("available", async || background.available().is_ok()).await;
    background.close(closed(open_decision(), vec![], false)).await.unwrap();
    drop(server);
}

/// What is wrong for good is an error at once, whatever `at_start` says.
#[tokio::test]
async fn a_wrong_url_is_an_error_that_hides_it() {
    for url in ["mysql://u:hunter2@h/db", "sqlite::memory:", "gavel.db"] {
        let error = Store::open(StoreConfig {
            at_start: AtStart::Background,
            ..StoreConfig::new(url, InstanceId::new())
        })
        .await
        .err()
        .unwrap();
        assert!(matches!(error, StoreError::Url(_)), "{error:?}");
        assert!(!error.to_string().contains("hunter2"));
    }
    let config = StoreConfig::new("postgres://u:hunter2@h/db", InstanceId::new());
    assert!(!format!("{config:?}").contains("hunter2"));
    TenantId::parse("default").unwrap();
}

/// A file that is something else is left as it is, and waiting would not make it a database.
#[tokio::test]
async fn a_file_that_is_no_database_is_an_error_at_once_and_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    let words = "not a database, but somebody's notes. ".repeat(100);
    std::fs::write(&path, &words).unwrap();
    let url = format!("sqlite://{}", path.display());
    for at_start in [AtStart::Background, AtStart::Fail] {
        let config = StoreConfig::new(&url, InstanceId::new());
        let error = Store::open(StoreConfig { at_start, ..config }).await.err().unwrap();
        assert!(matches!(error, StoreError::NotADatabase), "{error:?}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), words);
}

//! The database is locked, full, unavailable, or silent: an answer comes in bounded time, and nothing that was promised
//! is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::AsJson as _;
use gavel::adapters::store::{AtStart, Store, StoreConfig, StoreError};
use gavel::domain::ids::{InstanceId, TenantId};
use gavel::ports::commit::Recorder;
use gavel::ports::records::{ListQuery, RecordError};
use gavel::ports::runs::{self, NewRun};

use crate::commits::Writes;
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

/// Promise: recorded. A locked database is an error, not a hang. Reads continue, and writes recover without a restart.
pub(crate) async fn a_locked_database_is_unavailable_in_bounded_time(db: TestDb) {
    let store = Store::open(hasty(&db)).await.unwrap();
    store.close(closed(open_decision(), vec![], false)).await.unwrap();
    let lock = db.lock().await;
    let start = Instant::now();
    let open = open_decision();
    unavailable(store.open(open.clone(), vec![intent(&open, 1)]).await);
    // The time of three deadlines, because other tests use the machine as well.
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
    // The refused decision never started, and is not open.
    eventually("nothing is open", async || {
        db.count("SELECT COUNT(*) FROM decision_log WHERE status = 'open'")
            .await
            == 0
    })
    .await;
}

/// Promise: recorded. gavel starts while another process holds the database; it needs no lock to see that the tables
/// exist.
pub(crate) async fn a_database_that_is_locked_at_start_does_not_delay_the_start(db: TestDb) {
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

/// Promise: recorded. Rows are not written to a deleted file. SQLite itself would continue to write to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_or_replaced_sqlite_file_makes_the_store_unavailable() {
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
    assert!(!file.exists(), "no other one is created in its place");
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

/// A commit 2 that fails after an effect is completed when the store is back, without a request.
pub(crate) async fn a_close_that_failed_after_an_effect_is_finished_later(db: TestDb) {
    let store = Store::open(hasty(&db)).await.unwrap();
    let open = open_decision();
    let intent = intent(&open, 1);
    store.open(open.clone(), vec![intent.clone()]).await.unwrap();
    let lock = db.lock().await;
    unavailable(store.close(closed(open, vec![done(&intent)], true)).await);
    // A decision without an effect was answered "not recorded". If it was recorded all the same, its row says that the
    // caller got no answer.
    unavailable(store.close(closed(open_decision(), vec![], false)).await);
    lock.release().await;
    eventually("closed", async || {
        db.count("SELECT COUNT(*) FROM decision_log WHERE status = 'closed'")
            .await
            > 0
    })
    .await;
    eventually("available again", async || store.available().is_ok()).await;
    eventually("one is reported with its result", async || {
        db.rows("SELECT outcome_category FROM decision_log WHERE NOT recovered")
            .await
            == [[Some("SUCCESS:TASK_COMPLETED".to_owned())]]
    })
    .await;
    assert_eq!(db.line("SELECT status FROM tool_invocation_log").await, "completed");
}

/// A full queue rejects a write at once. An open decision that it could not close is closed by recovery.
pub(crate) async fn a_full_queue_is_unavailable_at_once(db: TestDb) {
    let store = Store::open(StoreConfig {
        queue: 1,
        write_deadline: Duration::from_secs(20),
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
    // Keeps it full, and closes the decision that had its effect.
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

/// SIGTERM: queued writes are written before the store closes; later ones get an error.
pub(crate) async fn shutdown_writes_queued_records(db: TestDb) {
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
    // Its lease is released, so the next process need not wait for it.
    assert_eq!(
        db.count("SELECT COUNT(*) FROM instance WHERE lease_until > started_at + 3000000000")
            .await,
        0
    );
}

/// A full disk refuses writes. Reads continue, and writes work again once there is space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_makes_the_store_unavailable_until_there_is_space() {
    let db = TestDb::sqlite().await;
    let store = Store::open(StoreConfig {
        max_bytes: Some(640 * 1024),
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

/// PostgreSQL crashes and restarts: nothing acknowledged is lost, and no opened decision stays open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_postgres_loses_nothing_acknowledged() {
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

/// A connection that falls silent (a lost host, a firewall) is abandoned, and the wait for it is bounded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_postgres_is_unavailable_in_bounded_time() {
    let url = crate::postgres::database().await;
    let wire = Wire::to(&url).await;
    let store = Store::open(StoreConfig {
        write_deadline: Duration::from_secs(1),
        close_deadline: Duration::from_secs(1),
        ..StoreConfig::new(&wire.url, InstanceId::new())
    })
    .await
    .unwrap();
    store.close(closed(open_decision(), vec![], false)).await.unwrap();
    wire.silence(true);
    let start = Instant::now();
    unavailable(store.close(closed(open_decision(), vec![], false)).await);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    unavailable(store.available());
    wire.silence(false);
    eventually("available again", async || store.available().is_ok()).await;
}

/// Promise: recorded. "not written" is reported only if it is certain, also later. A COMMIT without an answer is
/// reported as such.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_may_be_committed_is_not_reported_as_unwritten() {
    let db = TestDb::postgres().await;
    let wire = Wire::to(&db.url).await;
    let store = Store::open(StoreConfig {
        write_deadline: Duration::from_millis(500),
        // No heartbeat replaces the write under test.
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
    // The pool's writers take turns, and a new connection first makes a commit of its own.
    for _ in 0..6 {
        store.close(closed(open_decision(), vec![], false)).await.unwrap();
    }

    wire.lose_commits(true);
    let made = runs::Runs::create(&*store, written.clone()).await;
    assert!(matches!(made, Err(RecordError::Uncertain(_))), "{made:?}");
    assert_eq!((rows(&unwritten).await, rows(&written).await), (0, 1));
    wire.lose_commits(false);
    // No process received the run, so none starts it.
    let given_up = format!(
        "SELECT COUNT(*) FROM agent_run WHERE id = '{}' AND status = 'failed'",
        written.id
    );
    eventually("the run was abandoned", async || db.count(&given_up).await == 1).await;
    assert_eq!(rows(&unwritten).await, 0);
}

/// A database that is unavailable at the start: an error, or a store that becomes available later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_is_unavailable_at_start_is_an_error_or_awaited() {
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
    assert!(reason.contains("refused"), "the operator gets the reason: {reason}");
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

/// A permanent error is returned at once, whatever `at_start` says.
#[tokio::test]
async fn an_invalid_url_is_an_error_that_hides_it() {
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

/// A file that is not a database is left unchanged, and waiting would not help.
#[tokio::test]
async fn a_file_that_is_not_a_database_is_an_error_at_once_and_is_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    let words = "not a database, but someone's notes. ".repeat(100);
    std::fs::write(&path, &words).unwrap();
    let url = format!("sqlite://{}", path.display());
    for at_start in [AtStart::Background, AtStart::Fail] {
        let config = StoreConfig::new(&url, InstanceId::new());
        let error = Store::open(StoreConfig { at_start, ..config }).await.err().unwrap();
        assert!(matches!(error, StoreError::NotADatabase), "{error:?}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), words);
}

//! Opening a queue at the start.

use gavel::adapters::queue::{Queue, QueueOptions};
use gavel::adapters::store::StoreError;
use gavel::domain::ids::{InstanceId, RunId};
use gavel::ports::run_queue::RunQueue;
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::support::TestQueue;

/// A URL that the store refuses is refused with the same text, and not printed: it may contain a password.
#[tokio::test]
async fn an_invalid_url_is_an_error_that_hides_it() {
    for (url, words) in [
        ("mysql://u:hunter2@h/db", "postgres://USER@HOST/DATABASE"),
        ("sqlite::memory:", "use a file"),
        ("sqlite:gavel.db?mode=memory", "use a file"),
        ("sqlite:", "names no file"),
        ("sqlite:gavel.db?cache=shared", "cannot be set"),
    ] {
        let error = Queue::open(url, InstanceId::new(), QueueOptions::default())
            .err()
            .unwrap();
        assert!(matches!(error, StoreError::Url(_)), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.to_string().contains("hunter2"));
    }
}

/// apalis numbers its migrations in a way that would collide with gavel's: jobs have their own file, which only its
/// owner can read.
#[tokio::test]
async fn jobs_have_their_own_sqlite_file() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("gavel.db");
    let url = format!("sqlite:{}", database.display());
    let queue = Queue::open(&url, InstanceId::new(), QueueOptions::default()).unwrap();
    queue.push(RunId::new()).await.unwrap();
    assert!(!database.exists());
    let jobs = std::fs::metadata(folder.path().join("gavel-jobs.db")).unwrap();
    #[cfg(unix)]
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&jobs.permissions()) & 0o777,
        0o600
    );
    queue.shutdown().await;
}

/// DESIGN.md section 8: the store's tables and the queue's are in one PostgreSQL, in either order, with many replicas
/// at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_may_start_at_once_beside_the_store() {
    let db = TestQueue::postgres().await;
    let queues: Vec<_> = (0..5).map(|_| db.open()).collect();
    gavel::adapters::store::Store::migrate(&db.url).await.unwrap();
    for queue in &queues {
        queue.push(RunId::new()).await.unwrap();
    }
    assert_eq!(db.jobs().await, 5);
    let status = gavel::adapters::store::Store::migrate(&db.url).await.unwrap();
    assert!(status.pending.is_empty());
}

/// docs/operations.md, replicas: the queue creates a schema and an extension, and needs no superuser for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_database_owner_can_create_what_the_queue_needs() {
    let db = TestQueue::postgres().await;
    let (_, name) = db.url.rsplit_once('/').unwrap();
    db.sql("CREATE ROLE plain LOGIN").await;
    db.sql(&format!("ALTER DATABASE {name} OWNER TO plain")).await;
    let plain = TestQueue::at(db.url.replace("gavel@", "plain@"));
    let queue = plain.open();
    queue.push(RunId::new()).await.unwrap();
    assert_eq!(plain.jobs().await, 1);
}

/// docs/operations.md, metrics: each has a line from the start.
#[tokio::test]
async fn every_metric_starts_at_zero() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let page = recorder.handle();
    let db = TestQueue::sqlite();
    let _queue = metrics::with_local_recorder(&recorder, || db.open());
    let page = page.render();
    for line in [
        "gavel_run_queue_up 0",
        "gavel_run_queue_running 0",
        "gavel_run_queue_jobs_total{result=\"done\"} 0",
        "gavel_run_queue_jobs_total{result=\"panicked\"} 0",
        "gavel_run_queue_jobs_total{result=\"unreadable\"} 0",
        "gavel_run_queue_push_failures_total 0",
        "gavel_run_queue_worker_restarts_total 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}: {page}");
    }
}

//! An orderly shutdown of a process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gavel::adapters::queue::QueueOptions;
use gavel::domain::ids::RunId;
use gavel::ports::run_queue::RunQueue;

use crate::support::{Hand, TestQueue, eventually};

/// DESIGN.md section 12, drain: a run in progress is waited for, and none is started.
pub(crate) async fn shutdown_finishes_runs_in_progress_and_leaves_the_rest_to_other_processes(db: TestQueue) {
    let leaving = db.open_without_polling();
    let hand = Hand::slow();
    leaving.start(Arc::clone(&hand) as _, 1);
    let runs: Vec<RunId> = (0..3).map(|_| RunId::new()).collect();
    for run in &runs {
        leaving.push(*run).await.unwrap();
    }
    eventually("one run is started", async || hand.runs() == 1).await;
    let shutdown = tokio::spawn({
        let leaving = Arc::clone(&leaving);
        async move { leaving.shutdown().await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!shutdown.is_finished(), "a run is in progress");
    // More than may run: the others are not started.
    hand.let_end(3);
    shutdown.await.unwrap();
    assert_eq!(hand.runs(), 1);
    assert_eq!(
        db.jobs().await,
        2,
        "the one that ended is removed, the others are queued"
    );
    assert_eq!(db.workers().await, 0, "its name was removed with it");
    assert!(leaving.push(RunId::new()).await.is_err(), "the queue is closed");

    // No missed heartbeat has to be waited for.
    let staying = db.open_without_polling();
    let other = Hand::quick();
    staying.start(Arc::clone(&other) as _, 1);
    eventually("the others", async || other.runs() == 2).await;
    assert!(runs.iter().all(|run| hand.times(*run) + other.times(*run) == 1));
    eventually("no job is left", async || db.jobs().await == 0).await;
}

/// A run that does not end delays the shutdown only for the configured time, and another process gets it later.
pub(crate) async fn shutdown_is_bounded(db: TestQueue) {
    let options = QueueOptions {
        heartbeat: Duration::from_secs(1),
        missed_heartbeats: 2,
        drain: Duration::from_millis(300),
        ..QueueOptions::default()
    };
    let leaving = db.open_with(options);
    let hand = Hand::slow();
    leaving.start(Arc::clone(&hand) as _, 1);
    let run = RunId::new();
    leaving.push(run).await.unwrap();
    eventually("it is started", async || hand.runs() == 1).await;
    let start = Instant::now();
    leaving.shutdown().await;
    let took = start.elapsed();
    assert!((300..3000).contains(&took.as_millis()), "{took:?}");
    assert_eq!(db.jobs().await, 1);

    let staying = db.open_with(options);
    let other = Hand::quick();
    staying.start(Arc::clone(&other) as _, 1);
    eventually("another process has it", async || other.times(run) == 1).await;
    eventually("no job is left", async || db.jobs().await == 0).await;
}

/// Each start of a worker creates a name; the table must not grow for ever.
pub(crate) async fn names_of_ended_workers_do_not_accumulate(db: TestQueue) {
    let queue = db.open();
    // The tables exist when this returns.
    let run = RunId::new();
    queue.push(run).await.unwrap();
    let (long_ago, now) = match db.is_sqlite() {
        true => ("0", "unixepoch()"),
        false => ("to_timestamp(0)", "now()"),
    };
    for number in 0..50 {
        for (kind, seen) in [("dead", long_ago), ("alive", now)] {
            let row = format!(
                "INSERT INTO apalis.workers (id, worker_type, storage_name, layers, last_seen) \
                 VALUES ('{kind}-{number}', 'gavel-runs', '', '', {seen})"
            );
            db.sql(&row).await;
        }
    }
    // One of the dead workers still holds the job.
    db.sql("UPDATE apalis.jobs SET lock_by = 'dead-7', status = 'Running'")
        .await;
    let hand = Hand::quick();
    queue.start(Arc::clone(&hand) as _, 1);
    eventually("its job is worked on", async || hand.times(run) == 1).await;
    // The 50 that live, this one, and the one that held a job at the time of the check.
    assert_eq!(db.workers().await, 52);
}

//! A pushed run is worked on soon, once, by some worker, and leaves nothing behind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use gavel::domain::ids::RunId;
use gavel::ports::BoxFuture;
use gavel::ports::run_queue::{RunQueue, RunWorker};

use crate::support::{Hand, TestQueue, eventually};

/// the queue adds almost no delay. In this test no polling helps it.
pub(crate) async fn a_pushed_run_is_worked_on_at_once(db: TestQueue) {
    let queue = db.open_without_polling();
    let hand = Hand::quick();
    queue.start(Arc::clone(&hand) as _, 4);
    let mut waits = Vec::new();
    for _ in 0..20 {
        let run = RunId::new();
        queue.push(run).await.unwrap();
        let pushed = Instant::now();
        eventually("worked on", async || hand.times(run) == 1).await;
        waits.push(hand.first(run).unwrap().saturating_duration_since(pushed));
    }
    waits.sort();
    // The first run waits for the worker to start; other tests share the machine.
    assert!(waits[10] < Duration::from_millis(100), "{waits:?}");
    eventually("no job is left", async || db.jobs().await == 0).await;
}

/// DESIGN.md section 8: any replica serves any request, and any worker any run. PostgreSQL notifies at once; on SQLite
/// polling finds the run.
pub(crate) async fn a_run_pushed_by_another_process_is_found(db: TestQueue) {
    let (pushing, working) = match db.is_sqlite() {
        true => (db.open(), db.open()),
        false => (db.open_without_polling(), db.open_without_polling()),
    };
    // A run that was queued before any worker started.
    let early = RunId::new();
    pushing.push(early).await.unwrap();
    let hand = Hand::quick();
    working.start(Arc::clone(&hand) as _, 4);
    eventually("the early run is worked on", async || hand.times(early) == 1).await;
    // The listener is running.
    let warm = RunId::new();
    eventually("the warm-up run is worked on", async || {
        pushing.push(warm).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        hand.times(warm) > 0
    })
    .await;
    // The worker now looks only at the next event or poll.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let run = RunId::new();
    pushing.push(run).await.unwrap();
    let pushed = Instant::now();
    eventually("worked on", async || hand.times(run) == 1).await;
    let limit = if db.is_sqlite() { 4000 } else { 1000 };
    assert!(
        pushed.elapsed() < Duration::from_millis(limit),
        "{:?}",
        pushed.elapsed()
    );
    eventually("no job is left", async || db.jobs().await == 0).await;
}

/// every run comes exactly once, and no more run at the same time than configured.
pub(crate) async fn a_thousand_runs_are_each_delivered_once_and_leave_nothing(db: TestQueue) {
    let queue = db.open();
    let hand = Hand::quick();
    queue.start(Arc::clone(&hand) as _, 8);
    let runs: Vec<RunId> = (0..1000).map(|_| RunId::new()).collect();
    for some in runs.chunks(50) {
        for pushed in join_all(some.iter().map(|run| queue.push(*run))).await {
            pushed.unwrap();
        }
    }
    eventually("all are worked on", async || hand.runs() == 1000).await;
    eventually("no job is left", async || db.jobs().await == 0).await;
    assert!(runs.iter().all(|run| hand.times(*run) == 1));
    assert!(hand.most() <= 8, "{}", hand.most());
}

/// DESIGN.md section 8: replicas share one PostgreSQL; two processes may also share a SQLite file.
pub(crate) async fn two_queues_share_the_work(db: TestQueue) {
    let (one, other) = (db.open(), db.open());
    let (left, right) = (Hand::slow(), Hand::slow());
    one.start(Arc::clone(&left) as _, 2);
    other.start(Arc::clone(&right) as _, 2);
    let runs: Vec<RunId> = (0..4).map(|_| RunId::new()).collect();
    for run in &runs {
        one.push(*run).await.unwrap();
    }
    // No run ends, so each process has its two.
    eventually("each has two", async || left.runs() == 2 && right.runs() == 2).await;
    left.let_end(2);
    right.let_end(2);
    eventually("no job is left", async || db.jobs().await == 0).await;
    assert!(runs.iter().all(|run| left.times(*run) + right.times(*run) == 1));
}

/// Promise 5: a panic in one run does not affect the next.
pub(crate) async fn a_panic_ends_that_job_only(db: TestQueue) {
    struct Clumsy {
        fatal: [RunId; 2],
        hand: Arc<Hand>,
    }
    impl RunWorker for Clumsy {
        fn work(&self, run: RunId) -> BoxFuture<'_, ()> {
            assert!(
                run != self.fatal[0],
                "a panic before the first await, as the test wants it"
            );
            Box::pin(async move {
                tokio::task::yield_now().await;
                assert!(run != self.fatal[1], "a panic later on, as the test wants it");
                self.hand.work(run).await;
            })
        }
    }
    let queue = db.open_without_polling();
    let (fatal, hand) = ([RunId::new(), RunId::new()], Hand::quick());
    let clumsy = Clumsy {
        fatal,
        hand: Arc::clone(&hand),
    };
    // One at a time: a slot lost to a panic would be noticed.
    queue.start(Arc::new(clumsy), 1);
    let sound = RunId::new();
    for run in [fatal[0], fatal[1], sound] {
        queue.push(run).await.unwrap();
    }
    eventually("the valid run is worked on", async || hand.times(sound) == 1).await;
    eventually("no job is left", async || db.jobs().await == 0).await;
}

/// A row from another program, or from a later gavel.
pub(crate) async fn a_job_that_names_no_run_blocks_no_other(db: TestQueue) {
    let queue = db.open_without_polling();
    let hand = Hand::slow();
    queue.start(Arc::clone(&hand) as _, 1);
    let busy = RunId::new();
    queue.push(busy).await.unwrap();
    eventually("busy", async || hand.times(busy) == 1).await;
    let (words, ahead) = match db.is_sqlite() {
        true => ("'\"nonsense'", "0"),
        false => ("'\"nonsense'::bytea", "to_timestamp(0)"),
    };
    let row = format!(
        "INSERT INTO apalis.jobs (job, id, job_type, max_attempts, run_at) \
         VALUES ({words}, '01KAN0000000000000000000ZZ', 'gavel-runs', 1, {ahead})"
    );
    db.sql(&row).await;
    let sound = RunId::new();
    queue.push(sound).await.unwrap();
    hand.let_end(2);
    eventually("the valid run is worked on", async || hand.times(sound) == 1).await;
    eventually("no job is left", async || db.jobs().await == 0).await;
}

//! The database is unavailable, locked, or silent: a push fails in bounded time, the log reports it once, and the queue
//! recovers without a restart.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gavel::adapters::queue::QueueOptions;
use gavel::domain::ids::{InstanceId, RunId};
use gavel::ports::run_queue::{QueueError, RunQueue};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;

use crate::postgres::{Server, Wire};
use crate::support::{Hand, TestQueue, eventually};

/// Deadlines that a test can wait for.
fn hasty() -> QueueOptions {
    QueueOptions {
        heartbeat: Duration::from_secs(1),
        missed_heartbeats: 2,
        ..QueueOptions::default()
    }
}

/// A push that fails within its deadline, which is 5 s.
async fn refused(queue: &dyn RunQueue) -> QueueError {
    let start = Instant::now();
    let refused = queue.push(RunId::new()).await.unwrap_err();
    assert!(start.elapsed() < Duration::from_millis(5500), "{:?}", start.elapsed());
    refused
}

/// Pushes a run until that succeeds, and waits for it to be worked on.
async fn works_again(queue: &dyn RunQueue, hand: &Hand) {
    let run = RunId::new();
    eventually("pushed", async || queue.push(run).await.is_ok()).await;
    eventually("worked on", async || hand.times(run) > 0).await;
}

/// A worker whose name was deleted from the table ends with an error; its replacement has another name.
pub(crate) async fn a_worker_that_ends_with_an_error_is_replaced(db: TestQueue) {
    let queue = db.open_with(hasty());
    let hand = Hand::slow();
    queue.start(Arc::clone(&hand) as _, 2);
    let long = RunId::new();
    queue.push(long).await.unwrap();
    eventually("it is started", async || hand.times(long) == 1).await;
    db.sql("UPDATE apalis.jobs SET lock_by = NULL").await;
    db.sql("DELETE FROM apalis.workers").await;
    eventually("another worker", async || db.workers().await == 1).await;
    // The run in progress continues and keeps its slot: with two slots, one other runs beside it.
    let others = [RunId::new(), RunId::new()];
    for run in others {
        queue.push(run).await.unwrap();
    }
    eventually("the next", async || hand.runs() == 2).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(hand.most(), 2);
    hand.let_end(3);
    eventually("all", async || hand.runs() == 3).await;
    assert_eq!(hand.times(long), 1);
    eventually("no job is left", async || db.jobs().await == 0).await;
}

/// Promise 5: another process holds the lock; the push returns an error and does not hang.
pub(crate) async fn a_locked_database_is_reported_and_recovers(db: TestQueue) {
    let queue = db.open_with(hasty());
    let hand = Hand::quick();
    queue.start(Arc::clone(&hand) as _, 2);
    works_again(queue.as_ref(), &hand).await;
    let lock = db.lock().await;
    refused(queue.as_ref()).await;
    lock.release().await;
    works_again(queue.as_ref(), &hand).await;
    eventually("no job is left", async || db.jobs().await == 0).await;
}

/// Log lines at the levels that an operator reads, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Everything that gavel logs on this thread. With a single subscriber, tracing caches the interest of the thread
    /// that reaches a line first, and other tests' threads have none. A second subscriber prevents that.
    fn of_gavel(&self) -> (tracing::subscriber::DefaultGuard, tracing::Dispatch) {
        let another = tracing::Dispatch::new(tracing_subscriber::registry());
        let writer = self.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(move || writer.clone());
        let gavel = Targets::new().with_target("gavel", LevelFilter::INFO);
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(gavel));
        (tracing::subscriber::set_default(subscriber), another)
    }

    fn lines(&self, what: &str) -> usize {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(what)).count()
    }
}

/// Blocking work runs on another thread.
async fn with(server: &Arc<Server>, act: fn(&Server)) {
    let server = Arc::clone(server);
    tokio::task::spawn_blocking(move || act(&server)).await.unwrap();
}

/// PostgreSQL is unavailable at the start, starts, stops and starts again. The test uses one thread, so that it sees
/// all log lines.
#[tokio::test]
async fn each_outage_of_postgres_is_logged_once() {
    let log = Log::default();
    let _guards = log.of_gavel();
    let server = Arc::new(tokio::task::spawn_blocking(Server::start_new).await.unwrap());
    let url = server.database().await;
    with(&server, Server::stop).await;

    let queue = gavel::adapters::queue::Queue::open(&url, InstanceId::new(), hasty()).unwrap();
    let hand = Hand::slow();
    queue.start(Arc::clone(&hand) as _, 2);
    let error = refused(queue.as_ref()).await;
    assert!(!error.to_string().is_empty());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(log.lines("the queue of runs is unavailable"), 1);
    assert_eq!(log.lines("ERROR") + log.lines("WARN"), 1);

    with(&server, Server::start).await;
    let long = RunId::new();
    eventually("pushed", async || queue.push(long).await.is_ok()).await;
    eventually("worked on", async || hand.times(long) == 1).await;
    assert_eq!(log.lines("the queue of runs is available again"), 1);

    // The server stops with a run in progress and a job that no worker has started.
    with(&server, Server::stop).await;
    refused(queue.as_ref()).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(log.lines("the queue of runs is unavailable"), 2);
    assert_eq!(log.lines("ERROR") + log.lines("WARN"), 2);
    // The run ends meanwhile; its job is removed when that is possible again.
    hand.let_end(1);
    with(&server, Server::start).await;
    hand.let_end(100);
    works_again(queue.as_ref(), &hand).await;
    assert_eq!(log.lines("the queue of runs is available again"), 2);
    let db = TestQueue::at(url);
    eventually("no job is left", async || db.jobs().await == 0).await;
    queue.shutdown().await;
}

/// A shutdown while the database is unavailable: bounded, and with few log lines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_with_an_unavailable_database_can_be_shut_down() {
    let server = Arc::new(tokio::task::spawn_blocking(Server::start_new).await.unwrap());
    let url = server.database().await;
    let queue = gavel::adapters::queue::Queue::open(&url, InstanceId::new(), hasty()).unwrap();
    let hand = Hand::quick();
    queue.start(Arc::clone(&hand) as _, 2);
    works_again(queue.as_ref(), &hand).await;
    with(&server, Server::stop).await;
    let start = Instant::now();
    queue.shutdown().await;
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
}

/// A connection that falls silent (a lost host, a firewall) is replaced, although it is never closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_are_replaced() {
    let wire = Wire::to(&crate::postgres::database().await).await;
    let queue = gavel::adapters::queue::Queue::open(&wire.url, InstanceId::new(), hasty()).unwrap();
    let hand = Hand::quick();
    queue.start(Arc::clone(&hand) as _, 2);
    works_again(queue.as_ref(), &hand).await;
    wire.silence(true);
    refused(queue.as_ref()).await;
    wire.silence(false);
    works_again(queue.as_ref(), &hand).await;
    // More often than there are connections: none of them is lost for good.
    for _ in 0..5 {
        wire.lose();
        works_again(queue.as_ref(), &hand).await;
    }
}

//! Separate processes: one that is killed, one that is idle.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gavel::adapters::queue::{Queue, QueueOptions};
use gavel::domain::ids::{InstanceId, RunId};
use gavel::ports::BoxFuture;
use gavel::ports::run_queue::{RunQueue, RunWorker};

use crate::support::{Hand, TestQueue, eventually};

const URL: &str = "GAVEL_TEST_QUEUE_URL";

/// Prints which runs it starts, and ends none.
struct Endless;

impl RunWorker for Endless {
    fn work(&self, run: RunId) -> BoxFuture<'_, ()> {
        let line = format!("began {run}\n");
        // One write per line, so that lines do not mix.
        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
        Box::pin(std::future::pending())
    }
}

/// Not a test: the child process of the tests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process that another test starts and kills"]
async fn child_that_works_until_it_is_killed() {
    let url = std::env::var(URL).unwrap();
    let queue = Queue::open(&url, InstanceId::new(), QueueOptions::default()).unwrap();
    queue.start(Arc::new(Endless), 4);
    std::future::pending().await
}

/// Ends with the test, however the test ends.
struct Process(Child);

impl Process {
    fn start(db: &TestQueue) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::child_that_works_until_it_is_killed"])
            .args(["--ignored", "--nocapture"])
            .env(URL, &db.url)
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    /// Waits until it has started this many runs.
    async fn has_begun(&mut self, runs: usize) {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let begun = tokio::task::spawn_blocking(move || {
            let begun = lines.map_while(Result::ok).filter(|line| line.starts_with("began "));
            begun.take(runs).count()
        });
        assert_eq!(begun.await.unwrap(), runs, "the child works");
    }

    /// Seconds of CPU it has used so far.
    fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let ticks: f64 = rest
            .split(' ')
            .skip(11)
            .take(2)
            .map(|field| field.parse::<f64>().unwrap())
            .sum();
        ticks / 100.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// After kill -9, another process gets the runs within about ten seconds.
pub(crate) async fn another_process_gets_the_jobs_of_a_killed_one(db: TestQueue) {
    let queue = db.open();
    let runs: Vec<RunId> = (0..4).map(|_| RunId::new()).collect();
    for run in &runs {
        queue.push(*run).await.unwrap();
    }
    let mut process = Process::start(&db);
    process.has_begun(4).await;
    let hand = Hand::quick();
    queue.start(Arc::clone(&hand) as _, 4);
    // Longer than the time after which a process counts as dead: it lives, and keeps its runs.
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(hand.runs(), 0);

    drop(process);
    let killed = Instant::now();
    eventually("another process has them", async || hand.runs() == 4).await;
    assert!(killed.elapsed() < Duration::from_secs(11), "{:?}", killed.elapsed());
    assert!(runs.iter().all(|run| hand.times(*run) == 1));
    eventually("no job is left", async || db.jobs().await == 0).await;
}

/// DESIGN.md section 12: an idle queue, and one whose runs take long.
pub(crate) async fn an_idle_worker_costs_almost_nothing(db: TestQueue) {
    let mut process = Process::start(&db);
    let queue = db.open();
    queue.push(RunId::new()).await.unwrap();
    process.has_begun(1).await;
    let (before, start) = (process.cpu(), Instant::now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let share = (process.cpu() - before) / start.elapsed().as_secs_f64();
    assert!(share < 0.01, "{share}");
}

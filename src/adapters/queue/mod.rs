//! The queue of background runs on SQLite or PostgreSQL: port [`RunQueue`], over the job library apalis.
//!
//! A job is the id of a run and nothing else. It travels: port → `jobs` (the one place that knows both databases) → the
//! database → `worker`, which keeps one apalis worker going, whatever the database does → `hands`, which runs each job as a
//! task of its own → `remove`, which deletes it. `state` tells whether the queue is there.
//!
//! A job that comes twice does no harm, since the run's row is the truth. So nothing here is tried again that the database
//! refused: a worker that ends is replaced by one with a new name, and what the old one held comes back by itself once its
//! heartbeat is missed.

mod hands;
mod jobs;
mod meters;
mod remove;
mod state;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use hands::Work;
use jobs::Jobs;
use state::State;

use crate::adapters::store::{StoreError, Target};
use crate::domain::ids::{InstanceId, RunId};
use crate::ports::BoxFuture;
use crate::ports::run_queue::{QueueError, RunQueue, RunWorker};

/// How long leaving may take the database, after the jobs have ended.
const LEAVING: Duration = Duration::from_secs(5);

/// How a queue behaves. [`QueueOptions::default`] has what a service wants.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Between two signs of life of a worker. Each also looks for jobs of which nobody told us. Whole seconds.
    pub heartbeat: Duration,
    /// After so many heartbeats missed its jobs go to another.
    pub missed_heartbeats: u32,
    /// The longest that [`RunQueue::push`] takes.
    pub push_deadline: Duration,
    /// How long [`Queue::shutdown`] waits for the jobs that run.
    pub drain: Duration,
}

impl Default for QueueOptions {
    /// The jobs of a killed process are with another after 6 to 8 seconds.
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(2),
            missed_heartbeats: 3,
            push_deadline: Duration::from_secs(5),
            drain: Duration::from_secs(30),
        }
    }
}

/// The queue. Dropping the last handle ends its own tasks; jobs that run go on.
pub struct Queue {
    shared: Arc<Shared>,
    keeping: TaskTracker,
    running: TaskTracker,
    started: AtomicBool,
    /// No further job is begun.
    stop: CancellationToken,
    /// The tasks end.
    end: CancellationToken,
    _end: [DropGuard; 2],
}

/// What the queue's tasks share.
struct Shared {
    jobs: Jobs,
    instance: InstanceId,
    options: QueueOptions,
    state: State,
    /// There is something to fetch.
    woken: Notify,
    /// Are the tables there?
    ready: watch::Sender<bool>,
}

impl Queue {
    /// Opens the queue in the database that `url` names: on PostgreSQL in the schema `apalis`, on SQLite in a file of its own
    /// beside the one named (`gavel.db` → `gavel-jobs.db`). Connecting and migrating go on in the background, on the current
    /// tokio runtime, so a database that is away holds nobody up.
    ///
    /// # Errors
    /// [`StoreError::Url`].
    pub fn open(url: &str, instance: InstanceId, options: QueueOptions) -> Result<Arc<Self>, StoreError> {
        let jobs = Jobs::of(&Target::parse(url, None)?, &options);
        meters::register();
        let shared = Arc::new(Shared {
            jobs,
            instance,
            options,
            state: State::starting(),
            woken: Notify::new(),
            ready: watch::Sender::new(false),
        });
        let (stop, end) = (CancellationToken::new(), CancellationToken::new());
        let keeping = TaskTracker::new();
        keeping.spawn(worker::prepare(Arc::clone(&shared), stop.clone()));
        Ok(Arc::new(Self {
            shared,
            keeping,
            running: TaskTracker::new(),
            started: AtomicBool::new(false),
            _end: [stop.clone().drop_guard(), end.clone().drop_guard()],
            stop,
            end,
        }))
    }

    /// Begins to hand jobs to `worker`, at most `concurrency` at once. A second call changes nothing.
    pub fn start(&self, worker: Arc<dyn RunWorker>, concurrency: usize) {
        if self.started.swap(true, Ordering::AcqRel) {
            return;
        }
        let (finished, removing) = mpsc::unbounded_channel();
        let work = Work {
            worker,
            slots: Arc::new(Semaphore::new(concurrency.max(1))),
            running: self.running.clone(),
            finished,
            stop: self.stop.clone(),
        };
        let (shared, end) = (Arc::clone(&self.shared), self.end.clone());
        self.keeping
            .spawn(remove::remove(Arc::clone(&shared), removing, end.clone()));
        self.keeping.spawn(worker::keep(shared, work, end));
    }

    /// Fetches no further job: what is still queued is for other processes.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Begins no further job, lets those that run end by themselves for as long as the options say, and leaves. What has not
    /// ended by then, and what was fetched and not begun, comes to another process.
    pub async fn shutdown(&self) {
        self.stop();
        self.running.close();
        let options = &self.shared.options;
        if timeout(options.drain, self.running.wait()).await.is_err() {
            tracing::warn!(
                jobs = self.running.len(),
                "runs did not end in time; another process continues them"
            );
        }
        self.end.cancel();
        self.keeping.close();
        let leaving = async {
            self.keeping.wait().await;
            self.shared.leave(self.running.is_empty()).await;
        };
        if timeout(LEAVING, leaving).await.is_err() {
            tracing::warn!("the queue of runs did not close in time; another process continues the runs that it held");
        }
    }
}

impl RunQueue for Queue {
    fn push(&self, run: RunId) -> BoxFuture<'_, Result<(), QueueError>> {
        Box::pin(async move {
            let shared = &self.shared;
            match timeout(shared.options.push_deadline, shared.push(run)).await {
                Ok(Ok(())) => {
                    shared.state.up();
                    shared.woken.notify_one();
                    Ok(())
                }
                Ok(Err(reason)) => Err(shared.not_pushed(&reason)),
                Err(_) => Err(shared.not_pushed("the database does not answer")),
            }
        })
    }
}

impl Shared {
    async fn push(&self, run: RunId) -> Result<(), String> {
        // The sender is in `self`, so it cannot be gone.
        if self.ready.subscribe().wait_for(|ready| *ready).await.is_err() {
            return Err("the queue has ended".into());
        }
        self.jobs.push(run).await
    }

    fn not_pushed(&self, reason: &str) -> QueueError {
        meters::push_failures().increment(1);
        QueueError(self.state.down(reason))
    }

    /// Gives back what was fetched and not begun, and takes this process's workers from the list. Where jobs still run, they
    /// stay theirs until the heartbeat is missed: by then this process has ended.
    async fn leave(&self, all_ended: bool) {
        if all_ended
            && *self.ready.borrow()
            && let Err(error) = self.jobs.leave(self.instance).await
        {
            tracing::debug!(error, "the list of workers still names this process");
        }
        self.jobs.close().await;
    }
}

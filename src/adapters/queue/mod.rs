//! The queue of background runs on SQLite or PostgreSQL: port [`RunQueue`], based on the job library apalis.
//!
//! A job is only the id of a run. Its path: port → `jobs` (the only module that knows both databases) → the database →
//! `worker`, which keeps one apalis worker running, whatever the database does → `job_service`, which runs each job in a
//! separate task → `remove`, which deletes it. `state` reports whether the queue is available.
//!
//! A duplicate job does no harm, since the run's row is authoritative. So failed database operations are not retried
//! here: a worker that ends is replaced by one with a new name. Its jobs return to the queue once its heartbeats are
//! missed.

mod job_service;
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

use job_service::JobContext;
use jobs::Jobs;
use state::State;

use crate::adapters::store::{StoreError, Target};
use crate::domain::ids::{InstanceId, RunId};
use crate::ports::BoxFuture;
use crate::ports::run_queue::{QueueError, RunQueue, RunWorker};

/// Timeout for closing the queue in the database, after the jobs have ended.
const LEAVING: Duration = Duration::from_secs(5);

/// Settings of a queue. [`QueueOptions::default`] has the values for a service.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Time between two heartbeats of a worker, in whole seconds. Each heartbeat also polls for jobs without a
    /// notification.
    pub heartbeat: Duration,
    /// After this many missed heartbeats, other workers get the jobs of a worker.
    pub missed_heartbeats: u32,
    /// Timeout of [`RunQueue::push`].
    pub push_deadline: Duration,
    /// How long [`Queue::shutdown`] waits for running jobs.
    pub drain: Duration,
}

impl Default for QueueOptions {
    /// Another worker gets the jobs of a killed process after 6 to 8 seconds.
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(2),
            missed_heartbeats: 3,
            push_deadline: Duration::from_secs(5),
            drain: Duration::from_secs(30),
        }
    }
}

/// The queue. Dropping the last handle ends its own tasks; running jobs continue.
pub struct Queue {
    shared: Arc<Shared>,
    keeping: TaskTracker,
    running: TaskTracker,
    started: AtomicBool,
    /// Cancelled when no further job may start.
    stop: CancellationToken,
    /// Cancelled when the queue's tasks must end.
    end: CancellationToken,
    _end: [DropGuard; 2],
}

/// What the queue's tasks share.
struct Shared {
    jobs: Jobs,
    instance: InstanceId,
    options: QueueOptions,
    state: State,
    /// Notified when there may be a job to fetch.
    woken: Notify,
    /// Whether the tables exist.
    ready: watch::Sender<bool>,
}

impl Queue {
    /// Opens the queue in the database that `url` names: on PostgreSQL in the schema `apalis`, on SQLite in a separate
    /// file next to the database (`gavel.db` → `gavel-jobs.db`). It connects and migrates in the background, on the
    /// current tokio runtime, so an unavailable database does not delay the caller.
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

    /// Starts to hand jobs to `worker`, at most `concurrency` at once. A second call has no effect.
    pub fn start(&self, worker: Arc<dyn RunWorker>, concurrency: usize) {
        if self.started.swap(true, Ordering::AcqRel) {
            return;
        }
        let (finished, removing) = mpsc::unbounded_channel();
        let work = JobContext {
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

    /// Fetches no further job. Other processes get the queued jobs.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Starts no further job, waits at most `drain` for running jobs, and closes the queue. Another process
    /// gets jobs that have not ended by then, and jobs that were fetched but not started.
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
            self.shared.release(self.running.is_empty()).await;
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
        // The sender is in `self`, so it cannot be dropped.
        if self.ready.subscribe().wait_for(|ready| *ready).await.is_err() {
            return Err("the queue has ended".into());
        }
        self.jobs.push(run).await
    }

    fn not_pushed(&self, reason: &str) -> QueueError {
        meters::push_failures().increment(1);
        QueueError(self.state.down(reason))
    }

    /// Returns jobs that were fetched but not started, and deletes this process's workers from the list. While jobs
    /// still run, their worker keeps them until its heartbeats are missed: by then this process has ended.
    async fn release(&self, all_ended: bool) {
        if all_ended
            && *self.ready.borrow()
            && let Err(error) = self.jobs.release(self.instance).await
        {
            tracing::debug!(error, "the list of workers still names this process");
        }
        self.jobs.close().await;
    }
}

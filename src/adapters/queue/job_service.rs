//! Runs each job of a worker in a separate task. So the end of a worker ends no run, and a panic ends only one job.
//! Wake-ups of a run do not wake the worker, which would query the database each time.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use apalis_core::backend::Backend;
use apalis_core::layers::Service;
use apalis_core::task::Task;
use apalis_core::worker::service::{IntoWorkerService, WorkerService};
use futures_util::FutureExt;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, PollSemaphore};
use tokio_util::task::TaskTracker;

use super::meters::{self, Ended};
use crate::domain::ids::RunId;
use crate::ports::BoxFuture;
use crate::ports::run_queue::RunWorker;

/// A job as apalis delivers it, in its stored form.
type Job = Task<Vec<u8>>;

/// The context in which jobs run. Outlives a worker.
#[derive(Clone)]
pub(super) struct JobContext {
    pub(super) worker: Arc<dyn RunWorker>,
    /// One permit for each job that may run at once. A job keeps its permit when its worker ends.
    pub(super) slots: Arc<Semaphore>,
    pub(super) running: TaskTracker,
    /// Receives the id of each job that has ended.
    pub(super) finished: UnboundedSender<String>,
    /// Cancelled when no further job may start.
    pub(super) stop: CancellationToken,
}

impl JobContext {
    pub(super) fn job_service(&self) -> JobService {
        JobService {
            work: self.clone(),
            slots: PollSemaphore::new(Arc::clone(&self.slots)),
            slot: None,
        }
    }

    async fn run(self, run: RunId, job: String, slot: Option<OwnedSemaphorePermit>) {
        meters::running().increment(1.0);
        let working = AssertUnwindSafe(async { self.worker.work(run).await }).catch_unwind();
        let ended = match working.await {
            Ok(()) => Ended::Done,
            Err(_) => {
                // The panic message was already printed by the panic hook.
                tracing::error!(%run, "a worker panicked; the run's row shows its last recorded state");
                Ended::Panicked
            }
        };
        meters::running().decrement(1.0);
        self.has_ended(job, ended);
        drop(slot);
    }

    fn has_ended(&self, job: String, ended: Ended) {
        meters::jobs(ended).increment(1);
        if self.finished.send(job).is_err() {
            // Only after a shutdown that did not wait for this job. Another worker gets it.
            tracing::debug!("a job ended too late to be removed");
        }
    }
}

/// The job service of one worker.
pub(super) struct JobService {
    work: JobContext,
    slots: PollSemaphore,
    slot: Option<OwnedSemaphorePermit>,
}

impl Service<Job> for JobService {
    type Response = ();
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<(), Infallible>>;

    /// Ready when there is a free slot. No job is fetched before that.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.work.stop.is_cancelled() {
            return Poll::Pending;
        }
        if self.slot.is_none() {
            self.slot = ready!(self.slots.poll_acquire(context));
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, job: Job) -> Self::Future {
        let id = job.task_id().map(ToString::to_string).unwrap_or_default();
        let Some(run) = std::str::from_utf8(&job.args).ok().and_then(RunId::parse) else {
            tracing::error!(job = id, "a job in the queue holds no valid run id; it will be removed");
            self.work.has_ended(id, Ended::Unreadable);
            return Box::pin(std::future::ready(Ok(())));
        };
        let running = self
            .work
            .running
            .spawn(self.work.clone().run(run, id, self.slot.take()));
        Box::pin(async move {
            // The task catches its own panics and is never aborted.
            running.await.ok();
            Ok(())
        })
    }
}

/// Accepts jobs in their stored form: apalis's own decoding ends the whole worker when it cannot decode a job.
impl<B: Backend<Task = Job>> IntoWorkerService<B, JobService> for JobContext {
    type Task = Job;
    type Backend = B;

    fn into_service(self, backend: B) -> WorkerService<B, JobService> {
        WorkerService {
            backend,
            service: self.job_service(),
        }
    }
}

//! What a worker does with a job: runs it as a task of its own. So a worker that ends takes no run with it, a panic ends
//! one job, and what a run waits for does not wake the worker, who would ask the database each time.

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

/// What apalis hands over: a job as it is stored.
type Job = Task<Vec<u8>>;

/// Where jobs are worked on. Outlives a worker.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) worker: Arc<dyn RunWorker>,
    /// One for each job that may run at once. A job keeps its own when its worker has ended.
    pub(super) slots: Arc<Semaphore>,
    pub(super) running: TaskTracker,
    /// Takes the id of each job that has ended.
    pub(super) finished: UnboundedSender<String>,
    /// No further job is begun.
    pub(super) stop: CancellationToken,
}

impl Work {
    pub(super) fn hands(&self) -> Hands {
        Hands {
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
                // The panic's own words were printed where it happened.
                tracing::error!(%run, "a worker panicked; the run's row says how far it came");
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
            // Only after a shutdown that did not wait for this job. It will come to another worker.
            tracing::debug!("a job ended too late to be removed");
        }
    }
}

/// One worker's hands.
pub(super) struct Hands {
    work: Work,
    slots: PollSemaphore,
    slot: Option<OwnedSemaphorePermit>,
}

impl Service<Job> for Hands {
    type Response = ();
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<(), Infallible>>;

    /// Is there a place? Nothing is fetched before.
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
            tracing::error!(job = id, "a job that names no run was taken from the queue");
            self.work.has_ended(id, Ended::Unreadable);
            return Box::pin(std::future::ready(Ok(())));
        };
        let running = self
            .work
            .running
            .spawn(self.work.clone().run(run, id, self.slot.take()));
        Box::pin(async move {
            // It catches its own panics, and nobody aborts it.
            running.await.ok();
            Ok(())
        })
    }
}

/// Takes jobs as they are stored: apalis's own way ends the whole worker over a job that cannot be read.
impl<B: Backend<Task = Job>> IntoWorkerService<B, Hands> for Work {
    type Task = Job;
    type Backend = B;

    fn into_service(self, backend: B) -> WorkerService<B, Hands> {
        WorkerService {
            backend,
            service: self.hands(),
        }
    }
}

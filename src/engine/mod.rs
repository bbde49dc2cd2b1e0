//! The engine: one loop for all surfaces.
//!
//! The journal is the state. A run's [`strategy`] decides from it without I/O; [`ask`] and [`act`] do the I/O and append
//! the results. Looping, approval, recovery and resume all consist of asking it again. The engine reads no database,
//! and only `act` calls a tool.
//!
//! An [`agent`] run is built from a definition, its inputs and limits. A [`flow`] is a run whose calls come from the
//! definition instead of a model. [`log`] makes the journal durable while it grows.

pub mod act;
pub mod agent;
pub mod approvals;
pub mod ask;
pub mod calls;
pub mod context;
pub mod derive;
pub mod doom_loop;
pub mod flow;
pub mod gate;
pub mod ledger;
pub mod limits;
pub mod live;
pub mod log;
pub mod next;
pub mod projection;
pub mod record;
pub mod strategy;
pub mod toolset;
pub mod verdict;

mod checks;
mod events;
mod memory;
mod notices;
mod spans;

#[cfg(test)]
pub(crate) mod testing;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

pub use events::EventSink;
pub use limits::Limits;
pub use next::{Ending, Next, iterations, next};
pub use projection::tool_name;
pub use record::{Durability, Record};
pub use strategy::Strategy;
pub use toolset::Toolset;

use log::Stop;

use crate::domain::agent_run::StopReason;
use crate::domain::definition::Approval;
use crate::domain::journal::{CallFailure, CallResult, Entry, Proposed, Speaker, Target};
use crate::domain::policy::Policy;
use crate::domain::tool::FailureCode;
use crate::ports::clock::Clock;
use crate::ports::commit::Recorder;
use crate::ports::model::{Model, ModelSettings};
use crate::ports::records::RecordError;
use crate::ports::tools::Tools;

/// What every run uses.
#[derive(Clone)]
pub struct Engine {
    /// The model.
    pub model: Arc<dyn Model>,
    /// The only way to cause side effects.
    pub tools: Arc<dyn Tools>,
    /// Makes intents durable.
    pub recorder: Arc<dyn Recorder>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The operator's policy.
    pub policy: Arc<Policy>,
}

/// One run.
pub struct Run {
    /// Its row and journal. It is enough to close the run.
    pub record: Record,
    /// What its next steps are decided and made with.
    pub context: Context,
}

/// What the next steps of a run are decided and made with.
pub struct Context {
    /// System prompt.
    pub system: Arc<str>,
    /// Model and sampling.
    pub settings: Arc<ModelSettings>,
    /// When calls require approval.
    pub approval: Approval,
    /// The least approval that its surface demands.
    pub floor: Approval,
    /// The user's time zone, if it is known and the run can wait for an approval.
    pub zone: Option<chrono_tz::Tz>,
    /// What the model may call.
    pub toolset: Arc<Toolset>,
    /// Earlier messages of the conversation, oldest first.
    pub history: Vec<(Speaker, String)>,
    /// What decides what comes next.
    pub strategy: Strategy,
    /// Its limits.
    pub limits: Limits,
    /// W3C `traceparent` of the request, sent to servers when gavel itself is not traced.
    pub traceparent: Option<String>,
    /// The receiver of its events, if there is a watcher.
    pub events: Option<EventSink>,
    /// Fires when it is cancelled.
    pub cancel: CancellationToken,
    /// Its context for calls of other agents.
    pub agent: Option<agent::AgentContext>,
}

impl Run {
    /// Can it wait for an approval? Only if another process can continue it.
    fn can_wait(&self) -> bool {
        self.record.log().is_some()
    }

    /// Is the run cancelled, so that nothing more may start? A run without a log is stopped from outside, at once.
    fn is_cancelled(&self) -> bool {
        self.record.log().is_some() && self.context.cancel.is_cancelled()
    }
}

impl Engine {
    /// Runs to the end, or until an approval is required. A panic or a cancellation ends the run as [`Ending::Broken`],
    /// with its journal intact, so that its decision can still be written.
    ///
    /// # Errors
    /// [`RecordError`] when an intent could not be made durable: nothing was sent, and the run does not continue.
    pub async fn run(&self, run: &mut Run) -> Result<Ending, RecordError> {
        match self.go(run).await {
            Ok(ending) => Ok(ending),
            Err(Stop::Record(error)) => Err(error),
            Err(Stop::LeaseLost | Stop::ApprovalGone | Stop::Halted | Stop::Suspended(_) | Stop::StepStopped(_)) => {
                Ok(Ending::Broken)
            }
        }
    }

    /// Like [`Engine::run`], for a run with a log. A cancelled run ends as [`Ending::Cancelled`]. A run that stops in
    /// this process may continue in another one.
    async fn go(&self, run: &mut Run) -> Result<Ending, Stop> {
        const CANCELLED: &str = "the run was cancelled";
        let cancel = run.context.cancel.clone();
        let calling = run.context.agent.as_ref().map(|place| Arc::clone(&place.calling));
        // A child run is cancelled or stopped together with this one, and reaches its own end first.
        let called_ended = async || {
            if let Some(calling) = &calling {
                drop(calling.lock().await);
            }
        };
        let cancelled = async {
            cancel.cancelled().await;
            called_ended().await;
        };
        let at_once = run.record.log().map(|log| log.halt.at_once.clone());
        let cut = async {
            match at_once {
                Some(at_once) => at_once.cancelled().await,
                None => std::future::pending().await,
            }
            called_ended().await;
        };
        let (why, ending) = tokio::select! {
            // First, so that nothing more starts after it.
            biased;
            () = cancelled => match run.record.log() {
                Some(_) => (CANCELLED, Ending::Cancelled),
                None => ("the service was stopped", Ending::Broken),
            },
            () = cut => return Err(self.halted(run).await),
            ended = AssertUnwindSafe(self.steps(run)).catch_unwind() => match ended {
                Ok(Err(Stop::Halted)) => return Err(self.halted(run).await),
                Ok(Err(Stop::StepStopped(cut))) => {
                    let elapsed = run.record.elapsed(self.clock.instant());
                    let own = flow::limit_reached(&run.record.journal, &run.context.limits, elapsed, &cut);
                    return Ok(Ending::Stopped(own.unwrap_or(StopReason::Step), cut.summary));
                }
                Ok(Ok(Ending::Cancelled)) => (CANCELLED, Ending::Cancelled),
                Ok(ended) => return ended,
                Err(_) => ("the service failed", Ending::Broken),
            },
        };
        if ending == Ending::Broken {
            tracing::error!(decision_id = %run.record.decision.id, "a run did not reach its end: {why}");
            run.close_calls(why, FailureCode::LimitReached);
        } else {
            agent::cancel_called(self, run).await?;
            run.close_calls(why, FailureCode::Cancelled);
        }
        Ok(ending)
    }

    /// Records in the journal that the run was handed over, so that the next worker does not treat it as a crash.
    async fn halted(&self, run: &mut Run) -> Stop {
        if run.record.log().is_some_and(|log| log.intending) {
            // The last append is unconfirmed, so nothing may be written after it.
            return Stop::Halted;
        }
        run.push(Entry::Halted);
        match log::flush(self, run, Vec::new()).await {
            Ok(()) => Stop::Halted,
            Err(stop) => stop,
        }
    }

    async fn steps(&self, run: &mut Run) -> Result<Ending, Stop> {
        loop {
            if run.is_cancelled() {
                return Ok(Ending::Cancelled);
            }
            let halts = run
                .record
                .log()
                .is_some_and(|log| log.halt.between_steps.is_cancelled());
            if halts {
                // Saves the model's last turn, so that it is not requested again.
                log::flush(self, run, Vec::new()).await?;
                return Err(Stop::Halted);
            }
            let elapsed = run.record.elapsed(self.clock.instant());
            let next = run
                .context
                .strategy
                .next(&run.record.journal, &run.context.limits, elapsed);
            if memory::may_end(&next, &run.record.journal)
                && let Err(why) = memory::count(&run.record.journal, &run.record.decision, &mut run.record.remembered)
            {
                return Ok(Ending::TooLong(why));
            }
            match next {
                Next::Ask => ask::ask(self, run).await,
                Next::Act(calls) => {
                    let calls: Vec<Proposed> = calls.into_iter().cloned().collect();
                    act::act(self, run, &calls).await?;
                }
                Next::Recover(calls) => {
                    let calls: Vec<Proposed> = calls.into_iter().cloned().collect();
                    act::recover(self, run, &calls).await?;
                }
                Next::SoftStop(reason) => {
                    run.push(notices::sum_up(reason, elapsed, run.context.limits.output_due));
                    // Saved at once; otherwise the next worker would grant the same time again.
                    log::flush(self, run, Vec::new()).await?;
                }
                Next::OutputDue => run.push(notices::output_due()),
                Next::Step(step, round) => match flow::step(run, step, round) {
                    Ok(entry) => run.push(entry),
                    Err(why) => return Ok(Ending::TooLong(why)),
                },
                Next::Refuse(calls, code) => {
                    let answers: Vec<_> = calls.into_iter().map(|call| refusal(call, code)).collect();
                    for answer in answers {
                        run.push(answer);
                    }
                }
                Next::Suspend(calls) => return Ok(Ending::Suspended(calls)),
                Next::End(ending) => return Ok(ending),
            }
        }
    }
}

/// The result of a call that is not run.
fn refusal(call: &Proposed, code: FailureCode) -> Entry {
    let (code, message) = match (&call.target, code) {
        (Target::Verdict(Err(error)), _) => (FailureCode::InvalidArguments, error.clone()),
        (_, FailureCode::MixedWithVerdict) => (
            code,
            "a verdict must be called alone; none of these calls was run".to_owned(),
        ),
        (_, FailureCode::TooManyCalls) => (code, "too many calls in one turn; this one was not run".to_owned()),
        (_, FailureCode::DoomLoop) => (code, notices::doom_loop()),
        (_, FailureCode::LimitReached) => (
            code,
            "the limit of this run is reached; this call was not run".to_owned(),
        ),
        (_, FailureCode::Rejected) => (
            FailureCode::Cancelled,
            "the user rejected another call, which ended the run; this call was not executed".to_owned(),
        ),
        (_, other) => (other, "this call was not run".to_owned()),
    };
    Entry::Result {
        call: call.id,
        result: CallResult {
            outcome: Err(CallFailure::new(code, message)),
            sent: false,
            duration_us: 0,
        },
    }
}

//! The engine: one loop for all surfaces.
//!
//! The journal is the state. [`next()`] decides from it without I/O; [`ask`] and [`act`] do the I/O and append the
//! results. Looping, approval, recovery and resume all consist of calling `next` again. The engine reads no database,
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
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

pub use events::{EventSink, tool_name};
pub use limits::Limits;
pub use next::{Ending, Next, iterations, next};
pub use strategy::Strategy;
pub use toolset::Toolset;

use ledger::{Call, Ledger};
use log::Stop;

use crate::domain::agent_run::StopReason;
use crate::domain::budget::Held;
use crate::domain::definition::Approval;
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallFailure, CallResult, Entry, Proposed, Speaker, Target};
use crate::domain::policy::Policy;
use crate::domain::tool::FailureCode;
use crate::ports::clock::Clock;
use crate::ports::commit::Recorder;
use crate::ports::model::{Model, ModelSettings};
use crate::ports::records::{OpenDecision, RecordError};
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

/// One run: its settings and its journal.
pub struct Run {
    /// The tenant, the user and the other fields of the row that commit 1 writes.
    pub record: OpenDecision,
    /// Has commit 1 been made?
    pub opened: bool,
    /// System prompt.
    pub system: Arc<str>,
    /// Model and sampling.
    pub settings: Arc<ModelSettings>,
    /// When calls require approval.
    pub approval: Approval,
    /// The least approval that its surface demands.
    pub floor: Approval,
    /// Can it wait for an approval?
    pub can_wait: bool,
    /// The user's time zone, if it is known and the run can wait for an approval.
    pub zone: Option<chrono_tz::Tz>,
    /// What the model may call.
    pub toolset: Arc<Toolset>,
    /// Earlier messages of the conversation, oldest first.
    pub history: Vec<(Speaker, String)>,
    /// The journal so far.
    pub journal: Vec<Entry>,
    /// What decides what comes next.
    pub strategy: Strategy,
    /// Its limits.
    pub limits: Limits,
    /// When this process started to execute it.
    pub began: Instant,
    /// The run's clock at that time, as used by earlier processes.
    pub before: Duration,
    /// W3C `traceparent` of the request, sent to servers when gavel itself is not traced.
    pub traceparent: Option<String>,
    /// The receiver of its events, if there is a watcher.
    pub events: Option<EventSink>,
    /// Fires when it is cancelled.
    pub cancel: CancellationToken,
    /// Intents made durable so far, for a run without a log; otherwise the journal has them.
    pub intended: Vec<ActionId>,
    /// Details of a model fault, for operators.
    pub fault_detail: Option<Arc<str>>,
    /// The durable journal; a chat request has none.
    pub log: Option<log::Log>,
    /// Its context for calls of other agents.
    pub agent: Option<agent::AgentContext>,
    /// The memory that its journal uses, beyond a small free amount.
    pub remembered: Option<Held<'static>>,
}

impl Run {
    /// The run's clock. Waits for approvals and the time between two processes do not count.
    fn elapsed(&self, now: Instant) -> Duration {
        self.before + now.saturating_duration_since(self.began)
    }

    /// Is it certain that no other process works on it? For a run without a log that is always so.
    fn is_ours(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.hold.is_ours())
    }

    /// Is the run cancelled, so that nothing more may start? A run without a log is stopped from outside, at once.
    fn is_cancelled(&self) -> bool {
        self.log.is_some() && self.cancel.is_cancelled()
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
        let cancel = run.cancel.clone();
        let calling = run.agent.as_ref().map(|place| Arc::clone(&place.calling));
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
        let at_once = run.log.as_ref().map(|log| log.halt.at_once.clone());
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
            () = cancelled => match run.log {
                Some(_) => (CANCELLED, Ending::Cancelled),
                None => ("the service was stopped", Ending::Broken),
            },
            () = cut => return Err(self.halted(run).await),
            ended = AssertUnwindSafe(self.steps(run)).catch_unwind() => match ended {
                Ok(Err(Stop::Halted)) => return Err(self.halted(run).await),
                Ok(Err(Stop::StepStopped(cut))) => {
                    let elapsed = run.elapsed(self.clock.instant());
                    let own = flow::limit_reached(&run.journal, &run.limits, elapsed, &cut);
                    return Ok(Ending::Stopped(own.unwrap_or(StopReason::Step), cut.summary));
                }
                Ok(Ok(Ending::Cancelled)) => (CANCELLED, Ending::Cancelled),
                Ok(ended) => return ended,
                Err(_) => ("the service failed", Ending::Broken),
            },
        };
        if ending == Ending::Broken {
            tracing::error!(decision_id = %run.record.id, "a run did not reach its end: {why}");
            close_calls(run, why, FailureCode::LimitReached);
        } else {
            agent::cancel_called(self, run).await?;
            close_calls(run, why, FailureCode::Cancelled);
        }
        Ok(ending)
    }

    /// Records in the journal that the run was handed over, so that the next worker does not treat it as a crash.
    async fn halted(&self, run: &mut Run) -> Stop {
        if run.log.as_ref().is_some_and(|log| log.intending) {
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
            if run
                .log
                .as_ref()
                .is_some_and(|log| log.halt.between_steps.is_cancelled())
            {
                // Saves the model's last turn, so that it is not requested again.
                log::flush(self, run, Vec::new()).await?;
                return Err(Stop::Halted);
            }
            let elapsed = run.elapsed(self.clock.instant());
            let next = run.strategy.next(&run.journal, &run.limits, elapsed);
            if memory::may_end(&next, &run.journal)
                && let Err(why) = memory::count(&run.journal, &run.record, &mut run.remembered)
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
                    run.push(notices::sum_up(reason, elapsed, run.limits.output_due));
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

/// After a panic or a cancellation: gives every call a result that states how far it came.
fn close_calls(run: &mut Run, why: &str, harmless: FailureCode) {
    // Calls in an unconfirmed append were not sent: sending waits for the store's answer.
    let announcing = run.log.as_ref().filter(|log| log.intending).map(|log| log.written);
    let confirmed = Ledger::of(&run.journal[..announcing.unwrap_or(run.journal.len())]);
    let ledger = Ledger::of(&run.journal);
    let results: Vec<_> = ledger
        .calls()
        .filter(|call| call.is_open())
        .map(|call| {
            let sent = confirmed.call(call.id()).is_some_and(Call::was_started);
            // The effects of a child run are known if it was driven to its end first, as after a cancellation.
            let of_child = matches!(call.proposed.target, Target::Agent(_)) && harmless != FailureCode::Cancelled;
            let acts = call.has_side_effect() || of_child;
            let (code, message) = match (sent, acts) {
                (true, true) => (
                    FailureCode::InDoubt,
                    format!("{why} during this call; its outcome is unknown"),
                ),
                (true, false) if harmless == FailureCode::LimitReached => {
                    (FailureCode::Timeout, format!("{why} during this call"))
                }
                (true, false) => (harmless, format!("{why} during this call")),
                (false, _) => (harmless, format!("{why} before this call was sent")),
            };
            Entry::Result {
                call: call.id(),
                result: CallResult {
                    outcome: Err(CallFailure::new(code, message)),
                    sent,
                    duration_us: 0,
                },
            }
        })
        .collect();
    results.into_iter().for_each(|result| run.push(result));
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

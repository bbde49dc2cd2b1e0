//! The engine: one loop for all surfaces.
//!
//! The journal is the state. [`next()`] decides from it without I/O, [`ask`] and [`act`] do the
//! I/O and append what came of it. Looping, approval, recovery and resume are all "ask `next`
//! again". The engine reads no database, and only `act` calls a tool.

pub mod act;
pub mod ask;
pub mod limits;
pub mod next;
pub mod policy;
pub mod toolset;
pub mod verdict;

mod events;
mod spans;

#[cfg(test)]
pub(crate) mod testing;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

pub use events::EventSink;
pub use limits::Limits;
pub use next::{Ending, Next, iterations, next};
pub use toolset::Toolset;

use crate::domain::ids::ActionId;
use crate::domain::journal::{CallFailure, CallResult, Entry, Proposed, Speaker, Target};
use crate::domain::tool::FailureCode;
use crate::ports::clock::Clock;
use crate::ports::model::{Model, ModelSettings};
use crate::ports::records::{OpenDecision, RecordError, Recorder};
use crate::ports::tools::Tools;

/// What every run uses.
#[derive(Clone)]
pub struct Engine {
    /// The model.
    pub model: Arc<dyn Model>,
    /// The way out to side effects.
    pub tools: Arc<dyn Tools>,
    /// Where intents are made durable.
    pub recorder: Arc<dyn Recorder>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// One run: what it was given, and its journal.
pub struct Run {
    /// Whose run it is; the row that commit 1 writes.
    pub record: OpenDecision,
    /// Has commit 1 been made?
    pub opened: bool,
    /// System prompt.
    pub system: Arc<str>,
    /// Model and sampling.
    pub settings: Arc<ModelSettings>,
    /// When a person must agree.
    pub approval: policy::Approval,
    /// Can it wait for a person?
    pub can_wait: bool,
    /// What the model may call.
    pub toolset: Arc<Toolset>,
    /// Earlier lines of the conversation, oldest first.
    pub history: Vec<(Speaker, String)>,
    /// What has happened.
    pub journal: Vec<Entry>,
    /// Its limits.
    pub limits: Limits,
    /// When it began.
    pub began: Instant,
    /// W3C `traceparent` of the request; servers get it where gavel itself is not traced.
    pub traceparent: Option<String>,
    /// Where its events go, when somebody watches.
    pub events: Option<EventSink>,
    /// Fires when it is cancelled.
    pub cancel: CancellationToken,
    /// Intents made durable so far.
    pub intended: Vec<ActionId>,
    /// What operators should know of a model fault.
    pub fault_detail: Option<Arc<str>>,
}

impl Run {
    /// When it must be over.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.began + self.limits.deadline
    }

    fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }
}

impl Engine {
    /// Runs to the end, or until a person must be asked. A panic or a cancellation ends the run as
    /// [`Ending::Broken`], with its journal intact, so that its record can still be written.
    ///
    /// # Errors
    /// [`RecordError`] when an intent could not be made durable: nothing was sent then, and the
    /// run goes no further.
    pub async fn run(&self, run: &mut Run) -> Result<Ending, RecordError> {
        let cancel = run.cancel.clone();
        let why = tokio::select! {
            // First, so that nothing more is begun after it.
            biased;
            () = cancel.cancelled() => "the service was stopped",
            ended = AssertUnwindSafe(self.steps(run)).catch_unwind() => match ended {
                Ok(ended) => return ended,
                Err(_) => "the service broke down",
            },
        };
        tracing::error!(decision_id = %run.record.id, "a run did not come to its end: {why}");
        close_calls(run, why);
        Ok(Ending::Broken)
    }

    async fn steps(&self, run: &mut Run) -> Result<Ending, RecordError> {
        loop {
            let elapsed = run.elapsed(self.clock.instant());
            match next(&run.journal, &run.limits, elapsed) {
                Next::Ask => ask::ask(self, run).await,
                Next::Act(calls) => {
                    let calls: Vec<Proposed> = calls.into_iter().cloned().collect();
                    act::act(self, run, &calls).await?;
                }
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

/// After a breakdown or a cancellation: every call has a result that tells how far it came.
fn close_calls(run: &mut Run, why: &str) {
    let of = |id: ActionId, which: fn(&Entry) -> Option<ActionId>| run.journal.iter().any(|e| which(e) == Some(id));
    let results: Vec<_> = run
        .journal
        .iter()
        .filter_map(|entry| match entry {
            Entry::ModelTurn { calls, .. } => Some(calls),
            _ => None,
        })
        .flatten()
        .filter(|call| !of(call.id, answered))
        .map(|call| {
            let sent = of(call.id, started);
            let acts = matches!(&call.target, Target::Tool(tool) if tool.side_effect);
            let (code, message) = match (sent, acts) {
                (true, true) => (
                    FailureCode::InDoubt,
                    format!("{why} during this call; it is not known whether it had its effect"),
                ),
                (true, false) => (FailureCode::Timeout, format!("{why} during this call")),
                (false, _) => (FailureCode::LimitReached, format!("{why} before this call was sent")),
            };
            Entry::Result {
                call: call.id,
                result: CallResult {
                    outcome: Err(CallFailure { code, message }),
                    sent,
                    duration_us: 0,
                },
            }
        })
        .collect();
    results.into_iter().for_each(|result| run.push(result));
}

fn answered(entry: &Entry) -> Option<ActionId> {
    match entry {
        Entry::Result { call, .. } => Some(*call),
        _ => None,
    }
}

fn started(entry: &Entry) -> Option<ActionId> {
    match entry {
        Entry::Started { call, .. } => Some(*call),
        _ => None,
    }
}

/// The answer to a call that does not run.
fn refusal(call: &Proposed, code: FailureCode) -> Entry {
    let (code, message) = match (&call.target, code) {
        (Target::Verdict(Err(error)), _) => (FailureCode::InvalidArguments, error.clone()),
        (_, FailureCode::MixedWithVerdict) => (
            code,
            "a verdict must be called alone; none of these calls was run".to_owned(),
        ),
        (_, FailureCode::TooManyCalls) => (code, "too many calls in one turn; this one was not run".to_owned()),
        (_, FailureCode::LimitReached) => (
            code,
            "the limit of this run is reached; this call was not run".to_owned(),
        ),
        (_, other) => (other, "this call was not run".to_owned()),
    };
    Entry::Result {
        call: call.id,
        result: CallResult {
            outcome: Err(CallFailure { code, message }),
            sent: false,
            duration_us: 0,
        },
    }
}

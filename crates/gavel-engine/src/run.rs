//! A run, and what all runs use.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::checks::Checks;
use super::context::AgentContext;
use super::events::EventSink;
use super::limits::{Limits, Stop};
use super::record::{Record, unfinished_calls};
use super::strategy::Strategy;
use super::strategy::plan::Scope;
use super::toolset::Toolset;
use crate::domain::definition::{Approval, Definition};
use crate::domain::ids::RunId;
use crate::domain::journal::{CallResult, Entry, Proposed};
use crate::domain::policy::Policy;
use crate::domain::prices::Prices;
use crate::domain::tool::FailureCode;
use crate::ports::clock::Clock;
use crate::ports::commit::Recorder;
use crate::ports::model::Model;
use crate::ports::records::{Asked, History};
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
    /// What models cost.
    pub prices: Arc<Prices>,
    /// Checks that take long.
    pub checks: Arc<Checks>,
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
    /// Its definition: model and sampling, and when calls require approval.
    pub definition: Arc<Definition>,
    /// The least approval that its surface demands.
    pub floor: Approval,
    /// The user's time zone, if it is known and the run can wait for an approval.
    pub zone: Option<chrono_tz::Tz>,
    /// What the model may call.
    pub toolset: Arc<Toolset>,
    /// The values of its planning session, by name.
    pub bound: Option<Arc<BTreeMap<String, String>>>,
    /// In a planning session: what persons wrote or confirmed.
    pub words: Option<Arc<Vec<String>>>,
    /// What the confirmed plan allows, if the run works on one.
    pub scope: Option<Arc<Scope>>,
    /// Earlier messages of the conversation, oldest first.
    pub history: History,
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
    /// Its agent, if it is an agent's run.
    pub agent: Option<AgentContext>,
    /// Its child runs, if it can call other agents.
    pub children: Option<Arc<dyn ChildRuns>>,
}

impl Context {
    /// What the model is asked with.
    pub(crate) fn asked(&self) -> Arc<Asked> {
        Arc::new(Asked {
            definition: Arc::clone(&self.definition),
            toolset: self.toolset.kept(),
            history: Arc::clone(&self.history),
        })
    }
}

impl Run {
    /// Can it wait for an approval? Only if another process can continue it.
    pub(super) fn can_wait(&self) -> bool {
        self.record.log().is_some()
    }

    /// Is the run cancelled, so that nothing more may start? A run without a log is stopped from outside, at once.
    pub(super) fn is_cancelled(&self) -> bool {
        self.record.log().is_some() && self.context.cancel.is_cancelled()
    }

    /// Appends an entry and sends its event.
    pub(super) fn push(&mut self, entry: Entry) {
        if let Some(sink) = &mut self.context.events {
            sink.entry(&self.record.journal, &entry);
        }
        self.record.journal.push(entry);
    }

    /// Gives every open call a result that states how far it came.
    pub(super) fn close_calls(&mut self, why: &str, harmless: FailureCode) {
        for result in unfinished_calls(&self.record, why, harmless) {
            self.push(result);
        }
    }
}

// The port through which a run calls other agents. [`agent`] implements it; the rest of the engine knows no agents.
//
// [`agent`]: super::agent

/// The child runs of one run, which each method gets.
#[async_trait]
pub trait ChildRuns: Send + Sync {
    /// Creates the child run of a started call, unless it exists, and drives it to its end. A child run that was cut
    /// short, and started again since, is reopened first.
    async fn call(&self, run: &Run, call: &Proposed, arguments: &Arc<RawValue>) -> Result<CallResult, Stop>;

    /// The child run that continues a started call, and whether it must be started again: it was cut short, and this run
    /// is resumed since.
    async fn continuing(&self, run: &Run, call: &Proposed) -> Result<(RunId, bool), Stop>;

    /// Ends the child runs that have not ended, in their current state. Returns the results of their calls.
    async fn cancel(&self, run: &Run) -> Result<Vec<Entry>, Stop>;

    /// Returns when no child run is being driven.
    async fn idle(&self);
}

//! A run that has ended, for its caller.

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::runs::{AgentRun, InDoubtCall};
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::decision::Usage;
use crate::domain::journal::{Entry, Target, Verdict};
use crate::ports::runs::StoredRun;
use crate::snapshot::DefinitionSnapshot;

/// The outcome of a run, for its caller.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Completed, failed, cancelled or paused.
    pub status: RunStatus,
    /// The final text.
    pub summary: Option<String>,
    /// The structured output, JSON.
    pub output: Option<Arc<RawValue>>,
    /// Was the final text made from the output by the definition's own template?
    pub formatted: bool,
    /// Why it failed or was cut short.
    pub error_message: Option<String>,
    /// What cut it short.
    pub stop_reason: Option<StopReason>,
    /// Did the agent end the loop that it is a step of?
    pub exits_loop: bool,
    /// Model calls; for a flow, those of its steps.
    pub steps: u32,
    /// Tokens; for a flow, those of its steps.
    pub usage: Usage,
    /// In-doubt calls.
    pub in_doubt: Vec<InDoubtCall>,
    /// Does it belong to a thread? Then another run may wait for its end.
    pub in_thread: bool,
    /// Its public view, if this process created it and knows its whole row.
    pub shown: Option<Box<AgentRun>>,
}

impl Ended {
    /// The value for its caller: the final text if there is no structured output or the definition formats it, else the
    /// output.
    #[must_use]
    pub fn value(&self) -> Value {
        if self.formatted {
            Value::from(self.summary.clone().unwrap_or_default())
        } else {
            self.structured()
        }
    }

    /// The structured output if there is one, else the final text.
    #[must_use]
    pub fn structured(&self) -> Value {
        let output = self.output.as_deref();
        match output.map(|output| serde_json::from_str(output.get())) {
            Some(Ok(value)) => value,
            _ => Value::from(self.summary.clone().unwrap_or_default()),
        }
    }
}

pub(super) fn exits_loop(journal: &[Entry]) -> bool {
    let last = journal
        .iter()
        .rev()
        .find(|entry| matches!(entry, Entry::ModelTurn { .. }));
    matches!(
        last.map(Entry::calls),
        Some([only]) if matches!(only.target, Target::Verdict(Ok(Verdict::Complete { exits_loop: true, .. })))
    )
}

/// The outcome of a run that had already ended, from its row and its own journal.
pub(super) fn ended(stored: &StoredRun, own: &[Entry], known: Option<&Arc<DefinitionSnapshot>>) -> Ended {
    let bundle = DefinitionSnapshot::read_once(&stored.snapshot, known).ok();
    let member = bundle.as_ref().and_then(|bundle| bundle.get(&stored.agent));
    Ended {
        in_thread: stored.origin.thread().is_some(),
        shown: None,
        status: stored.status,
        summary: stored.summary.as_deref().map(str::to_owned),
        output: stored.output.clone(),
        formatted: member.is_some_and(|member| member.definition.process_output.is_some()),
        error_message: stored.error_message.as_deref().map(str::to_owned),
        stop_reason: stored.stop_reason,
        exits_loop: exits_loop(own),
        steps: stored.steps,
        usage: stored.usage,
        in_doubt: stored.in_doubt.clone(),
    }
}

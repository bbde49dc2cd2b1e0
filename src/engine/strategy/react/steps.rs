//! The steps of a task, read from its journal: what was thought, done, seen and concluded (REQUIREMENTS P-305).

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::domain::action::ActionStatus;
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallFailure, Entry};
use crate::domain::reflection::Reflection;

/// One step of a task.
#[derive(Clone, Debug)]
pub struct StepState {
    /// 1, 2, 3 …
    pub n: u32,
    /// What the model meant to do, and why.
    pub reason: Option<String>,
    /// What it did: one call.
    pub action: Option<StepAction>,
    /// What it concluded; the last reflection that was accepted.
    pub reflection: Option<Reflection>,
}

/// The call of a step.
#[derive(Clone, Debug)]
pub struct StepAction {
    /// The call.
    pub id: ActionId,
    /// The tool.
    pub tool: Arc<str>,
    /// Its arguments: as sent, or as the model wrote them if it was not sent.
    pub arguments: Arc<RawValue>,
    /// Its status.
    pub status: ActionStatus,
    /// The result; `None` while it waits or runs.
    pub observation: Option<Result<Arc<RawValue>, CallFailure>>,
    /// When it started, in microseconds since the epoch.
    pub started_us: Option<i64>,
    /// How long it took, in microseconds.
    pub duration_us: Option<i64>,
    /// What allowed it, or asked for an approval; empty if nothing was required.
    pub decided_by: Vec<String>,
}

/// The steps of a task's run, in order.
#[must_use]
pub fn steps(journal: &[Entry]) -> Vec<StepState> {
    let _ = journal;
    Vec::new()
}

//! The steps of a task, read from its journal: what was thought, done, seen and concluded (P-305).

use crate::journal::Journal;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::super::super::ledger::Call;
use crate::domain::action::ActionStatus;
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallFailure, Cause, Entry, Phase, Target, Verdict};
use crate::domain::reflection::Reflection;
use crate::domain::text;
use crate::domain::tool::FailureCode;

/// The most bytes of a reason.
const REASON: usize = 4 * 1024;

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
}

/// The steps of a task's run, in order.
#[must_use]
pub fn steps(journal: &Journal) -> Vec<StepState> {
    let ledger = journal.ledger();
    let mut steps: Vec<StepState> = Vec::new();
    let mut phase = None;
    for entry in journal {
        match entry {
            Entry::Prompted {
                cause: Cause::Phase { phase: now, again, .. },
                ..
            } => {
                phase = Some(*now);
                if *now == Phase::Reason && !again {
                    steps.push(StepState {
                        n: u32::try_from(steps.len() + 1).unwrap_or(u32::MAX),
                        reason: None,
                        action: None,
                        reflection: None,
                    });
                }
            }
            Entry::ModelTurn { turn, calls } => {
                let Some(step) = steps.last_mut() else { continue };
                match phase {
                    Some(Phase::Reason) => {
                        let words = turn.text();
                        step.reason = Some(text::prefix(&words, REASON).to_owned());
                    }
                    Some(Phase::Act) => {
                        let first = calls.first().filter(|call| !matches!(call.target, Target::Verdict(_)));
                        let call = first.and_then(|call| ledger.call(call.id));
                        step.action = step.action.take().or(call.map(action));
                    }
                    Some(Phase::Reflect) => {
                        let accepted = calls.iter().find_map(|call| match &call.target {
                            Target::Verdict(Ok(Verdict::Reflect(reflection))) => {
                                ledger.call(call.id)?.succeeded().then(|| Reflection::clone(reflection))
                            }
                            _ => None,
                        });
                        step.reflection = accepted.or(step.reflection.take());
                    }
                    None => {}
                }
            }
            _ => {}
        }
    }
    steps
}

fn action(call: Call<'_>) -> StepAction {
    let result = call.result();
    StepAction {
        id: call.id(),
        tool: call.name(),
        arguments: call.arguments(),
        status: status(call),
        observation: result.map(|result| result.outcome.clone()),
        started_us: call.first_started_us(),
        duration_us: result.filter(|_| call.was_started()).map(|result| result.duration_us),
    }
}

fn status(call: Call<'_>) -> ActionStatus {
    match (call.result().map(|result| &result.outcome), call.failure_code()) {
        (Some(Ok(_)), _) => ActionStatus::Completed,
        (Some(Err(_)), Some(FailureCode::InDoubt)) => ActionStatus::InDoubt,
        (Some(Err(_)), Some(FailureCode::Rejected)) => ActionStatus::Rejected,
        (Some(Err(_)), Some(FailureCode::Expired)) => ActionStatus::Expired,
        (Some(Err(_)), _) => ActionStatus::Failed,
        (None, _) if call.was_started() => ActionStatus::Executing,
        (None, _) if call.was_approved() == Some(true) => ActionStatus::Approved,
        (None, _) if call.awaits_approval() => ActionStatus::AwaitingConfirmation,
        (None, _) => ActionStatus::Planned,
    }
}

//! The calls of a run as its user sees them, read from the journal.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::projection::tool_name;
use crate::domain::action::ActionStatus;
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallFailure, Entry, PolicyDecision, Proposed, Target};
use crate::domain::policy::Effect;
use crate::domain::tool::FailureCode;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallState {
    /// Its id.
    pub id: ActionId,
    /// The tool or the agent.
    pub tool: String,
    /// Its status.
    pub status: ActionStatus,
    /// Why it failed.
    pub error: Option<CallFailure>,
    /// The model that proposed it.
    pub model: Arc<str>,
    /// Hex SHA-256 of its canonical arguments, or of the model's own text if they were not accepted.
    pub input_hash: String,
    /// The policy's last decision; `RequireApproval` if an approval was needed. `None`: the policy was not asked.
    pub policy: Option<Effect>,
    /// When it started, in microseconds since the epoch.
    pub started_at: Option<i64>,
    /// When its result arrived, in the same unit.
    pub completed_at: Option<i64>,
}

/// Every proposed call, in order, except the functions with which the model ends a run. Journals are read entry by
/// entry: memory grows with the number of calls, not with their data.
#[derive(Debug, Default)]
pub struct Calls {
    model: Arc<str>,
    calls: Vec<CallState>,
    places: HashMap<ActionId, usize>,
}

impl Calls {
    /// Processes the next entry of the journal.
    pub fn take(&mut self, entry: &Entry) {
        if let Entry::ModelTurn { turn, .. } = entry {
            self.model = Arc::from(turn.model());
        }
        for call in entry.calls() {
            self.propose(call);
        }
        match entry {
            Entry::Decided { call, decision } => self.with(*call, |call| call.decided(decision)),
            Entry::ApprovalResolved {
                call, approved: true, ..
            } => self.now(*call, ActionStatus::Approved, None),
            Entry::Started { call, at_us, .. } => {
                self.now(*call, ActionStatus::Executing, None);
                self.with(*call, |call| call.started_at = Some(*at_us));
            }
            Entry::Result { call, result } => {
                self.with(*call, |call| call.ended(result.duration_us));
                match &result.outcome {
                    Ok(_) => self.now(*call, ActionStatus::Completed, None),
                    Err(failure) => {
                        let status = match failure.code {
                            FailureCode::InDoubt => ActionStatus::InDoubt,
                            FailureCode::Rejected => ActionStatus::Rejected,
                            FailureCode::Expired => ActionStatus::Expired,
                            _ => ActionStatus::Failed,
                        };
                        self.now(*call, status, Some(failure));
                    }
                }
            }
            _ => {}
        }
    }

    /// The calls.
    #[must_use]
    pub fn into_states(self) -> Vec<CallState> {
        self.calls
    }

    fn propose(&mut self, call: &Proposed) {
        if matches!(call.target, Target::Verdict(_)) {
            return;
        }
        self.places.insert(call.id, self.calls.len());
        self.calls.push(CallState {
            id: call.id,
            tool: tool_name(call).to_string(),
            status: ActionStatus::Planned,
            error: None,
            model: Arc::clone(&self.model),
            input_hash: hash(&call.call.args),
            policy: None,
            started_at: None,
            completed_at: None,
        });
    }

    fn with(&mut self, call: ActionId, change: impl FnOnce(&mut CallState)) {
        if let Some(call) = self.places.get(&call).and_then(|place| self.calls.get_mut(*place)) {
            change(call);
        }
    }

    fn now(&mut self, call: ActionId, status: ActionStatus, error: Option<&CallFailure>) {
        self.with(call, |call| {
            call.status = status;
            call.error = error.cloned();
        });
    }
}

impl CallState {
    fn decided(&mut self, decision: &PolicyDecision) {
        let (arguments, said) = match decision {
            PolicyDecision::Allow { arguments, .. } => (Some(arguments), Effect::Allow),
            PolicyDecision::RequireApproval { arguments, .. } => (Some(arguments), Effect::RequireApproval),
            PolicyDecision::Refuse { .. } => (None, Effect::Deny),
        };
        if let Some(arguments) = arguments {
            self.input_hash = hash(arguments);
        }
        // An approver has approved the call since, so the effect remains "requires approval".
        if (said, self.policy) != (Effect::Allow, Some(Effect::RequireApproval)) {
            self.policy = Some(said);
        }
    }

    /// A call that was not started has no times.
    fn ended(&mut self, duration_us: i64) {
        self.completed_at = self.started_at.map(|at| at.saturating_add(duration_us));
    }
}

fn hash(arguments: &RawValue) -> String {
    hex::encode(Sha256::digest(arguments.get()))
}

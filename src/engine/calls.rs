//! The calls of a run as its user is told of them, read off the journal.

use std::collections::HashMap;

use super::events::tool_name;
use crate::domain::action::ActionStatus;
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallFailure, Entry, Proposed, Target};
use crate::domain::tool::FailureCode;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallState {
    /// Its id.
    pub id: ActionId,
    /// The tool or the agent.
    pub tool: String,
    /// Where it is.
    pub status: ActionStatus,
    /// Why it has no good result.
    pub error: Option<CallFailure>,
}

/// Every call that was proposed, in order; not the functions by which the model ends a run. A journal is read into it entry by
/// entry: what it keeps grows with the calls, and not with what they carry.
#[derive(Debug, Default)]
pub struct Calls {
    calls: Vec<CallState>,
    places: HashMap<ActionId, usize>,
}

impl Calls {
    /// Takes what comes next in the journal.
    pub fn take(&mut self, entry: &Entry) {
        for call in entry.calls() {
            self.propose(call);
        }
        match entry {
            Entry::Settled {
                call, approved: true, ..
            } => self.now(*call, ActionStatus::Approved, None),
            Entry::Started { call, .. } => self.now(*call, ActionStatus::Executing, None),
            Entry::Result { call, result } => match &result.outcome {
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
            },
            _ => {}
        }
    }

    /// The calls.
    #[must_use]
    pub fn told(self) -> Vec<CallState> {
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
        });
    }

    fn now(&mut self, call: ActionId, status: ActionStatus, error: Option<&CallFailure>) {
        if let Some(call) = self.places.get(&call).and_then(|place| self.calls.get_mut(*place)) {
            call.status = status;
            call.error = error.cloned();
        }
    }
}

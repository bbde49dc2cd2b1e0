//! The calls of a run as its user is told of them, read off the journal.

use super::events::tool_name;
use crate::domain::action::ActionStatus;
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallFailure, Entry, Judgement, Target};
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

/// Every call that was proposed, in order; not the functions by which the model ends a run.
#[must_use]
pub fn calls(journal: &[Entry]) -> Vec<CallState> {
    let proposed = journal.iter().flat_map(Entry::calls);
    proposed
        .filter(|call| !matches!(call.target, Target::Verdict(_)))
        .map(|call| {
            let (mut status, mut error) = (ActionStatus::Planned, None);
            for entry in journal {
                match entry {
                    Entry::Judged {
                        call: id,
                        judgement: Judgement::RequireApproval { .. },
                    } if *id == call.id => status = ActionStatus::AwaitingConfirmation,
                    Entry::Settled { call: id, approved, .. } if *id == call.id && *approved => {
                        status = ActionStatus::Approved;
                    }
                    Entry::Started { call: id, .. } if *id == call.id => status = ActionStatus::Executing,
                    Entry::Result { call: id, result } if *id == call.id => match &result.outcome {
                        Ok(_) => (status, error) = (ActionStatus::Completed, None),
                        Err(failure) => {
                            status = match failure.code {
                                FailureCode::InDoubt => ActionStatus::InDoubt,
                                FailureCode::Rejected => ActionStatus::Rejected,
                                FailureCode::Expired => ActionStatus::Expired,
                                _ => ActionStatus::Failed,
                            };
                            error = Some(failure.clone());
                        }
                    },
                    _ => {}
                }
            }
            CallState {
                id: call.id,
                tool: tool_name(call).to_string(),
                status,
                error,
            }
        })
        .collect()
}

//! The events of decisions: what the work waits for, and why it continues.

use std::sync::Arc;

use super::{Call, Projection};
use crate::domain::ids::ActionId;
use crate::domain::journal::PolicyDecision;
use crate::surfaces::planning::WaitingKind;
use crate::surfaces::planning::events::event::SessionEvent;
use crate::surfaces::planning::events::wait::{ResumedBecause, WaitingCall};

impl Projection {
    pub(super) fn decided(&mut self, id: ActionId, decision: &PolicyDecision) -> Option<SessionEvent> {
        match decision {
            PolicyDecision::Allow { arguments, .. } => {
                self.calls.get_mut(&id)?.arguments = Arc::clone(arguments);
                None
            }
            PolicyDecision::RequireApproval { arguments, reason, .. } => {
                let call = self.calls.get_mut(&id)?;
                call.arguments = Arc::clone(arguments);
                let waiting = waiting(id, call, WaitingKind::Approval, reason.clone());
                self.approvals.insert(id);
                Some(SessionEvent::Waiting {
                    waiting_for: vec![waiting],
                })
            }
            PolicyDecision::Refuse { .. } => None,
        }
    }

    pub(super) fn waits_for_settlement(&self) -> Option<SessionEvent> {
        let reason = "It is unknown whether the call had its effect.";
        let waiting_for: Vec<_> = self
            .in_doubt
            .iter()
            .filter_map(|id| {
                Some(waiting(
                    *id,
                    self.calls.get(id)?,
                    WaitingKind::InDoubt,
                    reason.to_owned(),
                ))
            })
            .collect();
        (!waiting_for.is_empty()).then_some(SessionEvent::Waiting { waiting_for })
    }

    pub(super) fn resumed(&self, id: ActionId, why: ResumedBecause, detail: Option<String>) -> SessionEvent {
        let call = self.calls.get(&id);
        SessionEvent::Resumed {
            why,
            action_id: Some(id),
            task_id: call.and_then(|call| call.task),
            tool: call.map(|call| Arc::clone(&call.tool)),
            detail,
        }
    }
}

fn waiting(id: ActionId, call: &Call, kind: WaitingKind, reason: String) -> WaitingCall {
    WaitingCall {
        kind,
        task_id: call.task,
        action_id: id,
        tool: Arc::clone(&call.tool),
        arguments: Arc::clone(&call.arguments),
        reason,
    }
}

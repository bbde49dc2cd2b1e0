//! The events of decisions: what the work waits for, and why it continues.

use std::sync::Arc;

use super::{Call, Projection};
use crate::api::planning::SessionEvent;
use crate::api::planning::WaitingKind;
use crate::api::planning::{ResumedBecause, WaitingCall};
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::PolicyDecision;

impl Projection {
    pub(super) fn decided(&mut self, run: RunId, id: ActionId, decision: &PolicyDecision) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        match decision {
            PolicyDecision::Allow { arguments, .. } => call.arguments = Arc::clone(arguments),
            PolicyDecision::RequireApproval { arguments, reason, .. } => {
                call.arguments = Arc::clone(arguments);
                self.approvals.insert(id, (run, reason.clone()));
            }
            PolicyDecision::Refuse { .. } => {}
        }
    }

    /// A run waits for the approvals of its own calls; the outermost one also for settlements, once nothing else is left.
    /// It is suspended with a run that it called as well, which says nothing new.
    pub(super) fn suspended(&self, run: RunId) -> Option<SessionEvent> {
        let own = self.approvals.iter().filter(|(_, (of, _))| *of == run);
        let mut waiting_for: Vec<_> = own
            .filter_map(|(id, (_, reason))| {
                let call = self.calls.get(id)?;
                Some(waiting(*id, call, WaitingKind::Approval, reason.clone()))
            })
            .collect();
        if run == self.root && self.approvals.is_empty() {
            let reason = "It is unknown whether the call had its effect.";
            let in_doubt = self.in_doubt.iter();
            waiting_for.extend(in_doubt.filter_map(|id| {
                let call = self.calls.get(id)?;
                Some(waiting(*id, call, WaitingKind::InDoubt, reason.to_owned()))
            }));
        }
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

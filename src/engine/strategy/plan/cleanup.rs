//! The cleanup at the end of every session, whatever ended it (PLANNING.md section 7): a call of code, decided and
//! recorded like any other, up to 30 s beyond the deadline.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::end::is_cleanup;
use super::{CLEANUP_STEP, CLEANUP_TOOL, Execution};
use crate::domain::canonical;
use crate::domain::ids::ActionId;
use crate::domain::journal::{Entry, FunctionCall, Proposed, Target};
use crate::engine::attempt;
use crate::engine::ledger::{Call, Ledger};
use crate::engine::toolset::Toolset;

/// How long the cleanup may take.
pub(in crate::engine) const CLEANUP_TIME: Duration = Duration::from_secs(30);

/// What is left to clean up.
pub(in crate::engine) enum Due {
    /// It has to be called.
    Call(Entry),
    /// It was called by a process that has died.
    Again(Proposed),
    /// Nothing: it was done, no task ever began, or there is no such tool.
    Nothing,
}

/// What is left to clean up after this journal.
pub(in crate::engine) fn due(execution: &Execution, journal: &[Entry], toolset: &Toolset) -> Due {
    let ledger = Ledger::of(journal);
    let mut calls = ledger.calls().rev();
    if let Some(call) = calls.find(|call| is_cleanup(call)) {
        return match (call.result(), call.was_started()) {
            (Some(_), _) => Due::Nothing,
            (None, _) => Due::Again(call.proposed.clone()),
        };
    }
    let has_begun = ledger.calls().any(Call::was_started);
    match toolset.tool(CLEANUP_TOOL).filter(|_| has_begun) {
        None => Due::Nothing,
        Some(tool) => Due::Call(Entry::Step {
            step: CLEANUP_STEP,
            round: 1,
            call: Proposed {
                id: ActionId::new(),
                sequence: attempt::proposed(journal) + 1,
                target: Target::Tool(Arc::clone(tool)),
                call: FunctionCall {
                    id: None,
                    name: CLEANUP_TOOL.to_owned(),
                    args: canonical::to_raw(&json!({"group": execution.session})),
                },
            },
        }),
    }
}

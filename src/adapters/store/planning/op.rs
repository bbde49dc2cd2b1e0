//! The ops about planning sessions.

use std::collections::BTreeSet;

use crate::domain::ids::PlanningSessionId;
use crate::ports::planning::{PlanEdit, SessionCancel};

/// One op about sessions. As with every op, repeating it does no harm and returns the same answer.
#[derive(Debug)]
pub(in super::super) enum PlanningOp {
    Edit(Box<PlanEdit>),
    Cancel(SessionCancel),
    /// Ends or moves on those of these sessions that are due at this time, or have waited for a confirmation since the
    /// other.
    Sweep(Vec<PlanningSessionId>, i64, i64),
}

impl PlanningOp {
    /// The sessions whose runs it changes.
    pub(in super::super) fn sessions_of_runs(&self) -> &[PlanningSessionId] {
        match self {
            Self::Edit(_) => &[],
            Self::Cancel(cancel) => std::slice::from_ref(&cancel.session),
            Self::Sweep(sessions, ..) => sessions,
        }
    }

    /// The sessions whose rows must be locked while the op executes.
    pub(in super::super) fn locks(&self, into: &mut BTreeSet<PlanningSessionId>) {
        match self {
            Self::Edit(edit) => into.extend([edit.session]),
            Self::Cancel(cancel) => into.extend([cancel.session]),
            Self::Sweep(sessions, ..) => into.extend(sessions),
        }
    }
}

//! Where an action is shown.

use super::super::room::{ALONE, IN_LIST, Room};
use crate::domain::ids::PlanningSessionId;

/// Where a card is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On a page of its own.
    Own,
    /// On the page of this planning session.
    Session(PlanningSessionId),
}

impl Place {
    /// How much of a call there is room for.
    pub(super) fn room(self) -> Room {
        match self {
            Self::Session(_) => IN_LIST,
            Self::Own => ALONE,
        }
    }

    /// What a form says about where to return.
    pub(super) fn back(self) -> String {
        match self {
            Self::Own => "list".to_owned(),
            Self::Session(session) => session.to_string(),
        }
    }
}

//! The use cases: gavel's library API. The HTTP layer extracts the input, calls one of these, and answers.
//!
//! [`runs`] is the life of a run, for every surface. [`agents`] and [`threads`] begin runs, and [`approvals`] wakes
//! them; they know [`runs`] and [`definitions`], and not each other. [`chat`] keeps nothing, so it uses neither.

pub mod agents;
pub mod approvals;
pub mod caller;
pub mod chat;
pub mod decisions;
pub mod definitions;
pub mod exports;
pub mod planning;
pub mod problem;
pub mod request;
pub mod runs;
pub mod sessions;
pub mod stats;
pub mod threads;

use crate::domain::definition::Approval;
use crate::domain::policy::{PLANNING, THREAD};

/// The least approval that the surface of this name demands.
pub fn floor(surface: &str) -> Approval {
    match surface {
        THREAD => threads::FLOOR,
        PLANNING => planning::FLOOR,
        _ => Approval::Never,
    }
}

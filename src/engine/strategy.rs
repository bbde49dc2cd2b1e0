//! What decides what comes next in a run.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::{iterations, own};
use super::limits::Limits;
use super::next::{self, Next};
use super::opening::{self, Opening};
use super::{derive, flow};
use crate::domain::decision::Usage;
use crate::domain::definition::Flow;
use crate::domain::journal::Entry;

/// What decides what comes next in a run.
#[derive(Clone, Debug)]
pub enum Strategy {
    /// The turns of a model.
    Turns,
    /// What code reads, and then the turns of a model.
    Opened(Arc<Opening>),
    /// The steps of a flow, each an agent's run of its own.
    Steps(Flow),
}

impl Strategy {
    /// Decides from the journal, the limits and the time used so far.
    #[must_use]
    pub fn next<'a>(&self, journal: &'a [Entry], limits: &Limits, elapsed: Duration) -> Next<'a> {
        match self {
            Self::Turns => next::next(journal, limits, elapsed),
            Self::Opened(opening) => opening::next(journal, opening, limits, elapsed),
            Self::Steps(flow) => flow::next(journal, flow, limits, elapsed),
        }
    }

    /// The flow whose steps these are.
    #[must_use]
    pub fn flow(&self) -> Option<&Flow> {
        match self {
            Self::Turns | Self::Opened(_) => None,
            Self::Steps(flow) => Some(flow),
        }
    }

    /// The model calls and tokens of a run, over all its attempts: its own, or those of its steps.
    #[must_use]
    pub fn total(&self, journal: &[Entry]) -> (u32, Usage) {
        let own = own(journal);
        match self {
            Self::Turns | Self::Opened(_) => (iterations(own), derive::usage(own)),
            Self::Steps(_) => flow::total(journal),
        }
    }
}

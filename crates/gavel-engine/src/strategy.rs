//! What decides what comes next in a run.

pub mod plan;
pub mod react;

use crate::journal::Journal;
use std::sync::Arc;
use std::time::Duration;

use self::plan::{Execution, TaskWork};
use super::limits::Limits;
use super::next::{self, Next};
use super::opening::{self, Opening};
use super::record::iterations;
use super::{derive, flow};
use crate::domain::decision::Usage;
use crate::domain::definition::Flow;
use crate::domain::ids::PlanningSessionId;
use crate::ports::commit::Worked;

/// What decides what comes next in a run.
#[derive(Clone, Debug)]
pub enum Strategy {
    /// The turns of a model.
    Turns,
    /// What code reads, and then the turns of a model.
    Opened(Arc<Opening>),
    /// The steps of a flow, each an agent's run of its own.
    Steps(Flow),
    /// The tasks of a confirmed plan, each a run of its own.
    Plan(Arc<Execution>),
    /// The phases of the work on one task.
    React(Arc<TaskWork>),
}

impl Strategy {
    /// Decides from the journal, the limits and the time used so far.
    pub fn next<'a>(&self, journal: &'a Journal, limits: &Limits, elapsed: Duration) -> Next<'a> {
        match self {
            Self::Turns => next::next(journal, limits, elapsed),
            Self::Opened(opening) => opening::next(journal, opening, limits, elapsed),
            Self::Steps(flow) => flow::next(journal, flow, limits, elapsed),
            Self::Plan(execution) => plan::next(journal, execution, limits, elapsed),
            Self::React(work) => react::next(journal, work, limits, elapsed),
        }
    }

    /// Are its calls steps, whose model calls and tokens count as its own?
    pub const fn has_steps(&self) -> bool {
        match self {
            Self::Steps(_) | Self::Plan(_) => true,
            Self::Turns | Self::Opened(_) | Self::React(_) => false,
        }
    }

    /// The model calls and tokens of a run, over all its attempts: its own, or those of its steps.
    pub fn total(&self, journal: &Journal) -> (u32, Usage) {
        match self.has_steps() {
            false => (iterations(journal), derive::usage(journal)),
            true => flow::total(journal),
        }
    }

    /// What the entries from `written` on change in the planning session that the run works for.
    pub fn worked(&self, journal: &Journal, written: usize) -> Option<(PlanningSessionId, Worked)> {
        match self {
            Self::Turns | Self::Opened(_) | Self::Steps(_) => None,
            Self::Plan(execution) => Some((execution.session, plan::worked(journal, written, execution)?)),
            Self::React(work) => Some((work.session, react::worked(journal, written, work)?)),
        }
    }
}

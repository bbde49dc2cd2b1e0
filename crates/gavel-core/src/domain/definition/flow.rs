//! The flow of an agent: `flow_type`, `steps`, `max_iterations`.

mod read;

use std::collections::BTreeMap;
use std::time::Duration;

pub(super) use self::read::{flow, only_for_models};

/// The flow of an agent's work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// The agent works on the task once.
    #[default]
    Single,
    /// The steps run one after another.
    Sequential {
        /// Distinct names. If empty, the agent itself is the only step, so it works on the task once.
        steps: Vec<Step>,
    },
    /// The steps run repeatedly, until one of their agents ends the loop.
    Loop {
        /// The steps of the loop; if empty, the agent itself.
        steps: Vec<Step>,
        /// The most iterations; at least 1.
        max_iterations: u32,
    },
}

/// A step of a flow: another agent and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The name by which later steps refer to its output. Differs from the names of other steps and of inputs.
    pub name: String,
    /// The agent.
    pub agent: String,
    /// Templates by argument of that agent: `${name}` is an input of the flow or the output of a step. An argument
    /// without a template takes the step's output or the input of the same name.
    pub input: BTreeMap<String, String>,
    /// Its time limit, which replaces its agent's own; whole seconds.
    pub timeout: Option<Duration>,
}

impl Flow {
    /// The most iterations of a loop that sets no limit.
    pub const DEFAULT_ITERATIONS: u32 = 3;

    /// The steps; empty if the agent itself does the work.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        match self {
            Self::Single => &[],
            Self::Sequential { steps } | Self::Loop { steps, .. } => steps,
        }
    }

    /// The name in a definition.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Sequential { .. } => "sequential",
            Self::Loop { .. } => "loop",
        }
    }

    /// The steps whose output step `n` can use: the earlier ones; in a loop all, with their outputs of the previous
    /// round.
    pub(super) fn known_to(&self, n: usize) -> &[Step] {
        match self {
            Self::Single => &[],
            Self::Sequential { steps } => &steps[..n],
            Self::Loop { steps, .. } => steps,
        }
    }
}

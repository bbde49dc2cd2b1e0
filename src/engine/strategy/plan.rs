//! The work on a confirmed plan: a flow whose next step comes from the plan (REQUIREMENTS P-302, P-304, P-306).
//!
//! Every step is a run of its own, which works on one task ([`react`](super::react)). The plan as it stands is read from
//! the journal: the confirmed plan, and the outcome of every step, which holds the plan as that task left it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::domain::ids::{ActionId, PlanningSessionId};
use crate::domain::plan::{Plan, TaskId, TaskReason, TaskStatus};

/// What a run that works through a plan is given. Stored with its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// The session.
    pub session: PlanningSessionId,
    /// The goal, in the user's own text.
    pub goal: String,
    /// The address of the repository.
    pub repo_url: String,
    /// The confirmed plan.
    pub plan: Plan,
    /// The tools that a task may name.
    pub tools: Vec<String>,
    /// How its tasks are worked on.
    pub rules: TaskRules,
}

/// How tasks are worked on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRules {
    /// The most steps of a task.
    pub steps_per_task: u32,
    /// The most steps of a session.
    pub steps: u32,
    /// The most tokens of a session. `None`: unlimited.
    pub tokens: Option<u64>,
    /// The most tokens of a request to the model, by its bytes; longer histories are shortened.
    pub context_tokens: u64,
    /// How long an unavailable model is waited for, in seconds.
    pub model_patience: u64,
    /// The templates of the three phases.
    pub templates: PhaseTemplates,
}

/// The templates of the three phases of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTemplates {
    /// Asks what to do next, and why.
    pub reason: String,
    /// Asks for one call.
    pub act: String,
    /// Asks what the result showed.
    pub reflect: String,
}

/// What a run that works on one task is given. Stored with its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskWork {
    /// The session.
    pub session: PlanningSessionId,
    /// The task.
    pub task: TaskId,
    /// The plan as it stood when the task began; the task is in progress.
    pub plan: Plan,
    /// The tools that a task may name.
    pub tools: Vec<String>,
    /// How tasks are worked on; `steps` and `tokens` are what the session has left.
    pub rules: TaskRules,
    /// How many changes of the plan the session has left.
    pub changes: u32,
}

/// What a task has come to: the output of its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOutcome {
    /// Completed or failed.
    pub status: TaskStatus,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<TaskReason>,
    /// Details of that.
    #[serde(default)]
    pub detail: String,
    /// What its last reflection says.
    #[serde(default)]
    pub summary: String,
    /// What later tasks should know.
    #[serde(default)]
    pub learnings: Vec<String>,
    /// Its steps.
    pub steps: u32,
    /// The plan as the task left it, with the task itself.
    pub plan: Plan,
    /// The changes of the plan.
    #[serde(default)]
    pub changes: u32,
    /// Its calls that are in doubt.
    #[serde(default)]
    pub in_doubt: BTreeSet<ActionId>,
}

/// What a confirmed plan allows without asking a person again (PLANNING.md section 6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The tools of the confirmed plan, by the names that the grant uses.
    pub tools: BTreeSet<String>,
    /// What branches that are written begin with.
    pub branch_prefix: String,
    /// Tools whose every call asks a person, as the confirmation says.
    #[serde(default)]
    pub ask_for: BTreeSet<String>,
}


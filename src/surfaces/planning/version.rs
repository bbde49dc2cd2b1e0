//! A version of a plan as callers see it.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::ids::RunId;
use crate::domain::plan::{Change, Task};
use crate::domain::time::rfc3339;
use crate::ports::planning::{PlanVersion, VersionKind};

/// One version of a plan.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanVersion)]
pub struct Version {
    /// 1, 2, 3 …
    pub version: u32,
    /// When it was written, RFC 3339.
    #[schema(format = "date-time")]
    pub at: String,
    /// Who asked for it.
    pub by: String,
    /// How it came about.
    pub kind: VersionKind,
    /// The person's own text: the goal, or what to change.
    pub why: String,
    /// How it differs from the version before.
    #[schema(value_type = Vec<TaskChange>)]
    pub changes: Vec<Change>,
    /// Hex SHA-256 of the plan.
    pub plan_hash: String,
    /// The run that made it; `null` if a person edited it.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub run_id: Option<RunId>,
    /// The tasks of this version.
    pub plan: Vec<Task>,
}

/// How two versions of a plan differ in a task.
#[derive(ToSchema)]
#[schema(as = PlanChange)]
#[expect(dead_code, reason = "describes `Change`, whose variants have the same fields")]
pub(super) struct TaskChange {
    /// What happened to the task.
    op: Operation,
    /// The task's id.
    #[schema(example = "t1")]
    task: String,
    /// Its title; that before, if it was removed.
    title: String,
}

/// What happened to a task.
#[derive(ToSchema)]
#[schema(as = PlanOperation, rename_all = "snake_case")]
#[expect(dead_code, reason = "describes `Change`")]
pub(super) enum Operation {
    Add,
    Modify,
    Obsolete,
    Remove,
}

impl From<PlanVersion> for Version {
    fn from(stored: PlanVersion) -> Self {
        Self {
            version: stored.version,
            at: rfc3339(stored.at_us),
            by: stored.by.to_string(),
            kind: stored.kind,
            why: stored.why.to_string(),
            changes: stored.changes,
            plan_hash: stored.hash.to_string(),
            run_id: stored.run,
            plan: stored.plan.tasks,
        }
    }
}

//! The events of a planning session, as its readers see them.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{ActionError, Session, StepEvidence, Version, VersionKind, WaitingKind};
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::Phase;
use crate::domain::names::names;
use crate::domain::plan::{Change, Task, TaskChange, TaskId, TaskReason, TaskStatus};
use crate::domain::planning_session::SessionStatus;
use crate::names::{self, described_here, sent};

described_here!(ResumedBecause);

sent! {
    /// A call that a person must decide about.
    #[serde(rename_all = "camelCase")]
    WaitingCall as "PlanningWaitingCall" {
        /// `approval`: a person must approve or reject the call. `in_doubt`: a person must settle whether it had its effect.
        kind: WaitingKind,
        /// Its task.
        task_id: Option<TaskId>,
        /// The call.
        action_id: ActionId,
        /// The tool.
        tool: Arc<str>,
        /// Exactly its arguments.
        #[shape(Shape::Object)]
        arguments: Arc<RawValue>,
        /// Why a person is asked.
        reason: String,
    }
}

names! {
    /// Why the work of a session continues.
    ResumedBecause {
        /// A person approved the call.
        Approved = "approved",
        /// A person rejected it.
        Rejected = "rejected",
        /// No person answered in time.
        Expired = "expired",
        /// A person said that the call had its effect.
        Happened = "happened",
        /// A person said that it did not.
        DidNotHappen = "did_not_happen",
        /// Another process took the work over.
        Recovered = "recovered",
    }
}
/// What happened in a planning session: a JSON object with a `type`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = PlanningEvent)]
pub enum SessionEvent {
    /// The session has another status. That of its end is in `result`.
    #[serde(rename_all = "camelCase")]
    #[schema(rename_all = "camelCase")]
    Status {
        /// The status.
        #[schema(value_type = names::SessionStatus)]
        status: SessionStatus,
        /// The run that begins with it, or has ended.
        #[schema(value_type = String, format = "uuid")]
        run_id: RunId,
        /// The number of the current version of the plan; 0 while there is none.
        plan_version: u32,
        /// Why a refinement made no new version.
        #[schema(required = true)]
        detail: Option<String>,
    },
    /// There is a version of the plan: the model made it, or a person edited it.
    Plan {
        /// 1, 2, 3 …
        version: u32,
        /// Who asked for it.
        by: String,
        /// How it came about.
        kind: VersionKind,
        /// The person's own text, or the reasons of the reflection.
        why: String,
        /// How it differs from the version before: `op` (`add`, `modify`, `obsolete`, `remove`), `task` and `title`.
        #[schema(value_type = Vec<names::Change>)]
        changes: Vec<Change>,
        /// The tasks of this version.
        #[schema(value_type = Vec<names::Task>)]
        plan: Vec<Task>,
    },
    /// The work on a task begins.
    #[serde(rename_all = "camelCase")]
    #[schema(rename_all = "camelCase")]
    TaskStarted {
        /// The task.
        #[schema(value_type = String, example = "t1")]
        task_id: TaskId,
        /// The task in a line.
        title: String,
        /// Its run.
        #[schema(value_type = String, format = "uuid")]
        run_id: RunId,
        /// The most steps that it may have.
        max_steps: u32,
    },
    /// A phase of a step begins; or its text is complete, which only the phase `reason` has.
    #[serde(rename_all = "camelCase")]
    #[schema(rename_all = "camelCase")]
    Phase {
        /// The task.
        #[schema(value_type = String, example = "t1")]
        task_id: TaskId,
        /// The step: 1, 2, 3 …
        step: u32,
        /// `reason`, `act` or `reflect`.
        #[schema(value_type = String, example = "reason")]
        phase: Phase,
        /// Is the model asked again, since its first answer was unusable?
        again: bool,
        /// What the model means to do, and why; null at the beginning of the phase.
        #[schema(required = true)]
        text: Option<String>,
    },
    /// More text of the model, as it arrives. Never stored: `phase` has the whole text.
    #[serde(rename_all = "camelCase")]
    #[schema(rename_all = "camelCase")]
    Delta {
        /// The task; null while the plan is made.
        #[schema(value_type = Option<String>, example = "t1", required = true)]
        task_id: Option<TaskId>,
        /// The text.
        #[schema(value_type = String)]
        text: Arc<str>,
    },
    /// The text that arrived since the last phase began is void: the model is asked again.
    #[serde(rename_all = "camelCase")]
    #[schema(rename_all = "camelCase")]
    Reset {
        /// The task; null while the plan is made.
        #[schema(value_type = Option<String>, example = "t1", required = true)]
        task_id: Option<TaskId>,
        /// Why the model gave no usable answer, if that is the reason: `unavailable`, `quota`, `timeout` …
        #[schema(required = true)]
        fault: Option<Cow<'static, str>>,
    },
    /// A tool is about to be called.
    #[serde(rename_all = "camelCase")]
    #[schema(rename_all = "camelCase")]
    ToolCall {
        /// The task; null if the call belongs to none.
        #[schema(value_type = Option<String>, example = "t1", required = true)]
        task_id: Option<TaskId>,
        /// The step of the task.
        #[schema(required = true)]
        step: Option<u32>,
        /// The call.
        #[schema(value_type = String, format = "uuid")]
        action_id: ActionId,
        /// The tool.
        #[schema(value_type = String)]
        tool: Arc<str>,
        /// The arguments that are sent.
        #[schema(value_type = Object)]
        arguments: Arc<RawValue>,
    },
    /// A call has its result.
    #[serde(rename_all = "camelCase")]
    #[schema(rename_all = "camelCase")]
    ToolResult {
        /// The task; null if the call belongs to none.
        #[schema(value_type = Option<String>, example = "t1", required = true)]
        task_id: Option<TaskId>,
        /// The step of the task.
        #[schema(required = true)]
        step: Option<u32>,
        /// The call.
        #[schema(value_type = String, format = "uuid")]
        action_id: ActionId,
        /// The tool.
        #[schema(value_type = String)]
        tool: Arc<str>,
        /// Did the call succeed?
        success: bool,
        /// The result; null if the call failed.
        #[schema(value_type = Option<Object>, required = true)]
        data: Option<Arc<RawValue>>,
        /// Why the call failed; `in_doubt` if it is unknown whether it had its effect. Null if it succeeded.
        #[schema(required = true)]
        error: Option<ActionError>,
        /// Time from sending the call to its answer.
        duration_ms: u64,
    },
    /// What the model concluded from a step.
    #[serde(rename_all = "camelCase")]
    #[schema(rename_all = "camelCase")]
    Reflection {
        /// The task.
        #[schema(value_type = String, example = "t1")]
        task_id: TaskId,
        /// The step.
        step: u32,
        /// Was the reflection accepted? One that calls a task complete needs evidence.
        accepted: bool,
        /// Why it was not accepted, which the model learns.
        #[schema(required = true)]
        error: Option<String>,
        /// Does it call the task complete?
        is_task_complete: bool,
        /// What the step showed.
        summary: String,
        /// What shows that the task is complete.
        evidence: Vec<StepEvidence>,
        /// What later steps and tasks should know.
        learnings: Vec<String>,
        /// The changes of the plan that it asks for.
        #[schema(value_type = Vec<Object>)]
        plan_changes: Vec<TaskChange>,
        /// Why the task cannot be done.
        #[schema(required = true)]
        give_up: Option<String>,
    },
    /// A reflection changed the plan: the new version.
    PlanChanged {
        /// 1, 2, 3 …
        version: u32,
        /// Who asked for it.
        by: String,
        /// How it came about.
        kind: VersionKind,
        /// The person's own text, or the reasons of the reflection.
        why: String,
        /// How it differs from the version before: `op` (`add`, `modify`, `obsolete`, `remove`), `task` and `title`.
        #[schema(value_type = Vec<names::Change>)]
        changes: Vec<Change>,
        /// The tasks of this version.
        #[schema(value_type = Vec<names::Task>)]
        plan: Vec<Task>,
    },
    /// The work waits for a person.
    #[serde(rename_all = "camelCase")]
    #[schema(rename_all = "camelCase")]
    Waiting {
        /// What it waits for.
        waiting_for: Vec<WaitingCall>,
    },
    /// A call that was waited for is answered, or another process continues the work.
    #[serde(rename_all = "camelCase")]
    #[schema(rename_all = "camelCase")]
    Resumed {
        /// Why the work continues.
        why: ResumedBecause,
        /// The call; null if another process continues the work.
        #[schema(value_type = Option<String>, format = "uuid", required = true)]
        action_id: Option<ActionId>,
        /// Its task.
        #[schema(value_type = Option<String>, example = "t1", required = true)]
        task_id: Option<TaskId>,
        /// Its tool.
        #[schema(value_type = Option<String>, required = true)]
        tool: Option<Arc<str>>,
        /// The person's reason for a rejection.
        #[schema(required = true)]
        detail: Option<String>,
    },
    /// The work on a task has ended.
    #[serde(rename_all = "camelCase")]
    #[schema(rename_all = "camelCase")]
    TaskEnded {
        /// The task.
        #[schema(value_type = String, example = "t1")]
        task_id: TaskId,
        /// `COMPLETED` or `FAILED`.
        #[schema(value_type = names::TaskStatus)]
        status: TaskStatus,
        /// Why it failed.
        #[schema(value_type = Option<names::TaskReason>, required = true)]
        reason: Option<TaskReason>,
        /// Details of that.
        detail: String,
        /// What its last reflection says.
        summary: String,
        /// Its steps.
        steps: u32,
    },
    /// What the cleanup at the end removed, and what it left.
    Cleanup {
        /// The containers that were removed.
        removed: Vec<String>,
        /// Those that are left, or why that is not known. Their server removes them later.
        left: Vec<String>,
    },
    /// The session has ended. The last event.
    Result {
        /// The session.
        session: Box<Session>,
    },
}

impl SessionEvent {
    /// A version that the model made as a whole, or a person; or, `changed`, that a reflection made.
    #[must_use]
    pub fn of_version(made: Version, changed: bool) -> Self {
        let Version {
            version,
            by,
            kind,
            why,
            changes,
            plan,
            ..
        } = made;
        match changed {
            false => Self::Plan {
                version,
                by,
                kind,
                why,
                changes,
                plan,
            },
            true => Self::PlanChanged {
                version,
                by,
                kind,
                why,
                changes,
                plan,
            },
        }
    }
}

//! Planning sessions: their plans, their work, and their events.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::events::{CallError, Event};
use super::filter::{Filter, Kind, Listed};
use super::names::{self, names, sent};
use super::page;
use crate::domain::action::ActionStatus;
use crate::domain::ids::{ActionId, ApprovalId, PlanningSessionId, RunId};
use crate::domain::plan::{Change, Task, TaskChange, TaskId, TaskReason, TaskStatus};
use crate::domain::planning_session::{CLEANUP_TOOL, SessionReason, SessionStatus};
use crate::domain::reflection::Evidence;
use crate::domain::time::Timestamp;
use crate::domain::tool::FailureCode;

page! {
    /// A page of planning sessions.
    #[serde(rename_all = "camelCase")]
    PlanningSessionPage { sessions: Session }
}

impl Listed for PlanningSessionPage {
    const FILTERS: &'static [Filter] = &[
        Filter("status", Kind::Names(SessionStatus::WORDS)),
        Filter("user_id", Kind::Text),
        Filter("repo_url", Kind::Text),
        Filter("created_at", Kind::Time),
        Filter("deadline", Kind::Time),
    ];
    const EXAMPLE: &'static str = "status = \"AWAITING_CONFIRMATION\"";
}

page! {
    /// A page of the versions of a plan.
    #[serde(rename_all = "camelCase")]
    PlanVersionPage { versions: Version }
}

page! {
    /// A page of the log of a planning session.
    #[serde(rename_all = "camelCase")]
    PlanningLogPage { actions: LoggedAction }
}

/// `POST /v1/sessions`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct StartBody {
    /// The goal; at most 32 KiB.
    pub prompt: String,
    /// The repository: `https://github.com/OWNER/REPO`, on the host that the setting `github.url` names.
    pub repo_url: String,
    /// The end of the session, RFC 3339 with an offset; at least 10 s ahead. After it nothing begins.
    #[schema(format = "date-time")]
    pub deadline: String,
    /// The IANA name of the user's time zone. Absent: the planner learns that it is unknown.
    #[schema(example = "Europe/Berlin")]
    pub time_zone: Option<String>,
}

/// `POST /v1/sessions/{id}/refine`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RefineBody {
    /// What to change in the plan; at most 32 KiB.
    pub refinement_prompt: String,
}

/// `POST /v1/sessions/{id}/cancel`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = CancelPlanningBody)]
pub struct CancelBody {
    /// Why; at most 4 KiB.
    pub reason: Option<String>,
}

/// `POST /v1/sessions/{id}/execute`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = ExecutePlanBody)]
pub struct ExecuteBody {
    /// The version that you confirm; absent: the current one. If another version is current, nothing is begun.
    pub plan_version: Option<u32>,
    /// Tools whose every call asks a person, whatever the plan allows.
    #[serde(default)]
    #[schema(required = false)]
    pub ask_for: Vec<String>,
    /// Begin nothing; show for each tool what would happen.
    #[serde(default)]
    #[schema(required = false)]
    pub dry_run: bool,
}

sent! {
    /// A planning session.
    #[serde(rename_all = "camelCase")]
    Session as "PlanningSession" {
        /// Its id.
        session_id: PlanningSessionId,
        /// Its user, for pages: it is not sent.
        #[serde(skip)]
        user: String,
        /// Its status.
        status: SessionStatus,
        /// Why it ended without reaching its goal.
        status_reason: Option<Reason>,
        /// The goal, in the user's own text.
        prompt: String,
        /// The address of the repository.
        repo_url: String,
        /// The deadline, RFC 3339.
        deadline: Timestamp,
        /// Until when its plan can be confirmed, RFC 3339: the session ends then. `null` unless it waits for that.
        confirm_by: Option<Timestamp>,
        /// The time until the deadline, in milliseconds; 0 once it has passed or the session has ended.
        time_left_ms: u64,
        /// The number of the current version of its plan; 0 while there is none.
        plan_version: u32,
        /// The tasks of the current version, in order.
        plan: Vec<Task>,
        /// The same as the JSON text that is stored; only with `view=raw`.
        #[serde(skip_serializing_if = "Option::is_none")]
        raw_plan: Option<String>,
        /// The plan in a few sentences.
        summary: String,
        /// What the plan assumes.
        assumptions: Vec<String>,
        /// What may go wrong.
        risks: Vec<String>,
        /// Why the last refinement made no new version.
        #[serde(skip_serializing_if = "Option::is_none")]
        refinement: Option<Refinement>,
        /// What code read of the repository before the plan was made; `null` while there is no plan.
        read: Option<RepositoryRead>,
        /// What the planner asked the open world: each call with all that it carried out. `null` unless the plan waits for
        /// its confirmation; the log has them always.
        lookups: Option<Vec<LoggedAction>>,
        /// What the confirmation of the plan allows, or would allow now; `null` while a plan is being made, after the end,
        /// and in a list.
        scope: Option<SessionScope>,
        /// The task at work.
        current_task_id: Option<TaskId>,
        /// What the session waits for; `null` in a list.
        waiting_for: Option<Vec<WaitingFor>>,
        /// The pull requests that it opened; `null` in a list.
        pull_requests: Option<Vec<PullRequest>>,
        /// The run that works for it, or worked last: it plans, and from the confirmation on works through the plan.
        run_id: RunId,
        /// The model calls and tokens of all its runs.
        usage: SessionUsage,
        /// When it was created, RFC 3339.
        created_at: Timestamp,
        /// When it was last changed.
        updated_at: Timestamp,
        /// When its plan was confirmed.
        started_at: Option<Timestamp>,
        /// When it ended.
        completed_at: Option<Timestamp>,
        /// Its result; `null` until it has ended and its containers are removed, and in a list.
        result: Option<SessionResult>,
    }
}

impl Session {
    /// With the plan as the JSON text that is stored.
    #[must_use]
    pub fn raw(mut self) -> Self {
        let text = serde_json::to_string(&self.plan);
        self.raw_plan = Some(text.unwrap_or_else(|error| unreachable!("tasks print as JSON: {error}")));
        self
    }
}

sent! {
    /// What the confirmation of a plan allows.
    #[serde(rename_all = "camelCase")]
    #[derive(PartialEq, Eq)]
    SessionScope as "PlanningScope" {
        /// The repository in which the work may act.
        #[shape(Shape::Text(None, Some("acme/dates")))]
        repository: String,
        /// The branches that it may write; `*` is any text.
        #[shape(Shape::Text(None, Some("gavel/*")))]
        branches: String,
        /// The tools of the plan: those that it may use.
        tools: Vec<String>,
        /// Those of them that have side effects and are not bound to the repository. Each of their calls asks a person.
        not_bound: Vec<String>,
        /// Those that ask a person before each call all the same, and those of `askFor`.
        ask_first: Vec<String>,
        /// Those whose arguments decide whether a call asks a person.
        may_ask: Vec<String>,
        /// The confirmation; `null` before it.
        confirmed: Option<Confirmation>,
    }
}

sent! {
    /// The confirmation of a plan.
    #[derive(PartialEq, Eq)]
    Confirmation as "PlanConfirmation" {
        /// The name of the person or the service that confirmed it.
        by: String,
        /// The version that was confirmed. Later ones are changes during the work, which allow nothing more.
        version: u32,
    }
}

sent! {
    /// The result of a session.
    #[serde(rename_all = "camelCase")]
    SessionResult as "PlanningResult" {
        /// Its final status.
        status: SessionStatus,
        /// Its first actions, at most 1000.
        log: Vec<LoggedAction>,
        /// Does `GET /v1/sessions/{id}/log` have more?
        log_truncated: bool,
        /// What the cleanup did with its containers.
        cleanup: Cleanup,
    }
}

names! {
    /// What a session waits for.
    WaitingKind {
        /// A person has to resolve an approval request.
        Approval = "approval",
        /// The outcome of an action is unknown; a person has to settle it.
        InDoubt = "in_doubt",
    }
}

sent! {
    /// Something that a session waits for.
    #[serde(rename_all = "camelCase")]
    #[derive(PartialEq, Eq)]
    WaitingFor as "PlanningWait" {
        /// What is missing.
        kind: WaitingKind,
        /// The task; `null` for a call of the planner.
        task_id: Option<TaskId>,
        /// The tool.
        tool: String,
        /// The approval request; only of the kind `approval`.
        #[serde(skip_serializing_if = "Option::is_none")]
        approval_id: Option<ApprovalId>,
        /// The action.
        action_id: ActionId,
    }
}

sent! {
    /// Why a session ended without reaching its goal.
    #[derive(PartialEq, Eq)]
    Reason as "PlanningReason" {
        /// The reason.
        code: SessionReason,
        /// Details.
        detail: String,
    }
}

sent! {
    /// A refinement that made no new version. The version before it remains in force.
    #[derive(PartialEq, Eq)]
    Refinement as "PlanRefinement" {
        /// Always `failed`.
        outcome: String,
        /// The reason.
        code: SessionReason,
        /// Details.
        detail: String,
    }
}

sent! {
    /// Model calls and their tokens, summed over all runs of a session.
    #[serde(rename_all = "camelCase")]
    #[derive(Copy, PartialEq, Eq, Default)]
    SessionUsage as "PlanningSessionUsage" {
        /// Model calls.
        model_calls: u64,
        /// Prompt tokens, including cached ones.
        input_tokens: u64,
        /// Tokens of the answers, without thoughts.
        output_tokens: u64,
        /// Thinking tokens.
        thought_tokens: u64,
        /// The part of `inputTokens` that came from a cache.
        cached_tokens: u64,
    }
}

sent! {
    /// One version of a plan.
    #[serde(rename_all = "camelCase")]
    #[derive(PartialEq, Eq)]
    Version as "PlanVersion" {
        /// 1, 2, 3 …
        version: u32,
        /// When it was written, RFC 3339.
        at: Timestamp,
        /// Who asked for it.
        by: String,
        /// How it came about.
        kind: VersionKind,
        /// The person's own text: the goal, or what to change.
        why: String,
        /// How it differs from the version before.
        changes: Vec<Change>,
        /// Hex SHA-256 of the plan.
        plan_hash: String,
        /// The run that made it, or after which a person edited it.
        run_id: RunId,
        /// The tasks of this version.
        plan: Vec<Task>,
    }
}

sent! {
    /// One action of a session.
    #[serde(rename_all = "camelCase")]
    LoggedAction as "PlanningAction" {
        /// 1, 2, 3 … in the session.
        n: u32,
        /// When it started, or was proposed if it never started; RFC 3339.
        at: Timestamp,
        /// Its task; `null` for calls of the planner, and for the cleanup at the end.
        task_id: Option<TaskId>,
        /// The action.
        action_id: ActionId,
        /// The tool.
        tool: String,
        /// Its arguments: as sent, or as the model wrote them if it was not sent.
        #[shape(Shape::Object)]
        arguments: Arc<RawValue>,
        /// Its status.
        status: ActionStatus,
        /// Why it failed.
        error: Option<ActionError>,
        /// From its start to its result, in milliseconds.
        duration_ms: Option<u64>,
        /// What allowed or denied it, or required an approval; `null` if nothing was required.
        decided_by: Option<String>,
    }
}

impl LoggedAction {
    /// The task, or what it is without one.
    pub fn part(&self) -> String {
        match self.task_id {
            Some(task) => task.to_string(),
            None if self.tool == CLEANUP_TOOL => "cleanup".to_owned(),
            None => "plan".to_owned(),
        }
    }
}

sent! {
    /// Why an action failed.
    #[serde(rename_all = "camelCase")]
    #[derive(PartialEq, Eq)]
    ActionError as "PlanningActionError" {
        /// A code from a closed list; docs/reference/outcomes.md explains it.
        code: FailureCode,
        /// The tool's own code, if it gave one. It is the server's word, in at most 64 bytes.
        #[shape(Shape::Optional(Box::new(Shape::Text(None, Some("already_exists")))))]
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_code: Option<String>,
        /// What the tool says besides: short words, numbers and truth values.
        #[shape(Shape::Object)]
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        details: BTreeMap<String, Value>,
        /// Text for people.
        message: String,
    }
}

impl From<CallError> for ActionError {
    fn from(error: CallError) -> Self {
        let CallError {
            code,
            tool_code,
            details,
            message,
        } = error;
        Self {
            code,
            tool_code,
            details,
            message,
        }
    }
}

sent! {
    /// A pull request that a session opened.
    #[derive(PartialEq, Eq)]
    PullRequest as "PlanningPullRequest" {
        /// Its number.
        number: u64,
        /// Its address.
        url: String,
    }
}

/// A task with its history.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanTaskDetail)]
pub struct TaskDetail {
    /// The task.
    #[serde(flatten)]
    #[schema(value_type = names::Task)]
    pub task: Task,
    /// Its steps, in order.
    pub react_history: Vec<Step>,
    /// The same as JSON text; only with `view=raw`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_react_history: Option<String>,
}

impl TaskDetail {
    /// With its history as JSON text.
    #[must_use]
    pub fn raw(mut self) -> Self {
        let text = serde_json::to_string(&self.react_history);
        self.raw_react_history = Some(text.unwrap_or_else(|error| unreachable!("steps print as JSON: {error}")));
        self
    }
}

sent! {
    /// One step of a task: what the model thought, did, saw and concluded.
    #[serde(rename_all = "camelCase")]
    Step as "PlanStep" {
        /// 1, 2, 3 … in the task.
        n: u32,
        /// What the model meant to do, and why.
        reason: Option<String>,
        /// What it did: one call.
        action: Option<StepDone>,
        /// The data that the tool returned, or `{"error": {"code", "toolCode"?, "details"?, "message"}}`; `null` while the call waits or runs.
        observation: Option<Arc<RawValue>>,
        /// What it concluded.
        reflection: Option<StepReflection>,
        /// The call.
        action_id: Option<ActionId>,
        /// The status of the call.
        state: Option<ActionStatus>,
        /// When the call started, RFC 3339.
        started_at: Option<Timestamp>,
        /// From its start to its result, in milliseconds.
        duration_ms: Option<u64>,
    }
}

sent! {
    /// The call of a step.
    StepDone as "PlanStepAction" {
        /// The tool.
        tool: String,
        /// Its arguments: as sent, or as the model wrote them if it was not sent.
        #[shape(Shape::Object)]
        arguments: Arc<RawValue>,
    }
}

sent! {
    /// What the model concluded from a step.
    #[serde(rename_all = "camelCase")]
    #[derive(PartialEq, Eq)]
    StepReflection as "PlanReflection" {
        /// Is the task done?
        is_task_complete: bool,
        /// What the step showed.
        summary: String,
        /// What shows that the task is done.
        evidence: Vec<StepEvidence>,
        /// What later steps and tasks should know.
        learnings: Vec<String>,
        /// Changes of the plan.
        #[shape(Shape::List(Box::new(Shape::Object)))]
        plan_changes: Vec<TaskChange>,
        /// Why the task cannot be done; it ended then.
        give_up: Option<String>,
    }
}

sent! {
    /// A place in a result that shows that the task is done.
    #[derive(PartialEq, Eq)]
    StepEvidence as "PlanEvidence" {
        /// The number of a step of this task.
        observation: u32,
        /// A text that occurs literally in the result of that step.
        quote: String,
    }
}

impl From<Evidence> for StepEvidence {
    fn from(Evidence { observation, quote }: Evidence) -> Self {
        Self { observation, quote }
    }
}

sent! {
    /// What the cleanup at the end of a session did with the containers that it had.
    #[derive(Default, PartialEq, Eq)]
    Cleanup as "PlanningCleanup" {
        /// Those that were removed.
        removed: Vec<String>,
        /// Those that are left, or why that is not known. Their server removes them later.
        left: Vec<String>,
    }
}

impl Cleanup {
    /// Nothing was removed, and it is not known what is left.
    pub fn unknown(why: &str) -> Self {
        Self {
            removed: Vec::new(),
            left: vec![format!("unknown: {why}")],
        }
    }
}

sent! {
    /// What code read of a repository before a plan was made.
    #[serde(rename_all = "camelCase")]
    #[derive(Default, PartialEq, Eq)]
    RepositoryRead as "PlanningRead" {
        /// The default branch.
        default_branch: Option<String>,
        /// The id of its latest commit; `null` for an empty repository.
        commit: Option<String>,
        /// The files that were listed.
        files: u64,
        /// Did the planner see only a part of the tree?
        tree_truncated: bool,
        /// The repository's instructions for agents, if it has some.
        agent_file: Option<FileRead>,
        /// The calls of tools that this took.
        calls: u32,
        /// Their time, in milliseconds.
        duration_ms: u64,
    }
}

sent! {
    /// A file that was read.
    #[derive(Default, PartialEq, Eq)]
    FileRead as "PlanningFileRead" {
        /// Its path.
        path: String,
        /// Its size, in bytes.
        bytes: u64,
    }
}

names! {
    /// How a version of a plan came about.
    VersionKind {
        /// The first plan of the model.
        Proposed = "proposed",
        /// The model changed it, as a person asked.
        Refined = "refined",
        /// A person edited it.
        Edited = "edited",
        /// A reflection changed it while it was worked through.
        Changed = "changed",
    }
}

sent! {
    /// What would happen if the plan were confirmed now.
    #[serde(rename_all = "camelCase")]
    #[derive(PartialEq, Eq)]
    DryRun as "PlanDryRun" {
        /// The version that was checked.
        plan_version: u32,
        /// Its tasks, in order.
        tasks: Vec<DryRunTask>,
        /// The servers of tools.
        servers: Vec<DryRunServer>,
        /// What the bundled servers act on, as far as they are on: the container engine, GitHub's credentials with their
        /// permissions and quota, the sandbox of the shell, and the web.
        conditions: Vec<DryRunCondition>,
    }
}

sent! {
    /// A task, with what would happen to its calls.
    #[serde(rename_all = "camelCase")]
    #[derive(PartialEq, Eq)]
    DryRunTask as "PlanDryRunTask" {
        /// The task.
        task_id: TaskId,
        /// Its title.
        title: String,
        /// Its tools.
        tools: Vec<DryRunTool>,
    }
}

sent! {
    /// What would happen to the calls of a tool.
    #[derive(PartialEq, Eq)]
    DryRunTool as "PlanDryRunTool" {
        /// The tool.
        tool: String,
        /// Its server; `null` if no connected server offers it.
        server: Option<String>,
        /// The answer.
        answer: DryRunAnswer,
        /// Why.
        reason: String,
    }
}

names! {
    /// What would happen to a call.
    DryRunAnswer {
        /// It would be made without asking a person.
        Allow = "allow",
        /// A person would be asked first.
        RequireApproval = "require_approval",
        /// It would be refused.
        Deny = "deny",
        /// A rule of the policy looks at the arguments of each call.
        DependsOnArguments = "depends_on_arguments",
    }
}

sent! {
    /// A server of tools.
    #[derive(PartialEq, Eq)]
    DryRunServer as "PlanDryRunServer" {
        /// Its name.
        server: String,
        /// Its state.
        state: ServerState,
        /// Why it is unavailable, such as the settings without which it is off.
        reason: Option<String>,
    }
}

sent! {
    /// Whether something that tools act on is fit for work.
    #[derive(PartialEq, Eq)]
    DryRunCondition as "PlanDryRunCondition" {
        /// What it is about.
        of: Subject,
        /// Whether it is fit.
        state: Fitness,
        /// What was seen, and what to do about an error.
        detail: String,
    }
}

names! {
    /// The state of a server.
    ServerState {
        /// Its tools can be called.
        Connected = "connected",
        /// It is being connected for the first time.
        Connecting = "connecting",
        /// It is off, or cannot be reached.
        Unavailable = "unavailable",
    }
}

names! {
    /// What tools act on.
    Subject {
        /// The engine of the docker server, and what its containers are confined by.
        ContainerEngine = "container_engine",
        /// The credentials of the github server, their permissions, and what is left of the quota.
        GitHub = "github",
        /// The sandbox of the shell server.
        Shell = "shell",
        /// The hosts and the search of the web server.
        Web = "web",
    }
}

names! {
    /// Is something fit for work?
    Fitness {
        /// It is.
        Good = "good",
        /// It is, with a danger or a lack that the operator should know.
        Warning = "warning",
        /// It is not.
        Error = "error",
    }
}

/// What happened in a planning session beside the events of its runs: a JSON object with a `type`.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = PlanningEvent)]
pub enum SessionEvent {
    /// The session has another status: a run begins with it, or has ended. That of the session's end is in `result`.
    Status {
        /// The status.
        #[schema(value_type = names::SessionStatus)]
        status: SessionStatus,
        /// The number of the current version of the plan; 0 while there is none.
        plan_version: u32,
        /// Why a refinement made no new version.
        #[schema(required = true)]
        detail: Option<String>,
    },
    /// There is a version of the plan: the model made it, a person edited it, or an accepted reflection changed it.
    Plan {
        /// The version, as the history has it.
        version: Box<Version>,
    },
    /// The work on a task begins, in this run.
    TaskStarted {
        /// The task in a line.
        title: String,
        /// The most steps that it may have.
        max_steps: u32,
    },
    /// The work on a task has ended.
    TaskEnded {
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

/// An event in the stream of a planning session: of one of its runs, or of the session itself.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum AnyEvent {
    /// Of a run.
    Run(Event),
    /// Of the session.
    Session(SessionEvent),
}

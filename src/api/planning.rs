//! Planning sessions: their plans, their work, and their events.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::filter::{Filter, Kind, Listed, names as names_of};
use super::names::{self, described_here};
use super::page;
use crate::domain::action::ActionStatus;
use crate::domain::ids::{ActionId, ApprovalId, PlanningSessionId, RunId};
use crate::domain::journal::Phase;
use crate::domain::names::names;
use crate::domain::plan::{Change, Task, TaskChange, TaskId, TaskReason, TaskStatus};
use crate::domain::planning_session::{CLEANUP_TOOL, SessionReason, SessionStatus};
use crate::domain::time::Timestamp;
use crate::domain::tool::FailureCode;

described_here!(
    WaitingKind,
    VersionKind,
    DryRunAnswer,
    ServerState,
    Subject,
    Fitness,
    ResumedBecause
);

page! {
    /// A page of planning sessions.
    #[serde(rename_all = "camelCase")]
    PlanningSessionPage { sessions: Session }
}

impl Listed for PlanningSessionPage {
    const FILTERS: &'static [Filter] = &[
        Filter("status", Kind::Names(names_of::<SessionStatus>)),
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

/// A planning session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningSession)]
pub struct Session {
    /// Its id.
    #[schema(value_type = String, format = "uuid")]
    pub session_id: PlanningSessionId,
    /// Its user, for pages: it is not sent.
    #[serde(skip)]
    pub user: String,
    /// Its status.
    #[schema(value_type = names::SessionStatus)]
    pub status: SessionStatus,
    /// Why it ended without reaching its goal.
    pub status_reason: Option<Reason>,
    /// The goal, in the user's own text.
    pub prompt: String,
    /// The address of the repository.
    pub repo_url: String,
    /// The deadline, RFC 3339.
    #[schema(value_type = String, format = "date-time")]
    pub deadline: Timestamp,
    /// Until when its plan can be confirmed, RFC 3339: the session ends then. `null` unless it waits for that.
    #[schema(value_type = Option<String>, format = "date-time", required = true)]
    pub confirm_by: Option<Timestamp>,
    /// The time until the deadline, in milliseconds; 0 once it has passed or the session has ended.
    pub time_left_ms: u64,
    /// The number of the current version of its plan; 0 while there is none.
    pub plan_version: u32,
    /// The tasks of the current version, in order.
    #[schema(value_type = Vec<names::Task>)]
    pub plan: Vec<Task>,
    /// The same as the JSON text that is stored; only with `view=raw`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_plan: Option<String>,
    /// The plan in a few sentences.
    pub summary: String,
    /// What the plan assumes.
    pub assumptions: Vec<String>,
    /// What may go wrong.
    pub risks: Vec<String>,
    /// Why the last refinement made no new version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refinement: Option<Refinement>,
    /// What code read of the repository before the plan was made; `null` while there is no plan.
    #[schema(required = true)]
    pub read: Option<RepositoryRead>,
    /// What the planner asked the open world: each call with all that it carried out. `null` unless the plan waits for
    /// its confirmation; the log has them always.
    #[schema(required = true)]
    pub lookups: Option<Vec<LoggedAction>>,
    /// What the confirmation of the plan allows, or would allow now; `null` while a plan is being made, after the end,
    /// and in a list.
    #[schema(required = true)]
    pub scope: Option<SessionScope>,
    /// The task at work.
    #[schema(value_type = Option<String>, example = "t1", required = true)]
    pub current_task_id: Option<TaskId>,
    /// What the session waits for; `null` in a list.
    #[schema(required = true)]
    pub waiting_for: Option<Vec<WaitingFor>>,
    /// The pull requests that it opened; `null` in a list.
    #[schema(required = true)]
    pub pull_requests: Option<Vec<PullRequest>>,
    /// The run that works for it, or worked last: it plans, and from the confirmation on works through the plan.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// The model calls and tokens of all its runs.
    pub usage: SessionUsage,
    /// When it was created, RFC 3339.
    #[schema(value_type = String, format = "date-time")]
    pub created_at: Timestamp,
    /// When it was last changed.
    #[schema(value_type = String, format = "date-time")]
    pub updated_at: Timestamp,
    /// When its plan was confirmed.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub completed_at: Option<Timestamp>,
    /// Its result; `null` until it has ended and its containers are removed, and in a list.
    #[schema(required = true)]
    pub result: Option<SessionResult>,
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

/// What the confirmation of a plan allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningScope)]
pub struct SessionScope {
    /// The repository in which the work may act.
    #[schema(example = "acme/dates")]
    pub repository: String,
    /// The branches that it may write; `*` is any text.
    #[schema(example = "gavel/*")]
    pub branches: String,
    /// The tools of the plan: those that it may use.
    pub tools: Vec<String>,
    /// Those of them that have side effects and are not bound to the repository. Each of their calls asks a person.
    pub not_bound: Vec<String>,
    /// Those that ask a person before each call all the same, and those of `askFor`.
    pub ask_first: Vec<String>,
    /// Those whose arguments decide whether a call asks a person.
    pub may_ask: Vec<String>,
    /// The confirmation; `null` before it.
    #[schema(required = true)]
    pub confirmed: Option<Confirmation>,
}

/// The confirmation of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PlanConfirmation)]
pub struct Confirmation {
    /// The name of the person or the service that confirmed it.
    pub by: String,
    /// The version that was confirmed. Later ones are changes during the work, which allow nothing more.
    pub version: u32,
}

/// The result of a session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningResult)]
pub struct SessionResult {
    /// Its final status.
    #[schema(value_type = names::SessionStatus)]
    pub status: SessionStatus,
    /// Its first actions, at most 1000.
    pub log: Vec<LoggedAction>,
    /// Does `GET /v1/sessions/{id}/log` have more?
    pub log_truncated: bool,
    /// What the cleanup did with its containers.
    pub cleanup: Cleanup,
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

/// Something that a session waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningWait)]
pub struct WaitingFor {
    /// What is missing.
    pub kind: WaitingKind,
    /// The task; `null` for a call of the planner.
    #[schema(value_type = Option<String>, example = "t1", required = true)]
    pub task_id: Option<TaskId>,
    /// The tool.
    pub tool: String,
    /// The approval request; only of the kind `approval`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub approval_id: Option<ApprovalId>,
    /// The action.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
}

/// Why a session ended without reaching its goal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PlanningReason)]
pub struct Reason {
    /// The reason.
    #[schema(value_type = names::SessionReason)]
    pub code: SessionReason,
    /// Details.
    pub detail: String,
}

/// A refinement that made no new version. The version before it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PlanRefinement)]
pub struct Refinement {
    /// Always `failed`.
    pub outcome: String,
    /// The reason.
    #[schema(value_type = names::SessionReason)]
    pub code: SessionReason,
    /// Details.
    pub detail: String,
}

/// Model calls and their tokens, summed over all runs of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningUsage)]
pub struct SessionUsage {
    /// Model calls.
    pub model_calls: u64,
    /// Prompt tokens, including cached ones.
    pub input_tokens: u64,
    /// Tokens of the answers, without thoughts.
    pub output_tokens: u64,
    /// Thinking tokens.
    pub thought_tokens: u64,
    /// The part of `inputTokens` that came from a cache.
    pub cached_tokens: u64,
}

/// One version of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanVersion)]
pub struct Version {
    /// 1, 2, 3 …
    pub version: u32,
    /// When it was written, RFC 3339.
    #[schema(value_type = String, format = "date-time")]
    pub at: Timestamp,
    /// Who asked for it.
    pub by: String,
    /// How it came about.
    pub kind: VersionKind,
    /// The person's own text: the goal, or what to change.
    pub why: String,
    /// How it differs from the version before.
    #[schema(value_type = Vec<names::Change>)]
    pub changes: Vec<Change>,
    /// Hex SHA-256 of the plan.
    pub plan_hash: String,
    /// The run that made it; `null` if a person edited it.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub run_id: Option<RunId>,
    /// The tasks of this version.
    #[schema(value_type = Vec<names::Task>)]
    pub plan: Vec<Task>,
}

/// One action of a session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningAction)]
pub struct LoggedAction {
    /// 1, 2, 3 … in the session.
    pub n: u32,
    /// When it started, or was proposed if it never started; RFC 3339.
    #[schema(value_type = String, format = "date-time")]
    pub at: Timestamp,
    /// Its task; `null` for calls of the planner, and for the cleanup at the end.
    #[schema(value_type = Option<String>, required = true, example = "t1")]
    pub task_id: Option<TaskId>,
    /// The action.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
    /// The tool.
    pub tool: String,
    /// Its arguments: as sent, or as the model wrote them if it was not sent.
    #[schema(value_type = Object)]
    pub arguments: Arc<RawValue>,
    /// Its status.
    #[schema(value_type = names::ActionStatus)]
    pub status: ActionStatus,
    /// Why it failed.
    #[schema(required = true)]
    pub error: Option<ActionError>,
    /// From its start to its result, in milliseconds.
    #[schema(required = true)]
    pub duration_ms: Option<u64>,
    /// What allowed or denied it, or required an approval; `null` if nothing was required.
    #[schema(required = true)]
    pub decided_by: Option<String>,
}

impl LoggedAction {
    /// The task, or what it is without one.
    #[must_use]
    pub fn part(&self) -> String {
        match self.task_id {
            Some(task) => task.to_string(),
            None if self.tool == CLEANUP_TOOL => "cleanup".to_owned(),
            None => "plan".to_owned(),
        }
    }
}

/// Why an action failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningActionError)]
pub struct ActionError {
    /// A code from a closed list; docs/reference/outcomes.md explains it.
    #[schema(value_type = names::FailureCode)]
    pub code: FailureCode,
    /// The tool's own code, if it gave one. It is the server's word, in at most 64 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "already_exists")]
    pub tool_code: Option<String>,
    /// What the tool says besides: short words, numbers and truth values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = Object, example = json!({"number": 7}))]
    pub details: BTreeMap<String, Value>,
    /// Text for people.
    pub message: String,
}

/// A pull request that a session opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PlanningPullRequest)]
pub struct PullRequest {
    /// Its number.
    pub number: u64,
    /// Its address.
    pub url: String,
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

/// One step of a task: what the model thought, did, saw and concluded.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanStep)]
pub struct Step {
    /// 1, 2, 3 … in the task.
    pub n: u32,
    /// What the model meant to do, and why.
    #[schema(required = true)]
    pub reason: Option<String>,
    /// What it did: one call.
    #[schema(required = true)]
    pub action: Option<StepDone>,
    /// The data that the tool returned, or `{"error": {"code", "toolCode"?, "details"?, "message"}}`; `null` while the call waits or runs.
    #[schema(value_type = Option<serde_json::Value>, required = true)]
    pub observation: Option<Arc<RawValue>>,
    /// What it concluded.
    #[schema(required = true)]
    pub reflection: Option<StepReflection>,
    /// The call.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub action_id: Option<ActionId>,
    /// The status of the call.
    #[schema(value_type = Option<names::ActionStatus>, required = true)]
    pub state: Option<ActionStatus>,
    /// When the call started, RFC 3339.
    #[schema(value_type = Option<String>, format = "date-time", required = true)]
    pub started_at: Option<Timestamp>,
    /// From its start to its result, in milliseconds.
    #[schema(required = true)]
    pub duration_ms: Option<u64>,
}

/// The call of a step.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = PlanStepAction)]
pub struct StepDone {
    /// The tool.
    pub tool: String,
    /// Its arguments: as sent, or as the model wrote them if it was not sent.
    #[schema(value_type = Object)]
    pub arguments: Arc<RawValue>,
}

/// What the model concluded from a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanReflection)]
pub struct StepReflection {
    /// Is the task done?
    pub is_task_complete: bool,
    /// What the step showed.
    pub summary: String,
    /// What shows that the task is done.
    pub evidence: Vec<StepEvidence>,
    /// What later steps and tasks should know.
    pub learnings: Vec<String>,
    /// Changes of the plan.
    #[schema(value_type = Vec<Object>)]
    pub plan_changes: Vec<TaskChange>,
    /// Why the task cannot be done; it ended then.
    #[schema(required = true)]
    pub give_up: Option<String>,
}

/// A place in a result that shows that the task is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PlanEvidence)]
pub struct StepEvidence {
    /// The number of a step of this task.
    pub observation: u32,
    /// A text that occurs literally in the result of that step.
    pub quote: String,
}

/// What the cleanup at the end of a session did with the containers that it had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PlanningCleanup)]
pub struct Cleanup {
    /// Those that were removed.
    pub removed: Vec<String>,
    /// Those that are left, or why that is not known. Their server removes them later.
    pub left: Vec<String>,
}

impl Cleanup {
    /// Nothing was removed, and it is not known what is left.
    #[must_use]
    pub fn unknown(why: &str) -> Self {
        Self {
            removed: Vec::new(),
            left: vec![format!("unknown: {why}")],
        }
    }
}

/// What code read of a repository before a plan was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningRead)]
pub struct RepositoryRead {
    /// The default branch.
    #[schema(required = true)]
    pub default_branch: Option<String>,
    /// The id of its latest commit; `null` for an empty repository.
    #[schema(required = true)]
    pub commit: Option<String>,
    /// The files that were listed.
    #[schema(required = true)]
    pub files: u64,
    /// Did the planner see only a part of the tree?
    #[schema(required = true)]
    pub tree_truncated: bool,
    /// The repository's instructions for agents, if it has some.
    #[schema(required = true)]
    pub agent_file: Option<FileRead>,
    /// The calls of tools that this took.
    #[schema(required = true)]
    pub calls: u32,
    /// Their time, in milliseconds.
    #[schema(required = true)]
    pub duration_ms: u64,
}

/// A file that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PlanningFileRead)]
pub struct FileRead {
    /// Its path.
    pub path: String,
    /// Its size, in bytes.
    pub bytes: u64,
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

/// What would happen if the plan were confirmed now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanDryRun)]
pub struct DryRun {
    /// The version that was checked.
    pub plan_version: u32,
    /// Its tasks, in order.
    pub tasks: Vec<DryRunTask>,
    /// The servers of tools.
    pub servers: Vec<DryRunServer>,
    /// What the bundled servers act on, as far as they are on: the container engine, GitHub's credentials with their
    /// permissions and quota, the sandbox of the shell, and the web.
    pub conditions: Vec<DryRunCondition>,
}

/// A task, with what would happen to its calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanDryRunTask)]
pub struct DryRunTask {
    /// The task.
    #[schema(value_type = String, example = "t1")]
    pub task_id: TaskId,
    /// Its title.
    pub title: String,
    /// Its tools.
    pub tools: Vec<DryRunTool>,
}

/// What would happen to the calls of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PlanDryRunTool)]
pub struct DryRunTool {
    /// The tool.
    pub tool: String,
    /// Its server; `null` if no connected server offers it.
    #[schema(required = true)]
    pub server: Option<String>,
    /// The answer.
    pub answer: DryRunAnswer,
    /// Why.
    pub reason: String,
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

/// A server of tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PlanDryRunServer)]
pub struct DryRunServer {
    /// Its name.
    pub server: String,
    /// Its state.
    pub state: ServerState,
    /// Why it is unavailable, such as the settings without which it is off.
    #[schema(required = true)]
    pub reason: Option<String>,
}

/// Whether something that tools act on is fit for work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PlanDryRunCondition)]
pub struct DryRunCondition {
    /// What it is about.
    pub of: Subject,
    /// Whether it is fit.
    pub state: Fitness,
    /// What was seen, and what to do about an error.
    pub detail: String,
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

/// A call that a person must decide about.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningWaitingCall)]
pub struct WaitingCall {
    /// `approval`: a person must approve or reject the call. `in_doubt`: a person must settle whether it had its effect.
    pub kind: WaitingKind,
    /// Its task.
    #[schema(value_type = Option<String>, example = "t1", required = true)]
    pub task_id: Option<TaskId>,
    /// The call.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
    /// The tool.
    #[schema(value_type = String)]
    pub tool: Arc<str>,
    /// Exactly its arguments.
    #[schema(value_type = Object)]
    pub arguments: Arc<RawValue>,
    /// Why a person is asked.
    pub reason: String,
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

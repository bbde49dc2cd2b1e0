//! The work on a plan: what commands read of its steps and actions, and what they send to begin it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The confirmation of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct ExecutePlan {
    /// Only if it is the current version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) plan_version: Option<u32>,
    /// Tools whose every call asks a person.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::cli) ask_for: Vec<String>,
}

/// What was read of a repository before a plan was made.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct Read {
    pub(in crate::cli) default_branch: Option<String>,
    /// Absent for an empty repository.
    pub(in crate::cli) commit: Option<String>,
    pub(in crate::cli) files: u64,
    pub(in crate::cli) tree_truncated: bool,
    pub(in crate::cli) agent_file: Option<FileRead>,
    pub(in crate::cli) calls: u64,
    pub(in crate::cli) duration_ms: u64,
}

/// A file that was read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct FileRead {
    pub(in crate::cli) path: String,
    pub(in crate::cli) bytes: u64,
}

/// What the confirmation of a plan allows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct Scope {
    pub(in crate::cli) repository: String,
    /// A pattern, such as `gavel/*`.
    pub(in crate::cli) branches: String,
    pub(in crate::cli) tools: Vec<String>,
    /// The tools that are not bound to the repository.
    pub(in crate::cli) not_bound: Vec<String>,
    /// The tools that ask a person all the same.
    pub(in crate::cli) ask_first: Vec<String>,
    /// The tools whose arguments decide that.
    pub(in crate::cli) may_ask: Vec<String>,
    pub(in crate::cli) confirmed: Option<Confirmed>,
}

/// The confirmation of a plan.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Confirmed {
    pub(in crate::cli) by: String,
    pub(in crate::cli) version: u32,
}

/// What all runs of a session used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct Usage {
    pub(in crate::cli) model_calls: u64,
}

/// One step of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct Step {
    pub(in crate::cli) n: u64,
    pub(in crate::cli) reason: Option<String>,
    pub(in crate::cli) action: Value,
    /// Null while the call waits or runs.
    pub(in crate::cli) observation: Value,
    pub(in crate::cli) reflection: Value,
    pub(in crate::cli) action_id: Option<String>,
    pub(in crate::cli) state: Option<String>,
    pub(in crate::cli) duration_ms: Option<u64>,
}

/// An action of a session.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct LogAction {
    pub(in crate::cli) n: u64,
    /// RFC 3339.
    pub(in crate::cli) at: Option<String>,
    pub(in crate::cli) task_id: Option<String>,
    pub(in crate::cli) tool: String,
    pub(in crate::cli) arguments: Value,
    pub(in crate::cli) status: String,
    pub(in crate::cli) error: Option<ActionError>,
    pub(in crate::cli) duration_ms: Option<u64>,
}

impl LogAction {
    /// The task, or what it is without one.
    pub(in crate::cli) fn part(&self) -> String {
        match &self.task_id {
            Some(task) => task.clone(),
            None if self.tool == "cleanupGroupContainers" => "cleanup".to_owned(),
            None => "plan".to_owned(),
        }
    }
}

/// Why an action failed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct ActionError {
    pub(in crate::cli) code: String,
    /// The tool's own code.
    #[serde(rename = "toolCode")]
    pub(in crate::cli) tool_code: Option<String>,
    pub(in crate::cli) message: String,
}

/// What would happen if a plan were confirmed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct DryRun {
    pub(in crate::cli) plan_version: u32,
    pub(in crate::cli) tasks: Vec<DryRunTask>,
    pub(in crate::cli) servers: Vec<DryRunServer>,
    pub(in crate::cli) conditions: Vec<DryRunCondition>,
}

/// A task of a dry run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct DryRunTask {
    pub(in crate::cli) task_id: String,
    pub(in crate::cli) tools: Vec<DryRunTool>,
}

/// A tool of a task.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct DryRunTool {
    pub(in crate::cli) tool: String,
    /// `allow`, `require_approval`, `deny` or `depends_on_arguments`.
    pub(in crate::cli) answer: String,
    pub(in crate::cli) reason: String,
}

/// Whether something that tools act on is fit for work.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct DryRunCondition {
    pub(in crate::cli) of: String,
    /// `good`, `warning` or `error`.
    pub(in crate::cli) state: String,
    pub(in crate::cli) detail: String,
}

/// A server of tools.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct DryRunServer {
    pub(in crate::cli) server: String,
    pub(in crate::cli) state: String,
    /// Why it is not connected.
    pub(in crate::cli) reason: Option<String>,
}

//! The target of a call, as it is used and as it is stored.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::decision::Outcome;
use super::super::reflection::Reflection;
use super::super::tool::Tool;

/// The target of a call: decided by the functions that the model was offered, never by the bare name alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "StoredTarget", into = "StoredTarget")]
pub enum Target {
    /// A tool on the allowlist.
    Tool(Arc<Tool>),
    /// Such a tool as an earlier process stored it. It becomes `Tool` again once the same tool is found.
    Unresolved(ToolRef),
    /// Another agent.
    Agent(Arc<str>),
    /// A function that the engine answers itself; `Err` holds why its arguments are invalid.
    Verdict(Result<Verdict, String>),
    /// A name that the model was not offered.
    Unknown,
}

/// The part of a tool that a journal stores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRef {
    /// The server's name in `mcp.json`.
    pub server: Arc<str>,
    /// The name on that server.
    pub name: Arc<str>,
    /// Digest of its definition.
    pub digest: Arc<str>,
    /// Whether a call can change something.
    pub side_effect: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredTarget {
    Tool(ToolRef),
    Agent(Arc<str>),
    Verdict(Verdict),
    InvalidVerdict(String),
    Unknown,
}

impl From<&Tool> for ToolRef {
    fn from(tool: &Tool) -> Self {
        Self {
            server: Arc::clone(&tool.server),
            name: Arc::clone(&tool.name),
            digest: Arc::clone(&tool.digest),
            side_effect: tool.side_effect,
        }
    }
}

impl From<Target> for StoredTarget {
    fn from(target: Target) -> Self {
        match target {
            Target::Tool(tool) => Self::Tool(ToolRef::from(&*tool)),
            Target::Unresolved(tool) => Self::Tool(tool),
            Target::Agent(name) => Self::Agent(name),
            Target::Verdict(Ok(verdict)) => Self::Verdict(verdict),
            Target::Verdict(Err(error)) => Self::InvalidVerdict(error),
            Target::Unknown => Self::Unknown,
        }
    }
}

impl From<StoredTarget> for Target {
    fn from(stored: StoredTarget) -> Self {
        match stored {
            StoredTarget::Tool(tool) => Self::Unresolved(tool),
            StoredTarget::Agent(name) => Self::Agent(name),
            StoredTarget::Verdict(verdict) => Self::Verdict(Ok(verdict)),
            StoredTarget::InvalidVerdict(error) => Self::Verdict(Err(error)),
            StoredTarget::Unknown => Self::Unknown,
        }
    }
}

/// How the model ended its turn by a verdict function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// `request_clarification {question, kind}`.
    Clarify {
        /// The question for the user.
        question: String,
        /// `UNCLEAR_INTENT` or `MULTIPLE_MATCHES`.
        outcome: Outcome,
    },
    /// `refuse {message, kind}`.
    Refuse {
        /// The reason, for the user.
        message: String,
        /// `OUT_OF_SCOPE` or `MISSING_PERMISSION`.
        outcome: Outcome,
    },
    /// `complete_task`, or `exit_loop`.
    Complete {
        /// The output.
        output: Completion,
        /// Whether this ends the loop that the agent is a step of.
        exits_loop: bool,
    },
    /// `reflect`: what the model says about a step of a task. It ends the run only if the task ends with it.
    Reflect(Box<Reflection>),
}

/// The output of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completion {
    /// JSON that conforms to the agent's output schema.
    Output(Arc<str>),
    /// Text, from an agent without an output schema.
    Text(String),
}

//! Agents, and the versions of their definitions.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::page;
use crate::domain::time::Timestamp;

page! {
    /// A page of agents.
    AgentPage { agents: AgentInfo }
}

page! {
    /// A page of an agent's versions.
    VersionPage { versions: VersionInfo }
}

/// An agent in a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AgentInfo {
    /// The agent's name.
    pub id: String,
    /// The agent's project.
    pub project_id: String,
    /// The display name.
    #[schema(required = true)]
    pub display_name: Option<String>,
    /// What the agent does.
    pub description: String,
    /// `single`, `sequential` or `loop`.
    pub flow_type: String,
    /// The server tools that the agent may use.
    pub tools: Vec<String>,
    /// The agents that the agent may call.
    pub calls: Vec<String>,
    /// `file` or `api`.
    #[schema(value_type = String)]
    pub source: Cow<'static, str>,
    /// The current version; null for an agent from a file.
    #[schema(required = true)]
    pub version: Option<i64>,
    /// The hash of the definition.
    pub definition_hash: String,
    /// Can the agent run now?
    pub available: bool,
    /// Why the agent cannot run now.
    #[schema(required = true)]
    pub unavailable_reason: Option<String>,
}

/// One agent with its definition.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AgentDetail {
    /// All fields except the definition.
    #[serde(flatten)]
    pub about: AgentInfo,
    /// The definition as JSON.
    #[schema(value_type = Object)]
    pub definition: Value,
}

/// A version of an agent in a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VersionInfo {
    /// 1, 2, 3 …
    pub version: i64,
    /// Is it the current one?
    pub current: bool,
    /// The hash of the definition.
    pub definition_hash: String,
    /// The caller that put this version.
    pub author: String,
    /// When it was put, RFC 3339.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
}

/// One version with its definition.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VersionDetail {
    /// All fields except the definition.
    #[serde(flatten)]
    pub about: VersionInfo,
    /// The definition as JSON.
    #[schema(value_type = Object)]
    pub definition: Value,
}

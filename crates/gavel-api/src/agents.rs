//! Agents, and the versions of their definitions.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::names::sent;
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

sent! {
    /// An agent in a list.
    AgentInfo as "AgentInfo" {
        /// The agent's name.
        id: String,
        /// The agent's project.
        project_id: String,
        /// The display name.
        display_name: Option<String>,
        /// What the agent does.
        description: String,
        /// `single`, `sequential` or `loop`.
        flow_type: String,
        /// The server tools that the agent may use.
        tools: Vec<String>,
        /// The agents that the agent may call.
        calls: Vec<String>,
        /// `file` or `api`.
        source: Cow<'static, str>,
        /// The current version; null for an agent from a file.
        version: Option<i64>,
        /// The hash of the definition.
        definition_hash: String,
        /// Can the agent run now?
        available: bool,
        /// Why the agent cannot run now.
        unavailable_reason: Option<String>,
    }
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

sent! {
    /// A version of an agent in a list.
    VersionInfo as "VersionInfo" {
        /// 1, 2, 3 …
        version: i64,
        /// Is it the current one?
        current: bool,
        /// The hash of the definition.
        definition_hash: String,
        /// The caller that put this version.
        author: String,
        /// When it was put, RFC 3339.
        created_at: Timestamp,
    }
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

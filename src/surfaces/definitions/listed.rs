//! The API's representation of agents and their versions, and the page tokens of their lists.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::domain::definition::{Definition, ReadError};
use crate::domain::ids::ProjectId;
use crate::ports::definitions::ListedVersion;
use crate::ports::records::QueryError;

/// An agent in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
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
    pub source: &'static str,
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
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AgentDetail {
    /// All fields except the definition.
    #[serde(flatten)]
    pub about: AgentInfo,
    /// The definition as JSON.
    #[schema(value_type = Object)]
    pub definition: Value,
}

/// A version of an agent in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
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
    pub created_at: String,
}

/// One version with its definition.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct VersionDetail {
    /// All fields except the definition.
    #[serde(flatten)]
    pub about: VersionInfo,
    /// The definition as JSON.
    #[schema(value_type = Object)]
    pub definition: Value,
}

/// The result of putting a definition.
#[derive(Clone, Debug)]
pub struct Put {
    /// The current state of the agent.
    pub agent: AgentDetail,
    /// Warnings about the definition; they do not prevent its use.
    pub warnings: Vec<ReadError>,
    /// Was a new version created?
    pub changed: bool,
}

/// The token of the next page: base64url of project and agent. Neither name contains `/`.
pub(super) fn token(project: &ProjectId, agent: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}/{agent}", project.as_str()))
}

pub(super) fn read_token(project: &ProjectId, token: &str) -> Result<String, QueryError> {
    let bytes = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
    let text = String::from_utf8(bytes).unwrap_or_default();
    match text.split_once('/') {
        Some((of, agent)) if of == project.as_str() => Ok(agent.to_owned()),
        _ => Err(QueryError::Invalid {
            field: "page_token",
            detail: "is not a token of this list; use next_page_token of the previous page".to_owned(),
        }),
    }
}

pub(super) fn agent_info(
    id: &ProjectId,
    name: &str,
    definition: &Definition,
    is_agent: impl Fn(&str) -> bool,
    version: Option<i64>,
    reason: Option<String>,
) -> AgentInfo {
    AgentInfo {
        id: name.to_owned(),
        project_id: id.as_str().to_owned(),
        display_name: definition.display_name.clone(),
        description: definition.description.clone(),
        flow_type: definition.flow.as_str().to_owned(),
        tools: definition.server_tools(&is_agent),
        calls: definition.calls(&is_agent).into_iter().map(str::to_owned).collect(),
        source: if version.is_some() { "api" } else { "file" },
        version,
        definition_hash: definition.hash.to_string(),
        available: reason.is_none(),
        unavailable_reason: reason,
    }
}

pub(super) fn version_info(listed: &ListedVersion) -> VersionInfo {
    VersionInfo {
        version: listed.version,
        current: listed.current,
        definition_hash: listed.hash.to_string(),
        author: listed.author.to_string(),
        created_at: DateTime::<Utc>::from_timestamp_micros(listed.created_at)
            .unwrap_or_default()
            .to_rfc3339_opts(SecondsFormat::Micros, true),
    }
}

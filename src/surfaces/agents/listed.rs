//! Agents and their versions as the API shows them, and where a page of them ended.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::domain::definition::{Definition, DefinitionError};
use crate::domain::ids::ProjectId;
use crate::ports::definitions::ListedVersion;
use crate::ports::records::QueryError;

/// An agent as everybody is shown it in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AgentInfo {
    /// Its name.
    pub id: String,
    /// Its project.
    pub project_id: String,
    /// The name for people.
    #[schema(required = true)]
    pub display_name: Option<String>,
    /// What it does.
    pub description: String,
    /// `single`, `sequential` or `loop`.
    pub flow_type: String,
    /// The tools of servers that it is granted.
    pub tools: Vec<String>,
    /// The agents that it calls.
    pub calls: Vec<String>,
    /// `file` or `api`.
    pub source: &'static str,
    /// The current version; null for one from a file.
    #[schema(required = true)]
    pub version: Option<i64>,
    /// The content's hash.
    pub definition_hash: String,
    /// Can it run now?
    pub available: bool,
    /// Why not.
    #[schema(required = true)]
    pub unavailable_reason: Option<String>,
}

/// One agent whole.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AgentDetail {
    /// All but what is in it.
    #[serde(flatten)]
    pub about: AgentInfo,
    /// The definition as JSON.
    #[schema(value_type = Object)]
    pub definition: Value,
}

/// A page of agents, by name.
#[derive(Clone, Debug)]
pub struct AgentPage {
    /// The agents.
    pub agents: Vec<AgentInfo>,
    /// For the next page; absent on the last.
    pub next_page_token: Option<String>,
}

/// A version of an agent, as a list has it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct VersionInfo {
    /// 1, 2, 3 …
    pub version: i64,
    /// Is it the current one?
    pub current: bool,
    /// The content's hash.
    pub definition_hash: String,
    /// Who put it.
    pub author: String,
    /// When, RFC 3339.
    pub created_at: String,
}

/// A page of them, newest first.
#[derive(Clone, Debug)]
pub struct Versions {
    /// The versions.
    pub versions: Vec<VersionInfo>,
    /// For the next page; absent on the last.
    pub next_page_token: Option<String>,
}

/// One version whole.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct VersionDetail {
    /// All but what is in it.
    #[serde(flatten)]
    pub about: VersionInfo,
    /// The definition as JSON.
    #[schema(value_type = Object)]
    pub definition: Value,
}

/// What came of putting a definition.
#[derive(Clone, Debug)]
pub struct Put {
    /// The agent as it is now.
    pub agent: AgentDetail,
    /// What is odd in the definition that was put, and stops nothing.
    pub warnings: Vec<DefinitionError>,
    /// Is it a new version?
    pub changed: bool,
}

/// Where a page ended: base64url over project and agent. Neither has a `/` in its name.
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
            detail: "is no token of this list; take next_page_token of the page before".to_owned(),
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

//! The API's representation of agents and their versions, and the page tokens of their lists.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::api::agents::{AgentDetail, AgentInfo, VersionInfo};
use crate::domain::definition::{Definition, ReadError};
use crate::domain::ids::ProjectId;
use crate::domain::time::Timestamp;
use crate::ports::definitions::ListedVersion;
use crate::ports::records::QueryError;

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
        source: if version.is_some() { "api" } else { "file" }.into(),
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
        created_at: Timestamp(listed.created_at),
    }
}

//! The definitions of agents: which agents there are, from files and through the API, and whether each can run now.

mod directory;
mod project;
mod put;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

pub use self::directory::Directory;
pub use self::project::{Lack, Project, lack};
use super::StoreFailure;
use crate::api::agents::{AgentDetail, AgentInfo, VersionInfo};
use crate::domain::definition::{Agents, Definition, ReadError, SchemaSource};
use crate::domain::ids::ProjectId;
use crate::domain::time::Timestamp;
use crate::ports::definitions::ListedVersion;
use crate::ports::records::QueryError;

/// Why a definition was not put.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// There is no such agent or version; or the store failed.
    #[error(transparent)]
    Store(#[from] StoreFailure),
    /// The definition is invalid; all errors at once.
    #[error("the definition is invalid")]
    InvalidDefinition(Vec<ReadError>),
    /// The caller lacks this role.
    #[error("the role {0} is required")]
    MissingRole(&'static str),
    /// The agent is from a file, which cannot be changed through the API.
    #[error("the agent is from a file")]
    FromFile,
    /// Another version is current: this one; 0 for none.
    #[error("version {0} is current")]
    VersionConflict(i64),
    /// The project has the maximum number of API agents: this many.
    #[error("the project has {0} agents, which is the maximum")]
    TooManyAgents(usize),
    /// Other processes put other definitions of the project all the time.
    #[error("the service is overloaded")]
    Overloaded,
}

impl From<QueryError> for PutError {
    fn from(error: QueryError) -> Self {
        Self::Store(error.into())
    }
}

// The agents that come from files.

/// The agents of a directory, as of the last valid state.
#[derive(Debug, Default)]
pub struct FileAgents {
    /// Where they were read from, for users.
    pub place: String,
    /// The valid agents.
    pub agents: Agents,
    /// The schemas that definitions may name.
    pub schemas: Vec<SchemaSource>,
    /// Increases with every change.
    pub generation: u64,
}

// The API's representation of agents and their versions, and the page tokens of their lists.

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
fn token(project: &ProjectId, agent: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}/{agent}", project.as_str()))
}

fn read_token(project: &ProjectId, token: &str) -> Result<String, QueryError> {
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

fn agent_info(
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

fn version_info(listed: &ListedVersion) -> VersionInfo {
    VersionInfo {
        version: listed.version,
        current: listed.current,
        definition_hash: listed.hash.to_string(),
        author: listed.author.to_string(),
        created_at: Timestamp(listed.created_at),
    }
}

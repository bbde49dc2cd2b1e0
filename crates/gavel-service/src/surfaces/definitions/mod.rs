//! The definitions of agents: which agents there are, from files and through the API, and whether each can run now.

mod directory;
mod project;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use directory::{Key, MOST_AGENTS, TURNS, aside};
use project::{BODY, checked_beside, checked_project, is_agent};

pub use self::directory::Directory;
pub use self::project::{Lack, Project, lack};
use super::StoreFailure;
use crate::api::agents::{AgentDetail, AgentInfo, VersionInfo};
use crate::domain::definition::{Agents, Definition, Form, ReadError, SchemaSource, Source};
use crate::domain::ids::{DEFAULT_PROJECT, ProjectId};
use crate::domain::time::Timestamp;
use crate::ports::definitions::{ListedVersion, NewVersion, OneVersion, PutVersion, StoredVersion};
use crate::ports::records::QueryError;
use crate::surfaces::OutcomeUnknown;
use crate::surfaces::caller::{Caller, OPERATOR};

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

/// How often a definition is checked again because other processes have put other definitions meanwhile.
const MOST_TRIES: usize = 8;

impl Directory {
    /// Creates a new version of an agent. It is checked together with the other agents of its project, and rejected if
    /// it would break one of them.
    ///
    /// # Errors
    /// The caller lacks the role; the definition is invalid (all errors); the agent is from a file; the current version
    /// is not `expected`.
    pub async fn put(
        &self,
        caller: &Caller,
        id: &ProjectId,
        name: &str,
        (form, body): (Form, &[u8]),
        expected: Option<i64>,
        now_us: i64,
    ) -> Result<Put, PutError> {
        may_put(caller)?;
        let key = (caller.tenant.clone(), id.clone());
        // Serialized here, so that only other processes can change anything between the check and the write.
        let _turn = self.putting[turn(&key)].lock().await;
        for _ in 0..MOST_TRIES {
            let source = Source {
                file: BODY.to_owned(),
                form,
                bytes: body.to_vec(),
            };
            if let Some(put) = self.put_once(caller, id, name, source, expected, now_us).await? {
                return Ok(put);
            }
        }
        Err(PutError::Overloaded)
    }

    /// Like [`Directory::put`]. `None` if the agents that it was checked against are no longer current.
    async fn put_once(
        &self,
        caller: &Caller,
        id: &ProjectId,
        name: &str,
        source: Source,
        expected: Option<i64>,
        now_us: i64,
    ) -> Result<Option<Put>, PutError> {
        let stored = self.store.current(&caller.tenant, id).await?;
        let files = self.files.load_full();
        let is_default = id.as_str() == DEFAULT_PROJECT;
        if is_default && files.agents.contains_key(name) {
            return Err(PutError::FromFile);
        }
        if stored.len() >= MOST_AGENTS && stored.iter().all(|one| &*one.agent != name) {
            return Err(PutError::TooManyAgents(MOST_AGENTS));
        }
        let numbers = stored.iter().map(|one| (Arc::clone(&one.agent), one.version));
        let numbers = Arc::new(numbers.collect());
        let (beside, named) = (Arc::clone(&files), name.to_owned());
        let (checked, mut stored) = aside(move || {
            let checked = checked_beside(&beside, is_default, &stored, &named, source);
            (checked, stored)
        })
        .await;
        let (definition, warnings) = checked?;
        let version = NewVersion {
            tenant: caller.tenant.clone(),
            project: id.clone(),
            agent: Arc::from(name),
            hash: Arc::clone(&definition.hash),
            definition: Arc::from(definition.to_json().to_string()),
            author: Arc::from(caller.name()),
            created_at: now_us,
            expected,
            beside: Some(numbers),
        };
        let put = self.store.put(version.clone()).await;
        let (number, changed) = match put.map_err(|error| unknown().after(&error))? {
            PutVersion::Made(number) => (number, true),
            PutVersion::Same(number) => (number, false),
            PutVersion::Conflict(current) => return Err(PutError::VersionConflict(current)),
            PutVersion::Changed => return Ok(None),
        };
        // The write is done, so nothing more is read: a read could fail.
        stored.retain(|one| &*one.agent != name);
        stored.push(StoredVersion {
            agent: version.agent,
            version: number,
            hash: version.hash,
            definition: version.definition,
            author: version.author,
            created_at: now_us,
        });
        let project = aside(move || checked_project(&files, is_default, &stored, None).project).await;
        let reason = self.reason(&project, name, &self.tools.catalog());
        let is_agent = |name: &str| is_agent(&project, name);
        Ok(Some(Put {
            agent: AgentDetail {
                about: agent_info(id, name, &definition, is_agent, Some(number), reason),
                definition: definition.to_json(),
            },
            warnings,
            changed,
        }))
    }

    /// Makes an earlier version current again, by creating a new version with its content.
    ///
    /// # Errors
    /// See [`Directory::put`]; there is no such version.
    pub async fn restore(
        &self,
        caller: &Caller,
        id: &ProjectId,
        name: &str,
        version: i64,
        now_us: i64,
    ) -> Result<Put, PutError> {
        may_put(caller)?;
        let OneVersion { version, current } = self
            .store
            .version(&caller.tenant, id, name, version)
            .await?
            .ok_or(StoreFailure::NotFound)?;
        let body = (Form::Json, version.definition.as_bytes());
        self.put(caller, id, name, body, Some(current), now_us).await
    }
}

fn turn(key: &Key) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish() as usize % TURNS
}

fn may_put(caller: &Caller) -> Result<(), PutError> {
    if caller.roles.contains(OPERATOR) {
        Ok(())
    } else {
        Err(PutError::MissingRole(OPERATOR))
    }
}

fn unknown() -> OutcomeUnknown {
    OutcomeUnknown::new(
        None,
        "It is unknown whether the version was created. Check the agent's versions; putting the same definition again \
         creates no other version.",
    )
}

//! The definitions of agents: which agents there are, from files and through the API, and whether each can run now.

mod directory;
mod project;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use directory::{Key, MOST_AGENTS, TURNS, aside};
use project::{BODY, checked_beside, checked_project};

pub use self::directory::Directory;
pub use self::project::{Chosen, Lack, Project, lack};
use crate::api::agents::AgentDetail;
use crate::api::problem::{Code, FieldError};
use crate::domain::definition::{Agents, Form, ReadError, SchemaSource, Source};
use crate::domain::ids::{DEFAULT_PROJECT, ProjectId};
use crate::ports::definitions::{NewVersion, PutVersion, StoredVersion};
use crate::ports::records::QueryError;
use crate::surfaces::caller::{Caller, OPERATOR};
use crate::surfaces::problem::Problem;

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
    ) -> Result<Put, Problem> {
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
        Err(Code::Overloaded.into())
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
    ) -> Result<Option<Put>, Problem> {
        let stored = self.store.current(&caller.tenant, id).await?;
        let files = self.files.load_full();
        let is_default = id.as_str() == DEFAULT_PROJECT;
        if is_default && files.agents.contains_key(name) {
            let detail = "The agent comes from a file; edit that file, and gavel reloads it automatically.";
            return Err(Problem::new(Code::ReadOnly, detail));
        }
        if stored.len() >= MOST_AGENTS && stored.iter().all(|one| &*one.agent != name) {
            let detail = format!(
                "The project has {MOST_AGENTS} agents created through the API, the most it may have; put the agent into \
                 another project."
            );
            return Err(Problem::new(Code::TooManyAgents, detail));
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
            PutVersion::Conflict(current) => {
                let detail = format!("The current version is {current}; 0 means that there is none.");
                return Err(Problem::new(Code::VersionConflict, detail));
            }
            PutVersion::Changed => return Ok(None),
        };
        // The write is done, so nothing more is read: a read could fail.
        stored.retain(|one| &*one.agent != name);
        stored.push(StoredVersion {
            agent: version.agent,
            version: number,
            definition: version.definition,
        });
        let project = aside(move || checked_project(&files, is_default, &stored, None).project).await;
        let about = self.info(id, &project, name, &self.tools.catalog());
        Ok(Some(Put {
            agent: AgentDetail {
                about: about.unwrap_or_else(|| unreachable!("it is valid by itself, so the project has it")),
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
    ) -> Result<Put, Problem> {
        may_put(caller)?;
        let found = self.store.version(&caller.tenant, id, name, version).await?;
        let found = found.ok_or(Code::NotFound)?;
        let current = self.store.numbers(&caller.tenant, id).await?.get(name).copied();
        let body = (Form::Json, found.definition.as_bytes());
        self.put(caller, id, name, body, current, now_us).await
    }
}

fn turn(key: &Key) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish() as usize % TURNS
}

fn may_put(caller: &Caller) -> Result<(), Problem> {
    if caller.roles.contains(OPERATOR) {
        Ok(())
    } else {
        Err(Problem::new(
            Code::Forbidden,
            format!("This requires the role {OPERATOR}."),
        ))
    }
}

fn unknown() -> Problem {
    Problem::outcome_unknown(
        None,
        "It is unknown whether the version was created. Check the agent's versions; putting the same definition again \
         creates no other version.",
    )
}

/// The problem of a definition with these errors.
pub(crate) fn invalid_definition(errors: Vec<ReadError>) -> Problem {
    Problem::from_code(Code::InvalidDefinition)
        .with(|more| more.errors = errors.into_iter().map(definition_error).collect())
}

/// Reports an error or a warning of a definition, with its field, and its line if known.
pub(crate) fn definition_error(error: ReadError) -> FieldError {
    let place = match (error.file.as_str(), error.line) {
        ("body", None) => String::new(),
        ("body", Some(line)) => format!("line {line}: "),
        (file, None) => format!("{file}: "),
        (file, Some(line)) => format!("{file}, line {line}: "),
    };
    // The body does not contain the definitions of other agents.
    let pointer = match error.file.as_str() {
        "body" => pointer(&error.field),
        _ => String::new(),
    };
    let field = match pointer.as_str() {
        "" => format!("{}: ", error.field),
        _ => String::new(),
    };
    FieldError {
        pointer,
        detail: format!("{place}{field}found {}; allowed: {}", error.found, error.allowed),
    }
}

/// A field's path as a JSON pointer into the definition: `tools[0]` is `/tools/0`. Empty for text that is not a field,
/// such as "front matter".
fn pointer(field: &str) -> String {
    if field.contains(' ') {
        return String::new();
    }
    let parts = field.split(['.', '[']).map(|part| part.trim_end_matches(']'));
    parts.map(|part| format!("/{part}")).collect()
}

//! Puts definitions of agents: each one a new version, checked together with the other agents of its project.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::PutError;
use super::directory::{Directory, Key, MOST_AGENTS, TURNS, aside};
use super::project::{BODY, checked_beside, checked_project, is_agent};
use super::{Put, agent_info};
use crate::api::agents::AgentDetail;
use crate::domain::definition::{Form, Source};
use crate::domain::ids::{DEFAULT_PROJECT, ProjectId};
use crate::ports::definitions::{NewVersion, OneVersion, PutVersion, StoredVersion};
use crate::surfaces::caller::{Caller, OPERATOR};
use crate::surfaces::{OutcomeUnknown, StoreFailure};

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

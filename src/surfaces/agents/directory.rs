//! Which agents there are: those from files, and those that came by the API (DESIGN.md section 4).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::Semaphore;

use super::listed::{
    AgentDetail, AgentInfo, AgentPage, Put, VersionDetail, Versions, agent_info, read_token, token, version_info,
};
use super::project::{
    BODY, Project, checked_beside, checked_project, definition, is_agent, render_errors, unavailable,
};
use super::{AgentError, OutcomeUnknown, outcome_unknown};
use crate::domain::definition::{Agents, Form, SchemaSource, Source};
use crate::domain::ids::{ProjectId, TenantId};
use crate::domain::tool::Tool;
use crate::engine::agent::Models;
use crate::ports::definitions::{Definitions, ListedVersion, NewVersion, OneVersion, PutVersion, StoredVersion};
use crate::ports::tools::{Catalog, Tools};
use crate::surfaces::caller::{Caller, OPERATOR};
use crate::surfaces::decisions::ListQuery;

/// The project of agents from files.
pub const DEFAULT_PROJECT: &str = "default";

/// The agents of a folder, as they were last right.
#[derive(Debug, Default)]
pub struct FileAgents {
    /// Where they are from, for people.
    pub place: String,
    /// Those that are right.
    pub agents: Agents,
    /// The schemas that definitions may name.
    pub schemas: Vec<SchemaSource>,
    /// Grows with every change.
    pub generation: u64,
}

/// Finds agents, and keeps those that come by the API.
pub struct Directory {
    files: Arc<ArcSwap<FileAgents>>,
    store: Arc<dyn Definitions>,
    tools: Arc<dyn Tools>,
    models: Models,
    checked: Mutex<HashMap<Key, Checked>>,
    /// Whose turn it is to put into a project; several projects may share one.
    putting: [tokio::sync::Mutex<()>; TURNS],
    /// Places for those who check: of many that meet the same change at once a few do, and the others find it done.
    checking: Semaphore,
}

/// Whose project.
type Key = (TenantId, ProjectId);

/// A project, and what it was checked from.
type Checked = (Stamp, Arc<Project>);

/// What a project was checked from: the generation of the files, and each agent's version.
type Stamp = (u64, BTreeMap<Arc<str>, i64>);

/// Projects kept checked; with more the others are checked again when they are asked for.
const MOST_KEPT: usize = 1024;
/// Projects checked at once.
const CHECKED_AT_ONCE: usize = 2;
/// Agents that one project may have by the API: all of them are checked together whenever one changes.
const MOST_AGENTS: usize = 1000;
/// Definitions put at once by this process, into different projects.
const TURNS: usize = 16;
/// How often a definition is checked again, since other processes have put others meanwhile.
const MOST_TRIES: usize = 8;
/// Bytes of texts after which a page of agents ends.
const MOST_PAGE_BYTES: usize = 1 << 20;

impl Directory {
    /// Over files, which whoever loads them may exchange, and the store.
    #[must_use]
    pub fn new(
        files: Arc<ArcSwap<FileAgents>>,
        store: Arc<dyn Definitions>,
        tools: Arc<dyn Tools>,
        models: Models,
    ) -> Self {
        Self {
            files,
            store,
            tools,
            models,
            checked: Mutex::default(),
            putting: Default::default(),
            checking: Semaphore::new(CHECKED_AT_ONCE),
        }
    }

    /// A tool as its server offers it now.
    #[must_use]
    pub fn tool(&self, server: &str, name: &str) -> Option<Arc<Tool>> {
        let catalog = self.tools.catalog();
        let found = catalog
            .tools
            .iter()
            .find(|tool| &*tool.server == server && &*tool.name == name);
        found.cloned()
    }

    /// The agents of files as they are now.
    #[must_use]
    pub fn files(&self) -> Arc<FileAgents> {
        self.files.load_full()
    }

    /// The agents of a project.
    ///
    /// # Errors
    /// There is no such project; the store is away.
    pub async fn project(&self, tenant: &TenantId, project: &ProjectId) -> Result<Arc<Project>, AgentError> {
        let numbers = self.store.numbers(tenant, project).await?;
        let is_default = project.as_str() == DEFAULT_PROJECT;
        if numbers.is_empty() && !is_default {
            return Err(AgentError::NotFound);
        }
        let files = self.files.load_full();
        let key = (tenant.clone(), project.clone());
        let stamp = (files.generation, numbers);
        if let Some(known) = self.known(&key, &stamp) {
            return Ok(known);
        }
        // It is never closed.
        let _place = self.checking.acquire().await;
        if let Some(known) = self.known(&key, &stamp) {
            return Ok(known);
        }
        let stored = match stamp.1.is_empty() {
            true => Vec::new(),
            false => self.store.current(tenant, project).await?,
        };
        let numbers = stored.iter().map(|one| (Arc::clone(&one.agent), one.version));
        let stamp = (files.generation, numbers.collect());
        let project = aside(move || checked_project(&files, is_default, &stored, None).project).await;
        let project = Arc::new(project);
        let mut kept = self.kept();
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(key, (stamp, Arc::clone(&project)));
        Ok(project)
    }

    /// The project, if it was checked from just this.
    fn known(&self, key: &Key, stamp: &Stamp) -> Option<Arc<Project>> {
        let kept = self.kept();
        let (of, project) = kept.get(key)?;
        (of == stamp).then(|| Arc::clone(project))
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Key, Checked>> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every agent of a project, by name.
    ///
    /// # Errors
    /// As [`Directory::project`].
    pub async fn list(&self, tenant: &TenantId, id: &ProjectId) -> Result<Vec<AgentInfo>, AgentError> {
        let project = self.project(tenant, id).await?;
        let catalog = self.tools.catalog();
        let names: BTreeSet<_> = project.agents.keys().chain(project.broken.keys()).collect();
        Ok(names
            .into_iter()
            .filter_map(|name| self.info(id, &project, name, &catalog))
            .collect())
    }

    /// A page of the agents of a project, by name. It ends early where it grows too long: what agents say of themselves may be
    /// long.
    ///
    /// # Errors
    /// As [`Directory::project`]; the token is of another list.
    pub async fn page(&self, tenant: &TenantId, id: &ProjectId, query: &ListQuery) -> Result<AgentPage, AgentError> {
        let after = query.page_token.as_deref().map(|token| read_token(id, token));
        let after = after.transpose()?;
        let project = self.project(tenant, id).await?;
        let catalog = self.tools.catalog();
        let names: BTreeSet<_> = project.agents.keys().chain(project.broken.keys()).collect();
        let mut left = names
            .into_iter()
            .filter(|name| after.as_ref().is_none_or(|after| *name > after))
            .peekable();
        let (mut agents, mut bytes) = (Vec::new(), 0);
        while agents.len() < query.page_size as usize
            && bytes < MOST_PAGE_BYTES
            && let Some(name) = left.next()
        {
            let Some(agent) = self.info(id, &project, name, &catalog) else {
                continue;
            };
            let texts = [&agent.description].into_iter().chain(&agent.tools).chain(&agent.calls);
            bytes += texts.map(String::len).sum::<usize>();
            agents.push(agent);
        }
        let last = agents.last().filter(|_| left.peek().is_some());
        let next_page_token = last.map(|last| token(id, &last.id));
        Ok(AgentPage {
            agents,
            next_page_token,
        })
    }

    /// One agent.
    ///
    /// # Errors
    /// As [`Directory::project`]; there is no such agent.
    pub async fn get(&self, tenant: &TenantId, id: &ProjectId, name: &str) -> Result<AgentDetail, AgentError> {
        let project = self.project(tenant, id).await?;
        let about = self.info(id, &project, name, &self.tools.catalog());
        let definition = definition(&project, name).ok_or(AgentError::NotFound)?.to_json();
        let about = about.ok_or(AgentError::NotFound)?;
        Ok(AgentDetail { about, definition })
    }

    /// A new version of an agent. It is checked beside the others of its project, and refused where one of them could not
    /// work beside it any more.
    ///
    /// # Errors
    /// The caller may not; every mistake; the agent is from a file; another version is current than `expected`.
    pub async fn put(
        &self,
        caller: &Caller,
        id: &ProjectId,
        name: &str,
        (form, body): (Form, &[u8]),
        expected: Option<i64>,
        now_us: i64,
    ) -> Result<Put, AgentError> {
        may_put(caller)?;
        let key = (caller.tenant.clone(), id.clone());
        // One after another here, so that only other processes can come between the check and what is written.
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
        Err(AgentError::Overloaded)
    }

    /// As [`Directory::put`]; `None` where the others that it was checked beside are not the current ones any more.
    async fn put_once(
        &self,
        caller: &Caller,
        id: &ProjectId,
        name: &str,
        source: Source,
        expected: Option<i64>,
        now_us: i64,
    ) -> Result<Option<Put>, AgentError> {
        let stored = self.store.current(&caller.tenant, id).await?;
        let files = self.files.load_full();
        let is_default = id.as_str() == DEFAULT_PROJECT;
        if is_default && files.agents.contains_key(name) {
            return Err(AgentError::FromFile);
        }
        if stored.len() >= MOST_AGENTS && stored.iter().all(|one| &*one.agent != name) {
            return Err(AgentError::TooManyAgents(MOST_AGENTS));
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
        let (number, changed) = match put.map_err(|error| outcome_unknown(&error, OutcomeUnknown::Put))? {
            PutVersion::Made(number) => (number, true),
            PutVersion::Same(number) => (number, false),
            PutVersion::Conflict(current) => return Err(AgentError::VersionConflict(current)),
            PutVersion::Changed => return Ok(None),
        };
        // From here on it is done, so nothing is read any more: that could fail.
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
        let reason = match project.agents.contains_key(name) {
            true => unavailable(name, &project.agents, &self.tools.catalog(), &self.models),
            false => project.broken.get(name).map(|broken| render_errors(&broken.errors)),
        };
        Ok(Some(Put {
            agent: AgentDetail {
                about: agent_info(
                    id,
                    name,
                    &definition,
                    |name| is_agent(&project, name),
                    Some(number),
                    reason,
                ),
                definition: definition.to_json(),
            },
            warnings,
            changed,
        }))
    }

    /// A page of the versions of an agent that came by the API, newest first.
    ///
    /// # Errors
    /// There is no such agent, or it is from a file; the query is off; the store is away.
    pub async fn versions(
        &self,
        tenant: &TenantId,
        id: &ProjectId,
        name: &str,
        query: &ListQuery,
    ) -> Result<Versions, AgentError> {
        let page = self.store.versions(tenant, id, name, query).await?;
        if page.versions.is_empty() && query.page_token.is_none() {
            return Err(AgentError::NotFound);
        }
        Ok(Versions {
            versions: page.versions.iter().map(version_info).collect(),
            next_page_token: page.next_page_token,
        })
    }

    /// One version of an agent that came by the API.
    ///
    /// # Errors
    /// There is no such agent or version, or it is from a file; the store is away, or holds what cannot be read.
    pub async fn version(
        &self,
        tenant: &TenantId,
        id: &ProjectId,
        name: &str,
        version: i64,
    ) -> Result<VersionDetail, AgentError> {
        let OneVersion { version, current } = self
            .store
            .version(tenant, id, name, version)
            .await?
            .ok_or(AgentError::NotFound)?;
        let definition = serde_json::from_str(&version.definition).map_err(|error| {
            tracing::error!(agent = %name, version = version.version, %error, "a stored definition cannot be read");
            AgentError::RecordUnavailable
        })?;
        Ok(VersionDetail {
            about: version_info(&ListedVersion {
                version: version.version,
                current: version.version == current,
                hash: version.hash,
                author: version.author,
                created_at: version.created_at,
            }),
            definition,
        })
    }

    /// Makes an earlier version the current one again, as a version of its own.
    ///
    /// # Errors
    /// As [`Directory::put`]; there is no such version.
    pub async fn restore(
        &self,
        caller: &Caller,
        id: &ProjectId,
        name: &str,
        version: i64,
        now_us: i64,
    ) -> Result<Put, AgentError> {
        may_put(caller)?;
        let OneVersion { version, current } = self
            .store
            .version(&caller.tenant, id, name, version)
            .await?
            .ok_or(AgentError::NotFound)?;
        let body = (Form::Json, version.definition.as_bytes());
        self.put(caller, id, name, body, Some(current), now_us).await
    }

    fn info(&self, id: &ProjectId, project: &Project, name: &str, catalog: &Catalog) -> Option<AgentInfo> {
        let definition = definition(project, name)?;
        let reason = match project.agents.contains_key(name) {
            true => unavailable(name, &project.agents, catalog, &self.models),
            false => project.broken.get(name).map(|broken| render_errors(&broken.errors)),
        };
        let version = project.versions.get(name).copied();
        Some(agent_info(
            id,
            name,
            definition,
            |name| is_agent(project, name),
            version,
            reason,
        ))
    }
}

fn turn(key: &Key) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish() as usize % TURNS
}

/// Does work that may take a while where it holds up nobody else; a panic in it goes on here.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn may_put(caller: &Caller) -> Result<(), AgentError> {
    if caller.roles.contains(OPERATOR) {
        Ok(())
    } else {
        Err(AgentError::MissingRole(OPERATOR))
    }
}

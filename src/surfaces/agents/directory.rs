//! Which agents there are: those from files, and those that came by the API (DESIGN.md section 4).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use utoipa::ToSchema;

use super::{AgentError, Unheard, unheard};
use crate::domain::definition::{
    Agent, Agents, Definition, DefinitionError, Form, MOST_TOLD, SchemaSource, Source, check,
};
use crate::domain::ids::{ProjectId, TenantId};
use crate::domain::text;
use crate::domain::tool::Tool;
use crate::engine::Toolset;
use crate::engine::agent::Models;
use crate::engine::toolset::by_reason;
use crate::ports::definitions::{Definitions, ListedVersion, NewVersion, OneVersion, PutVersion, StoredVersion};
use crate::ports::records::QueryError;
use crate::ports::tools::{Catalog, Tools};
use crate::surfaces::caller::{Caller, OPERATOR};
use crate::surfaces::decisions::ListQuery;

/// The project of agents from files.
pub const DEFAULT_PROJECT: &str = "default";

/// Where the mistakes of a definition stand that comes by the API.
const BODY: &str = "body";

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
/// Longest reason why an agent cannot run, in bytes.
const LONGEST_REASON: usize = 4 << 10;

/// The agents of one project.
#[derive(Debug, Default)]
pub struct Project {
    /// Those that are right, beside each other.
    pub agents: Agents,
    /// Versions of those that came by the API.
    pub versions: BTreeMap<String, i64>,
    /// Those that came by the API and do not stand beside the others any more, since a file has changed.
    pub broken: BTreeMap<String, Broken>,
}

/// An agent that was right when it was put.
#[derive(Debug)]
pub struct Broken {
    /// What it is.
    pub definition: Definition,
    /// What is wrong with it now.
    pub errors: Vec<DefinitionError>,
}

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
    /// The tools it is granted.
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
    /// Is it a new version?
    pub changed: bool,
}

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
        let project = aside(move || checked_project(&files, is_default, &stored, None).0).await;
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
        let (definition, mut stored) = aside(move || {
            let definition = checked_beside(&beside, is_default, &stored, &named, source);
            (definition, stored)
        })
        .await;
        let definition = definition?;
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
        let (number, changed) = match put.map_err(|error| unheard(&error, Unheard::Put))? {
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
        let project = aside(move || checked_project(&files, is_default, &stored, None).0).await;
        let reason = match project.agents.contains_key(name) {
            true => unavailable(name, &project.agents, &self.tools.catalog(), &self.models),
            false => project.broken.get(name).map(|broken| told(&broken.errors)),
        };
        Ok(Some(Put {
            agent: AgentDetail {
                about: agent_info(id, name, &definition, Some(number), reason),
                definition: definition.to_json(),
            },
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
            false => project.broken.get(name).map(|broken| told(&broken.errors)),
        };
        let version = project.versions.get(name).copied();
        Some(agent_info(id, name, definition, version, reason))
    }
}

fn definition<'a>(project: &'a Project, name: &str) -> Option<&'a Definition> {
    let right = project.agents.get(name).map(|agent| &*agent.definition);
    right.or_else(|| Some(&project.broken.get(name)?.definition))
}

/// Where a page ended: base64url over project and agent. Neither has a `/` in its name.
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
            detail: "is no token of this list; take next_page_token of the page before".to_owned(),
        }),
    }
}

fn agent_info(
    id: &ProjectId,
    name: &str,
    definition: &Definition,
    version: Option<i64>,
    reason: Option<String>,
) -> AgentInfo {
    AgentInfo {
        id: name.to_owned(),
        project_id: id.as_str().to_owned(),
        display_name: definition.display_name.clone(),
        description: definition.description.clone(),
        flow_type: definition.flow.as_str().to_owned(),
        tools: definition.tools.clone(),
        calls: definition.calls().into_iter().map(str::to_owned).collect(),
        source: if version.is_some() { "api" } else { "file" },
        version,
        definition_hash: definition.hash.to_string(),
        available: reason.is_none(),
        unavailable_reason: reason,
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

/// Why an agent cannot run now: of its own tools and model, or of those it leads to. Each is looked at once, however
/// often it is named.
#[must_use]
pub fn unavailable(name: &str, agents: &Agents, catalog: &Catalog, models: &Models) -> Option<String> {
    let own = |name: &str| own_reason(&agents.get(name)?.definition, catalog, models);
    own(name).or_else(|| {
        let called = led_to(name, agents);
        let mut reasons = called.into_iter().filter_map(|called| Some((called, own(called)?)));
        let (called, reason) = reasons.next()?;
        Some(format!("it leads to {called}, which is unavailable: {reason}"))
    })
}

fn own_reason(definition: &Definition, catalog: &Catalog, models: &Models) -> Option<String> {
    if let Err(reason) = models.of(definition) {
        return Some(reason);
    }
    let missing = Toolset::build(catalog, &definition.tools, &[]).missing;
    let told = by_reason(&missing).into_iter();
    let told: Vec<_> = told
        .map(|(reason, names)| format!("{}: {reason}", names.join(", ")))
        .collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Every agent that one can lead to, once.
fn led_to<'a>(name: &str, agents: &'a Agents) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    let mut open = vec![name];
    while let Some(next) = open.pop() {
        let Some(agent) = agents.get(next) else { continue };
        let names: BTreeSet<&str> = agent.definition.calls().into_iter().collect();
        for called in names {
            if let Some((known, _)) = agents.get_key_value(called)
                && !found.contains(&known.as_str())
            {
                found.push(known);
                open.push(known);
            }
        }
    }
    found
}

/// The agents of files and of the store beside each other, with one more where one is to be put; and what is wrong then.
fn checked_project(
    files: &FileAgents,
    with_files: bool,
    stored: &[StoredVersion],
    also: Option<Source>,
) -> (Project, Vec<DefinitionError>) {
    if stored.is_empty() && also.is_none() {
        let agents = if with_files {
            files.agents.clone()
        } else {
            Agents::new()
        };
        return (
            Project {
                agents,
                ..Project::default()
            },
            Vec::new(),
        );
    }
    let own = |agent: &Agent| Source {
        file: agent.file.clone(),
        form: Form::Json,
        bytes: agent.definition.to_json().to_string().into_bytes(),
    };
    let mut sources: Vec<_> = files.agents.values().filter(|_| with_files).map(own).collect();
    // A file that came later goes before.
    let kept = stored
        .iter()
        .filter(|one| !with_files || !files.agents.contains_key(&*one.agent));
    sources.extend(kept.map(|one| Source {
        file: file_of(one),
        form: Form::Json,
        bytes: one.definition.as_bytes().to_vec(),
    }));
    sources.extend(also);
    let checked = check(&sources, &files.schemas);
    let versions: BTreeMap<_, _> = stored
        .iter()
        .filter(|one| !with_files || !files.agents.contains_key(&*one.agent))
        .map(|one| (one.agent.to_string(), one.version))
        .collect();
    let broken = stored
        .iter()
        .filter(|one| versions.contains_key(&*one.agent) && !checked.agents.contains_key(&*one.agent))
        .filter_map(|one| {
            let file = file_of(one);
            // Right by itself, as it was when it was put.
            let definition = Definition::read(one.definition.as_bytes(), Form::Json, &file).ok()?;
            let errors = checked.errors.iter().filter(|error| error.file == file);
            let mut errors: Vec<_> = errors.cloned().collect();
            if errors.is_empty() {
                errors.extend(lacking(&definition, &file, &checked.agents));
            }
            Some((one.agent.to_string(), Broken { definition, errors }))
        })
        .collect();
    let project = Project {
        agents: checked.agents,
        versions,
        broken,
    };
    (project, checked.errors)
}

/// A definition that is to be put, checked beside the others.
fn checked_beside(
    files: &FileAgents,
    is_default: bool,
    stored: &[StoredVersion],
    name: &str,
    source: Source,
) -> Result<Definition, AgentError> {
    let read = Definition::read_named(&source.bytes, source.form);
    let others: Vec<_> = stored.iter().filter(|one| &*one.agent != name).cloned().collect();
    let (project, mut errors) = checked_project(files, is_default, &others, Some(source));
    let called = match &read {
        Ok(definition) => Some(&definition.name),
        Err(called) => called.as_ref(),
    };
    let misnamed = called.filter(|called| *called != name).map(|called| DefinitionError {
        file: BODY.to_owned(),
        line: None,
        field: "name".to_owned(),
        found: format!("{called:?}"),
        allowed: format!("{name:?}, as the path says"),
    });
    let definition = match read {
        Ok(definition) if misnamed.is_none() => definition,
        // What the others could not do beside it nobody knows, as long as nobody knows what it is; and whether it has the name
        // of one of them is no matter where it is to have another.
        _ => {
            errors.retain(|error| error.file == BODY && !(misnamed.is_some() && error.field == "name"));
            errors.extend(misnamed);
            return Err(AgentError::WrongDefinition(errors));
        }
    };
    if !errors.is_empty() {
        // What is wrong already, since a file has changed, does not keep others from being put, nor from being mended one
        // after another.
        let (_, before) = checked_project(files, is_default, stored, None);
        // What is allowed names all others, and the new one among them.
        let what = |error: &DefinitionError| (error.file.clone(), error.field.clone(), error.found.clone());
        let known: BTreeSet<_> = before.iter().map(what).collect();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for error in &before {
            *counts.entry(&error.file).or_default() += 1;
        }
        // Of one with more mistakes than are told others may be told now; it was wrong before.
        let untold = |file: &str| counts.get(file).is_some_and(|count| *count > MOST_TOLD);
        errors.retain(|error| error.file == BODY || !(known.contains(&what(error)) || untold(&error.file)));
    }
    if !errors.is_empty() {
        return Err(AgentError::WrongDefinition(errors));
    }
    match project
        .agents
        .get(name)
        .and_then(|agent| agent.output_schema.as_deref())
    {
        Some(schema) => whole(definition, schema),
        None => Ok(definition),
    }
}

/// The definition with the schema that it names put into it. A version has to be the same for ever, and its hash to cover all
/// of it, whatever becomes of the file.
fn whole(mut definition: Definition, schema: &Value) -> Result<Definition, AgentError> {
    definition.put_in_schema(schema);
    // With the schema it may be longer than is taken.
    let text = definition.to_json().to_string();
    Definition::read(text.as_bytes(), Form::Json, BODY).map_err(AgentError::WrongDefinition)
}

/// Where the mistakes of a stored version stand.
fn file_of(stored: &StoredVersion) -> String {
    format!("{} (version {})", stored.agent, stored.version)
}

/// That an agent calls others which are wrong themselves.
fn lacking(definition: &Definition, file: &str, right: &Agents) -> Option<DefinitionError> {
    let wrong: BTreeSet<_> = definition
        .calls()
        .into_iter()
        .filter(|name| !right.contains_key(*name))
        .collect();
    let wrong: Vec<_> = wrong.into_iter().collect();
    (!wrong.is_empty()).then(|| DefinitionError {
        file: file.to_owned(),
        line: None,
        field: "the agents that it calls".to_owned(),
        found: format!("{}, wrong or calling one that is", wrong.join(", ")),
        allowed: "agents that are right".to_owned(),
    })
}

fn told(errors: &[DefinitionError]) -> String {
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    text::capped(&errors.join("; "), LONGEST_REASON).into_owned()
}

fn version_info(listed: &ListedVersion) -> VersionInfo {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise 5: whoever puts few small definitions that name each other often must not stop whoever lists them.
    #[test]
    fn an_agent_that_is_named_often_is_looked_at_once() {
        let last = "name: a5\ndescription: d\nsystemPrompt: s\ntools: [nowhere]\n".to_owned();
        let steps = |n: usize| {
            let steps = (0..500)
                .map(|step| format!("  - {{ name: s{step}, agent: a{n}, input: {{ query: \"${{query}}\" }} }}\n"));
            steps.collect::<String>()
        };
        let flows = (0..5).map(|n| {
            let steps = steps(n + 1);
            format!("name: a{n}\ndescription: d\nflow_type: sequential\nsteps:\n{steps}")
        });
        let sources = flows.chain([last]).enumerate().map(|(n, text)| Source {
            file: format!("a{n}.yaml"),
            form: Form::Yaml,
            bytes: text.into_bytes(),
        });
        let checked = check(&sources.collect::<Vec<_>>(), &[]);
        assert_eq!(checked.errors, []);
        let reason = unavailable("a0", &checked.agents, &Catalog::default(), &Models::default());
        let reason = reason.unwrap_or_default();
        assert!(
            reason.starts_with("it leads to a5, which is unavailable: nowhere: "),
            "{reason}"
        );
    }
}

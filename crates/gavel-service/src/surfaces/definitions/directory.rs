//! The known agents: those from files, and those created through the API.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::Semaphore;

use super::FileAgents;
use super::project::{Project, checked_project, definition, is_agent, own_reason, render_errors, unavailable};
use super::{read_token, token};
use crate::api::agents::{AgentDetail, AgentInfo, VersionDetail, VersionInfo};
use crate::api::problem::Code;
use crate::domain::ids::{DEFAULT_PROJECT, ProjectId, TenantId};
use crate::domain::tool::Tool;
use crate::engine::agent::Models;
use crate::ports::definitions::{Definitions, OneVersion};
use crate::ports::tools::{Catalog, Tools};
use crate::surfaces::decisions::{ListQuery, Page};
use crate::surfaces::problem::Problem;

/// Finds agents, and stores those that come through the API.
pub struct Directory {
    pub(super) files: Arc<ArcSwap<FileAgents>>,
    pub(super) store: Arc<dyn Definitions>,
    pub(super) tools: Arc<dyn Tools>,
    models: Models,
    checked: Mutex<HashMap<Key, Checked>>,
    /// Locks that serialize changes to a project; several projects may share one.
    pub(super) putting: [tokio::sync::Mutex<()>; TURNS],
    /// Limits concurrent checks: if many requests meet the same change at once, a few check it and the others find the
    /// result.
    checking: Semaphore,
}

/// The tenant and the project.
pub(super) type Key = (TenantId, ProjectId);

/// A project, and the inputs of its check.
type Checked = (Stamp, Arc<Project>);

/// The inputs of a project's check: the generation of the files, and each agent's version.
type Stamp = (u64, BTreeMap<Arc<str>, i64>);

/// Maximum number of cached projects; when it is reached, the cache is cleared and projects are checked again on
/// demand.
const MOST_KEPT: usize = 1024;
/// Maximum number of projects checked at once.
const CHECKED_AT_ONCE: usize = 2;
/// Maximum number of API agents in one project: all of them are checked together whenever one changes.
pub(super) const MOST_AGENTS: usize = 1000;
/// Maximum number of definitions put at once by this process, in different projects.
pub(super) const TURNS: usize = 16;
/// How long a request waits for servers that are connecting.
const SERVER_WAIT: Duration = Duration::from_secs(5);
/// A page of agents ends when its texts exceed this many bytes.
const MOST_PAGE_BYTES: usize = 1 << 20;

impl Directory {
    /// A directory over the store and over files, which their loader may replace.
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
    pub fn tool(&self, server: &str, name: &str) -> Option<Arc<Tool>> {
        let catalog = self.tools.catalog();
        let found = catalog
            .tools
            .iter()
            .find(|tool| &*tool.server == server && &*tool.name == name);
        found.cloned()
    }

    /// All tools, as their servers offer them now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.tools.catalog()
    }

    /// The current agents of files.
    pub fn files(&self) -> Arc<FileAgents> {
        self.files.load_full()
    }

    /// The agents of a project.
    ///
    /// # Errors
    /// There is no such project; the store is unavailable.
    pub async fn project(&self, tenant: &TenantId, project: &ProjectId) -> Result<Arc<Project>, Problem> {
        let numbers = self.store.numbers(tenant, project).await?;
        let is_default = project.as_str() == DEFAULT_PROJECT;
        if numbers.is_empty() && !is_default {
            return Err(Code::NotFound.into());
        }
        let files = self.files.load_full();
        let key = (tenant.clone(), project.clone());
        let stamp = (files.generation, numbers);
        if let Some(known) = self.known(&key, &stamp) {
            return Ok(known);
        }
        // The semaphore is never closed.
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

    /// The cached project, if its check had exactly these inputs.
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
    /// See [`Directory::project`].
    pub async fn list(&self, tenant: &TenantId, id: &ProjectId) -> Result<Vec<AgentInfo>, Problem> {
        let project = self.project(tenant, id).await?;
        let catalog = self.tools.catalog();
        let names: BTreeSet<_> = project.agents.keys().chain(project.broken.keys()).collect();
        Ok(names
            .into_iter()
            .filter_map(|name| self.info(id, &project, name, &catalog))
            .collect())
    }

    /// A page of the agents of a project, by name. It ends early when its texts become long.
    ///
    /// # Errors
    /// See [`Directory::project`]; the token belongs to another list.
    pub async fn page(&self, tenant: &TenantId, id: &ProjectId, query: &ListQuery) -> Result<Page<AgentInfo>, Problem> {
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
        Ok(Page {
            items: agents,
            next_page_token,
        })
    }

    /// One agent.
    ///
    /// # Errors
    /// See [`Directory::project`]; there is no such agent.
    pub async fn get(&self, tenant: &TenantId, id: &ProjectId, name: &str) -> Result<AgentDetail, Problem> {
        let project = self.project(tenant, id).await?;
        let about = self.info(id, &project, name, &self.tools.catalog());
        let definition = definition(&project, name).ok_or(Code::NotFound)?.to_json();
        let about = about.ok_or(Code::NotFound)?;
        Ok(AgentDetail { about, definition })
    }

    /// A page of the versions of an agent that came through the API, newest first.
    ///
    /// # Errors
    /// There is no such agent, or it is from a file; the query is invalid; the store is unavailable.
    pub async fn versions(
        &self,
        tenant: &TenantId,
        id: &ProjectId,
        name: &str,
        query: &ListQuery,
    ) -> Result<Page<VersionInfo>, Problem> {
        let page = self.store.versions(tenant, id, name, query).await?;
        if page.items.is_empty() && query.page_token.is_none() {
            return Err(Code::NotFound.into());
        }
        Ok(page)
    }

    /// One version of an agent that came through the API.
    ///
    /// # Errors
    /// There is no such agent or version, or it is from a file; the store is unavailable, or the stored definition
    /// cannot be read.
    pub async fn version(
        &self,
        tenant: &TenantId,
        id: &ProjectId,
        name: &str,
        version: i64,
    ) -> Result<VersionDetail, Problem> {
        let found = self.store.version(tenant, id, name, version).await?;
        let OneVersion { about, definition } = found.ok_or(Code::NotFound)?;
        let definition = serde_json::from_str(&definition).map_err(|error| {
            tracing::error!(agent = %name, %version, %error, "a stored definition cannot be read");
            Code::RecordUnavailable
        })?;
        Ok(VersionDetail { about, definition })
    }

    pub(super) fn info(&self, id: &ProjectId, project: &Project, name: &str, catalog: &Catalog) -> Option<AgentInfo> {
        let definition = definition(project, name)?;
        let reason = self.reason(project, name, catalog);
        let version = project.versions.get(name).copied();
        let is_agent = |name: &str| is_agent(project, name);
        Some(AgentInfo {
            id: name.to_owned(),
            project_id: id.as_str().to_owned(),
            display_name: definition.display_name.clone(),
            description: definition.description.clone(),
            flow_type: definition.flow.as_str().to_owned(),
            tools: definition.server_tools(is_agent),
            calls: definition.calls(is_agent).into_iter().map(str::to_owned).collect(),
            source: if version.is_some() { "api" } else { "file" }.into(),
            version,
            definition_hash: definition.hash.to_string(),
            available: reason.is_none(),
            unavailable_reason: reason,
        })
    }

    /// Why an agent cannot run now.
    fn reason(&self, project: &Project, name: &str, catalog: &Catalog) -> Option<String> {
        match project.agents.contains_key(name) {
            true => unavailable(name, &project.agents, catalog, &self.models),
            false => project.broken.get(name).map(|broken| render_errors(&broken.errors)),
        }
    }
}

impl Directory {
    /// Which of these tools servers offer now. Waits for servers that are connecting.
    pub async fn offered(&self, names: Vec<String>) -> Vec<String> {
        self.tools.ready(&names, Instant::now() + SERVER_WAIT).await;
        let catalog = self.tools.catalog();
        let is_offered = |name: &String| catalog.tools.iter().any(|tool| tool.is_called(name));
        names.into_iter().filter(is_offered).collect()
    }

    /// The tools that an agent may use, as their servers offer them now. Waits for servers that are connecting. The
    /// agent can run without its other tools, but not without the `needed` ones.
    ///
    /// # Errors
    /// Why the agent cannot run now.
    pub async fn tools_of(&self, project: &Project, name: &str, needed: &[&str]) -> Result<Vec<Arc<Tool>>, String> {
        let agent = project
            .agents
            .get(name)
            .ok_or_else(|| format!("there is no agent {name:?}"))?;
        let granted = agent.definition.server_tools(|name| is_agent(project, name));
        self.tools.ready(&granted, Instant::now() + SERVER_WAIT).await;
        let catalog = self.tools.catalog();
        let mut least = (*agent.definition).clone();
        least.tools.retain(|tool| needed.contains(&tool.as_str()));
        match own_reason(&least, &project.agents, &catalog, &self.models) {
            Some(reason) => Err(reason),
            None => {
                let tools = catalog
                    .tools
                    .iter()
                    .filter(|tool| granted.iter().any(|name| tool.is_called(name)));
                Ok(tools.cloned().collect())
            }
        }
    }
}

/// Runs slow work on a blocking thread. A panic in it is resumed here.
pub(super) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

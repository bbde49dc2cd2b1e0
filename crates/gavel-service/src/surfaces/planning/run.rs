//! Begins the runs of planning sessions, and finds those that the same request began before.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::checks::{missing, project};
use super::{BegunPlanning, Planning, PlanningError};
use crate::domain::ids::{PlanningSessionId, UserId};
use crate::domain::policy::{PLANNING, SessionFacts};
use crate::domain::repository::Repository;
use crate::domain::tool::Tool;
use crate::engine::agent::Settings;
use crate::engine::snapshot::DefinitionSnapshot;
use crate::ports::runs::InSession;
use crate::surfaces::StoreFailure;
use crate::surfaces::caller::Caller;
use crate::surfaces::definitions::Project;
use crate::surfaces::request::RequestMeta;
use crate::surfaces::runs::{Begin, Origin, RunError};

/// A run of one of the agents of planning.
pub(super) struct SessionRun {
    pub(super) agent: &'static str,
    pub(super) place: InSession,
    pub(super) snapshot: Arc<DefinitionSnapshot>,
    pub(super) settings: Settings,
    /// The recorded message.
    pub(super) task: String,
    pub(super) background: bool,
    pub(super) meta: RequestMeta,
}

impl Planning {
    /// The session that the same request began before, or worked on.
    pub(super) async fn begun_before(&self, meta: &RequestMeta) -> Result<Option<BegunPlanning>, PlanningError> {
        let Some(begun) = self.runs.begun_before(meta).await? else {
            return Ok(None);
        };
        let session = self
            .sessions
            .session_of(begun.run)
            .await?
            .ok_or(StoreFailure::NotFound)?;
        Ok(Some(BegunPlanning { session, begun }))
    }

    /// The project of an agent that can run now, and those of its tools that servers offer: the `needed` ones, and others.
    pub(super) async fn ready(
        &self,
        caller: &Caller,
        agent: &str,
        needed: &[&str],
    ) -> Result<(Arc<Project>, Vec<Arc<Tool>>), PlanningError> {
        let project = self.directory.project(&caller.tenant, &project()).await?;
        if !project.agents.contains_key(agent) {
            return Err(missing(agent));
        }
        let tools = self.directory.tools_of(&project, agent, needed).await;
        let tools =
            tools.map_err(|reason| PlanningError::Unavailable(format!("the agent {agent} cannot run: {reason}")))?;
        Ok((project, tools))
    }

    /// Begins a run.
    pub(super) async fn begin(
        &self,
        caller: &Caller,
        user: UserId,
        of: &Project,
        run: SessionRun,
    ) -> Result<BegunPlanning, PlanningError> {
        let session = run.place.session;
        let begin = Begin {
            surface: PLANNING,
            origin: Origin::Session(run.place),
            project: project(),
            agent: run.agent.into(),
            version: of.versions.get(run.agent).copied(),
            snapshot: run.snapshot,
            inputs: Map::from_iter([("task".to_owned(), Value::from(run.task))]),
            settings: run.settings,
            background: run.background,
            meta: run.meta,
        };
        let begun = self.runs.begin(caller, user, begin).await.map_err(moved)?;
        let session = match begun.replayed {
            // Another request with the same key came first.
            true => self.sessions.session_of(begun.run).await?.unwrap_or(session),
            false => session,
        };
        Ok(BegunPlanning { session, begun })
    }
}

/// What the gate and the rules know of a session, by the names of `SessionFacts::FIELDS`.
pub(super) fn bound(session: PlanningSessionId, repository: &Repository) -> BTreeMap<String, String> {
    let (id, owner, repo) = (session.to_string(), repository.owner.clone(), repository.name.clone());
    let values = SessionFacts::FIELDS.into_iter().zip([id, owner, repo]);
    values.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn moved(error: RunError) -> PlanningError {
    match error {
        RunError::SessionMoved(status, version) => PlanningError::Moved(status, version),
        error => PlanningError::Run(error),
    }
}

//! Confirms a plan, and begins the work on it (P-205, P-301). Only a person's request does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::begin::bound;
use super::checks::{confirmed_words, not_allowed, unavailable, values_error};
use super::{BegunPlanning, Execution, FLOOR, Planning};
use crate::api::planning::{Confirmation, ExecuteBody};
use crate::api::problem::Code;
use crate::domain::definition::Definition;
use crate::domain::ids::{PlanningSessionId, ProjectId, UserId};
use crate::domain::plan::Plan;
use crate::domain::planning_session::{SessionStatus, TASK_WORKER};
use crate::domain::repository::Repository;
use crate::engine::agent::Settings;
use crate::engine::strategy::plan::{Execution as PlanWork, Scope};
use crate::ports::planning::StoredSession;
use crate::ports::runs::{InSession, SessionWork};
use crate::surfaces::caller::Caller;
use crate::surfaces::problem::Problem;
use crate::surfaces::request::RequestMeta;
use crate::surfaces::runs::Resume;

/// Interval between two looks at a session whose run has ended without moving it on; the sweep does that.
const LOOK: Duration = Duration::from_millis(250);
/// How often to look.
const LOOKS: u32 = 40;

/// A plan that can be confirmed: what its confirmation allows, and where.
pub(super) struct Confirmable {
    pub(super) repository: Repository,
    pub(super) scope: Scope,
}

impl Planning {
    /// Confirms the current version of a plan and begins the work on it (P-F3). A session that was executed before is left
    /// as it is, unless it failed since its processes were lost: then its work continues.
    ///
    /// # Errors
    /// There is no such session; it does not wait for confirmation with this version; `ask_for` names an unknown tool;
    /// an agent or a tool that the work needs is unavailable.
    pub async fn execute_plan(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        session: PlanningSessionId,
        execute: &ExecuteBody,
        meta: RequestMeta,
    ) -> Result<Execution, Problem> {
        if let Some(before) = self.begun_before(&meta).await? {
            return Ok(before.into());
        }
        let stored = self.stored(caller, user, session).await?;
        if stored.started_us.is_some() {
            return Ok(match self.continued(caller, user, &stored, meta).await? {
                Some(begun) => begun.into(),
                None => (&stored).into(),
            });
        }
        let tools = self.worker_tools(caller).await?;
        let confirmation = self.confirmation(caller, &stored, execute, &tools)?;
        match self.begin_work(caller, user, stored, confirmation, meta).await {
            Ok(begun) => Ok(begun.into()),
            // Another request may have confirmed the plan first.
            Err(moved) if moved.is_of_moved_session() => {
                let stored = self.stored(caller, user, session).await?;
                match stored.started_us {
                    Some(_) => Ok((&stored).into()),
                    None => Err(moved),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Resumes the run of a session that failed with it, if its processes were lost and the deadline has not passed.
    async fn continued(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        stored: &StoredSession,
        meta: RequestMeta,
    ) -> Result<Option<BegunPlanning>, Problem> {
        let resume = Resume {
            settled: BTreeMap::new(),
            timeout: None,
            meta,
        };
        let session = stored.id;
        match self.runs.resume(caller, user.cloned(), stored.run, resume).await {
            Ok(begun) => Ok(Some(BegunPlanning { session, begun })),
            Err(problem) if [Code::NotPaused, Code::DeadlinePassed].contains(&problem.code) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Checks whether the plan of a session can be confirmed now. `tools` are all that a task may name.
    pub(super) fn confirmation(
        &self,
        caller: &Caller,
        stored: &StoredSession,
        execute: &ExecuteBody,
        tools: &[String],
    ) -> Result<Confirmable, Problem> {
        self.waits_for_confirmation(stored)?;
        if execute.plan_version.is_some_and(|version| version != stored.version) {
            return Err(Problem::session_moved(stored.status, stored.version));
        }
        let errors: Vec<_> = values_error("/askFor", &execute.ask_for, tools).collect();
        if !errors.is_empty() {
            return Err(Problem::from(errors));
        }
        let repository = self.repository(stored)?;
        if !self.settings.repositories.allow(&caller.tenant, &repository) {
            return Err(not_allowed(repository));
        }
        Ok(Confirmable {
            repository,
            scope: self.scope_of(stored, &execute.ask_for),
        })
    }

    /// Begins the run that works through the plan.
    async fn begin_work(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        stored: StoredSession,
        confirmation: Confirmable,
        meta: RequestMeta,
    ) -> Result<BegunPlanning, Problem> {
        let project = self.directory.project(&caller.tenant, &ProjectId::default()).await?;
        let tools = self.worker_tools(caller).await?;
        has_tools(&stored.plan, &tools)?;
        let worker = project.agents.get(TASK_WORKER).ok_or(Code::NotFound)?;
        let by = caller.person(user);
        let scope = Scope {
            confirmed: Some(Confirmation {
                by: by.clone(),
                version: stored.version,
            }),
            ..confirmation.scope
        };
        let task = stored.prompt.to_string();
        let mut words = confirmed_words(&stored);
        words.push(self.feedback(&stored).await?);
        let work = PlanWork {
            session: stored.id,
            goal: task.clone(),
            repo_url: stored.repo_url.to_string(),
            plan: stored.plan,
            tools,
            rules: self.settings.rules.clone(),
        };
        let settings = Settings {
            until_us: Some(stored.deadline_us),
            floor: Some(FLOOR),
            bound: Some(Arc::new(bound(work.session, &confirmation.repository))),
            words: Some(Arc::new(words)),
            scope: Some(Arc::new(scope)),
            execution: Some(Arc::new(work)),
            ..unlimited(&worker.definition, meta.traceparent.clone())
        };
        let work = SessionWork::Execute {
            version: stored.version,
            by: by.into(),
        };
        let (session, worker) = (stored.id, project.choose(ProjectId::default(), TASK_WORKER)?);
        let place = (InSession { session, work }, task);
        self.begin(caller, stored.user, worker, place, settings, meta).await
    }
}

/// Are the tools of the plan there?
fn has_tools(plan: &Plan, tools: &[String]) -> Result<(), Problem> {
    let named: BTreeSet<_> = plan.tasks.iter().flat_map(|task| &task.tools).collect();
    let missing: Vec<_> = named
        .into_iter()
        .filter(|name| !tools.contains(name))
        .map(String::as_str)
        .collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(unavailable(format!(
            "tools of the plan are unavailable: {}; `gavel doctor` shows the reason",
            missing.join(", ")
        ))),
    }
}

/// The settings of the outermost run: the limits of the definition are those of a task, and a session has its own.
fn unlimited(definition: &Definition, traceparent: Option<String>) -> Settings {
    Settings {
        steps: None,
        time_us: None,
        tokens: None,
        ..Settings::top(definition, None, traceparent)
    }
}

impl From<BegunPlanning> for Execution {
    fn from(begun: BegunPlanning) -> Self {
        Self {
            session: begun.session,
            run: begun.begun.run,
            begun: Some(begun.begun),
        }
    }
}

/// The session was executed before.
impl From<&StoredSession> for Execution {
    fn from(stored: &StoredSession) -> Self {
        Self {
            session: stored.id,
            run: stored.run,
            begun: None,
        }
    }
}

impl Planning {
    /// Waits until the session has ended, or the service stops.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn ended(&self, caller: &Caller, execution: &Execution) -> Result<(), Problem> {
        let run = self.runs.ended(caller, execution.run).await?;
        if !run.status.has_ended() {
            return Ok(());
        }
        for _ in 0..LOOKS {
            let stored = self.stored(caller, None, execution.session).await?;
            if stored.status != SessionStatus::Executing {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

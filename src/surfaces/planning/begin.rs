//! Begins sessions and the runs that plan: a new session, and another version of its plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::checks::{draft_of, missing, project, prompt_error, values};
use super::opening::{FIRST, REFINED, opening};
use super::{BegunPlanning, Planning, PlanningError, RefinePlan, Session, StartPlanning};
use crate::domain::definition::Approval;
use crate::domain::ids::{PlanningSessionId, UserId};
use crate::domain::plan::{self, Plan};
use crate::domain::planning_session::PLANNER;
use crate::domain::policy::PLANNING;
use crate::domain::repository::Repository;
use crate::engine::agent::Settings;
use crate::engine::opening::Opening;
use crate::engine::planning::PlanningWork;
use crate::ports::planning::{StoredSession, VersionKind};
use crate::ports::runs::{InSession, SessionWork};
use crate::surfaces::StoreFailure;
use crate::surfaces::caller::Caller;
use crate::surfaces::request::RequestMeta;
use crate::surfaces::runs::{Begin, Origin, RunError};

/// The most earlier versions whose texts a refinement sees.
const MOST_VERSIONS: u32 = 20;
/// The most bytes of these texts.
const FEEDBACK: usize = 64 * 1024;

/// A run that plans, as its surface decides about it.
struct Work {
    place: InSession,
    opening: Opening,
    /// No call may name another repository.
    bound: BTreeMap<String, String>,
    work: PlanningWork,
    /// The recorded message.
    task: String,
    deadline_us: i64,
    background: bool,
    meta: RequestMeta,
    zone: Option<chrono_tz::Tz>,
}

impl Planning {
    /// Begins a session, and the run that makes its first plan (P-201).
    ///
    /// # Errors
    /// [`PlanningError`]; what goes wrong later is the reason of the session.
    pub async fn start(
        &self,
        caller: &Caller,
        user: UserId,
        start: StartPlanning,
    ) -> Result<BegunPlanning, PlanningError> {
        // First: a deadline that was far enough ahead may be too near when the request is sent again.
        if let Some(before) = self.begun_before(&start.meta).await? {
            return Ok(before);
        }
        let (repository, deadline_us) = self.checked(&start)?;
        let repo_url = self.settings.repositories.address(&repository);
        if !self.settings.repositories.allow(&caller.tenant, &repository) {
            return Err(PlanningError::RepositoryNotAllowed(repository.to_string()));
        }
        self.has_room(caller, &user).await?;
        let tools = self.worker_tools(caller).await?;
        let session = PlanningSessionId::new();
        let goal: Arc<str> = start.prompt.as_str().into();
        let work = PlanningWork {
            tools,
            current: None,
            last: 0,
            by: caller.person(Some(&user)).into(),
            why: Arc::clone(&goal),
        };
        let values = values(&work.tools, &goal, &repo_url, deadline_us);
        let work = Work {
            place: InSession {
                session,
                work: SessionWork::Start {
                    prompt: goal,
                    repo_url: repo_url.into(),
                    deadline_us,
                },
            },
            opening: opening(&repository, FIRST, values),
            bound: bound(&repository),
            work,
            task: start.prompt,
            deadline_us,
            background: start.background,
            meta: start.meta,
            zone: start.time_zone,
        };
        self.begin(caller, user, work).await
    }

    /// Asks for another version of the plan (P-204).
    ///
    /// # Errors
    /// As [`Planning::start`]; the session does not wait for its confirmation.
    pub async fn refine(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        refine: RefinePlan,
    ) -> Result<BegunPlanning, PlanningError> {
        let errors = prompt_error("/refinementPrompt", &refine.refinement_prompt);
        if let Some(error) = errors {
            return Err(PlanningError::invalid(vec![error]));
        }
        if let Some(before) = self.begun_before(&refine.meta).await? {
            return Ok(before);
        }
        let stored = self.open_for_changes(caller, user, refine.session).await?;
        let repository = self.settings.repositories.parse(&stored.repo_url);
        let repository = repository.map_err(|_| PlanningError::RepositoryNotAllowed(stored.repo_url.to_string()))?;
        let tools = self.worker_tools(caller).await?;
        let change: Arc<str> = refine.refinement_prompt.as_str().into();
        let feedback = self.feedback(&stored).await?;
        let mut values = values(&tools, &stored.prompt, &stored.repo_url, stored.deadline_us);
        values.insert("plan".to_owned(), draft_of(&stored));
        values.insert("feedback".to_owned(), feedback);
        values.insert("change".to_owned(), change.to_string());
        let work = Work {
            place: InSession {
                session: stored.id,
                work: SessionWork::Refine {
                    version: stored.version,
                },
            },
            opening: opening(&repository, REFINED, values),
            bound: bound(&repository),
            work: PlanningWork {
                tools,
                last: stored.plan.last,
                current: Some(stored.plan.tasks),
                by: caller.person(user).into(),
                why: change,
            },
            task: refine.refinement_prompt,
            deadline_us: stored.deadline_us,
            background: refine.background,
            meta: refine.meta,
            zone: None,
        };
        self.begin(caller, stored.user, work).await
    }

    /// Waits until the run that plans has ended. Returns the session.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn wait(&self, caller: &Caller, begun: &mut BegunPlanning) -> Result<Session, PlanningError> {
        self.runs.wait(caller, &mut begun.begun).await?;
        Ok(self.session(caller, None, begun.session).await?)
    }

    /// What persons asked to change before, oldest first, as far as it fits.
    async fn feedback(&self, stored: &StoredSession) -> Result<String, PlanningError> {
        let after = stored.version.saturating_sub(MOST_VERSIONS).max(1);
        let versions = self.sessions.versions(stored.id, after, MOST_VERSIONS).await?;
        let refined = versions
            .iter()
            .rev()
            .filter(|version| version.kind == VersionKind::Refined);
        let mut room = FEEDBACK;
        let fits = refined.map_while(|version| {
            room = room.checked_sub(version.why.len())?;
            Some(format!("- {}", version.why))
        });
        let mut lines: Vec<_> = fits.collect();
        lines.reverse();
        Ok(lines.join("\n"))
    }

    /// The session that the same request began before, or worked on.
    async fn begun_before(&self, meta: &RequestMeta) -> Result<Option<BegunPlanning>, PlanningError> {
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

    /// Begins the run of the agent `planner`.
    async fn begin(&self, caller: &Caller, user: UserId, work: Work) -> Result<BegunPlanning, PlanningError> {
        let project = self.directory.project(&caller.tenant, &self::project()).await?;
        let planner = project.agents.get(PLANNER).ok_or_else(|| missing(PLANNER))?;
        let readers = self
            .directory
            .tools_of(&project, PLANNER)
            .await
            .map_err(|reason| PlanningError::Unavailable(format!("the agent {PLANNER} cannot run: {reason}")))?;
        if let Some(tool) = readers.iter().find(|tool| tool.side_effect) {
            let reason = format!(
                "the agent {PLANNER} is granted {}, which can change something",
                tool.name
            );
            return Err(PlanningError::Unavailable(reason));
        }
        let current = work.work.current.as_ref().map(|tasks| Plan {
            tasks: tasks.clone(),
            last: work.work.last,
        });
        let schema = plan::schema(&work.work.tools, current.as_ref());
        let snapshot = project.snapshot(PLANNER).ok_or(StoreFailure::NotFound)?;
        let settings = Settings {
            until_us: Some(work.deadline_us),
            zone: work.zone,
            floor: Some(Approval::SideEffects),
            bound: Some(Arc::new(work.bound)),
            opening: Some(Arc::new(work.opening)),
            planning: Some(Arc::new(work.work)),
            ..Settings::top(&planner.definition, None, work.meta.traceparent.clone())
        };
        let session = work.place.session;
        let begin = Begin {
            surface: PLANNING,
            origin: Origin::Session(work.place),
            project: self::project(),
            agent: PLANNER.into(),
            version: project.versions.get(PLANNER).copied(),
            snapshot: Arc::new(snapshot.with_output_schema(PLANNER, schema)),
            inputs: Map::from_iter([("task".to_owned(), Value::from(work.task))]),
            settings,
            background: work.background,
            meta: work.meta,
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

/// The values that the arguments of every call must have.
fn bound(repository: &Repository) -> BTreeMap<String, String> {
    let values = [("owner", &repository.owner), ("repo", &repository.name)];
    values.map(|(name, value)| (name.to_owned(), value.clone())).into()
}

fn moved(error: RunError) -> PlanningError {
    match error {
        RunError::SessionMoved(status, version) => PlanningError::Moved(status, version),
        error => PlanningError::Run(error),
    }
}

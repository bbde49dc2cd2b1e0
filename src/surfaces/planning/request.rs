//! The requests that make, change and cancel plans. Each is checked as a whole, with all its errors at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use serde_json::{Map, Value, json};

use super::opening::{FIRST, REFINED, opening};
use super::{BegunPlanning, EditPlan, MAX_PROMPT, Planning, PlanningError, RefinePlan, Session, StartPlanning};
use crate::domain::definition::Approval;
use crate::domain::ids::{DEFAULT_PROJECT, PlanningSessionId, ProjectId, UserId};
use crate::domain::plan::{self, Plan, difference};
use crate::domain::planning_session::SessionStatus;
use crate::domain::policy::PLANNING;
use crate::domain::repository::Repository;
use crate::domain::time::rfc3339;
use crate::engine::agent::Settings;
use crate::engine::opening::Opening;
use crate::engine::planning::PlanningWork;
use crate::ports::planning::{MadePlan, Moved, PlanEdit, PlanNotes, SessionCancel, StoredSession};
use crate::ports::runs::{InSession, SessionWork};
use crate::surfaces::caller::Caller;
use crate::surfaces::request::{FieldError, RequestMeta};
use crate::surfaces::runs::{Begin, Origin, RunError};
use crate::surfaces::{OutcomeUnknown, StoreFailure};

/// The agent that plans.
const PLANNER: &str = "planner";
/// The agent that works on tasks; its tools are those that a task may name.
const TASK_WORKER: &str = "task_worker";
/// A deadline is at least this far ahead.
const LEAST: Duration = Duration::from_secs(10);
/// The most versions whose texts a refinement sees.
const MOST_VERSIONS: u32 = 100;

/// A run that plans, as its surface decides about it.
struct Work {
    place: InSession,
    opening: Opening,
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
        let (repository, deadline_us) = self.checked(&start)?;
        if let Some(before) = self.begun_before(&start.meta).await? {
            return Ok(before);
        }
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
        let values = values(&work.tools, &goal, &start.repo_url, deadline_us);
        let work = Work {
            place: InSession {
                session,
                work: SessionWork::Start {
                    prompt: goal,
                    repo_url: start.repo_url.as_str().into(),
                    deadline_us,
                },
            },
            opening: opening(&repository, FIRST, values),
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
        let versions = self.sessions.versions(stored.id, 1, MOST_VERSIONS).await?;
        let feedback: Vec<_> = versions.iter().map(|version| format!("- {}", version.why)).collect();
        let mut values = values(&tools, &stored.prompt, &stored.repo_url, stored.deadline_us);
        values.insert("plan".to_owned(), draft_of(&stored));
        values.insert("feedback".to_owned(), feedback.join("\n"));
        values.insert("change".to_owned(), change.to_string());
        let work = Work {
            place: InSession {
                session: stored.id,
                work: SessionWork::Refine {
                    version: stored.version,
                },
            },
            opening: opening(&repository, REFINED, values),
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

    /// Writes a version that a person edited, checked like the model's.
    ///
    /// # Errors
    /// The draft is invalid; the session does not wait for its confirmation with this version.
    pub async fn edit(&self, caller: &Caller, user: Option<&UserId>, edit: EditPlan) -> Result<Session, PlanningError> {
        let stored = self.open_for_changes(caller, user, edit.session).await?;
        if stored.version != edit.version {
            return Err(PlanningError::Moved(stored.status, stored.version));
        }
        let tools = self.worker_tools(caller).await?;
        let notes = PlanNotes {
            summary: edit.draft.summary.clone(),
            assumptions: edit.draft.assumptions.clone(),
            risks: edit.draft.risks.clone(),
        };
        let plan = Plan::of(edit.draft, stored.id, Some(&stored.plan), &tools).map_err(|errors| {
            let errors = errors
                .into_iter()
                .map(|error| FieldError::new(error.pointer, error.detail));
            PlanningError::invalid(errors.collect())
        })?;
        let edited = PlanEdit {
            session: stored.id,
            version: edit.version,
            made: MadePlan {
                changes: difference(Some(&stored.plan), &plan),
                plan,
                notes,
                by: caller.person(user).into(),
                why: "edited by hand".into(),
            },
            claim: edit.meta.idempotency,
            at_us: self.runs.now_us(),
        };
        let unknown = unknown("It is unknown whether the plan was changed. Read the session to find out.");
        let moved = self
            .sessions
            .edit(edited)
            .await
            .map_err(|error| unknown.after(&error))?;
        done(moved)?;
        Ok(self.session(caller, user, stored.id).await?)
    }

    /// Cancels a session, and the run that works for it. A session that is over remains unchanged.
    ///
    /// # Errors
    /// There is no such session; the store is unavailable.
    pub async fn cancel(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        session: PlanningSessionId,
        reason: Option<String>,
    ) -> Result<Session, PlanningError> {
        let before = self.session(caller, user, session).await?;
        if before.status.has_ended() {
            return Ok(before);
        }
        let cancel = SessionCancel {
            session,
            by: caller.person(user).into(),
            why: reason.filter(|reason| !reason.trim().is_empty()).map(Into::into),
            at_us: self.runs.now_us(),
        };
        let unknown = unknown("It is unknown whether the session was cancelled. Read it to find out.");
        let moved = self
            .sessions
            .cancel(cancel)
            .await
            .map_err(|error| unknown.after(&error))?;
        if moved == Moved::NotFound {
            return Err(StoreFailure::NotFound.into());
        }
        if before.status == SessionStatus::Planning {
            // Known to the store already; this reaches the run at once if this process works on it.
            self.runs.interrupt(before.run_id);
        }
        Ok(self.session(caller, user, session).await?)
    }

    /// Ends sessions whose deadline has passed. Returns how many.
    pub async fn sweep(&self) -> u32 {
        const AT_ONCE: u32 = 100;
        match self.sessions.sweep(self.runs.now_us(), AT_ONCE).await {
            Ok(count) => count,
            Err(error) => {
                tracing::warn!(%error, "planning sessions past their deadline could not be ended; tried again soon");
                0
            }
        }
    }

    /// The repository and the deadline of a valid request, the latter in microseconds since the epoch.
    fn checked(&self, start: &StartPlanning) -> Result<(Repository, i64), PlanningError> {
        let mut errors = Vec::from_iter(prompt_error("/prompt", &start.prompt));
        let repository = self.settings.repositories.parse(&start.repo_url);
        let deadline = self.deadline(&start.deadline);
        match (repository, deadline) {
            (Ok(repository), Ok(deadline)) if errors.is_empty() => return Ok((repository, deadline)),
            (repository, deadline) => {
                errors.extend(repository.err().map(|detail| FieldError::new("/repoUrl", detail)));
                errors.extend(deadline.err().map(|detail| FieldError::new("/deadline", detail)));
            }
        }
        Err(PlanningError::invalid(errors))
    }

    fn deadline(&self, text: &str) -> Result<i64, String> {
        let hours = self.settings.max_hours;
        let allowed = format!(
            "allowed: RFC 3339 with an offset, such as 2026-12-01T18:00:00Z, {} seconds to {hours} hours ahead",
            LEAST.as_secs()
        );
        let Ok(at) = DateTime::parse_from_rfc3339(text) else {
            return Err(format!("is {text:?}; {allowed}"));
        };
        let left = at.timestamp_micros().saturating_sub(self.runs.now_us());
        let most = i64::from(hours) * 3_600_000_000;
        match left {
            left if left < 0 => Err(format!("is {text:?}, which has passed; {allowed}")),
            left if left < 1_000_000 * LEAST.as_secs().cast_signed() => {
                Err(format!("is {text:?}, too near; {allowed}"))
            }
            left if left > most => Err(format!("is {text:?}, too far ahead; {allowed}")),
            _ => Ok(at.timestamp_micros()),
        }
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

    async fn has_room(&self, caller: &Caller, user: &UserId) -> Result<(), PlanningError> {
        let open = self.sessions.open(&caller.tenant, user).await?;
        let limits = [
            (
                open.of_user,
                self.settings.sessions_per_user,
                "the user has",
                "planning.sessions_per_user",
            ),
            (open.of_all, self.settings.sessions, "there are", "planning.sessions"),
        ];
        match limits.into_iter().find(|(open, most, ..)| open >= most) {
            Some((_, most, whose, setting)) => Err(PlanningError::TooManySessions { whose, most, setting }),
            None => Ok(()),
        }
    }

    /// A session that waits for its confirmation, so that its plan can be changed.
    async fn open_for_changes(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        session: PlanningSessionId,
    ) -> Result<StoredSession, PlanningError> {
        let found = self
            .sessions
            .session(&caller.tenant, caller.sees(user), session)
            .await?;
        let stored = found.ok_or(StoreFailure::NotFound)?;
        if !stored.status.has_ended() && stored.deadline_us <= self.runs.now_us() {
            return Err(PlanningError::DeadlinePassed(stored.deadline_us));
        }
        match stored.status {
            SessionStatus::AwaitingConfirmation => Ok(stored),
            SessionStatus::DeadlineExceeded => Err(PlanningError::DeadlinePassed(stored.deadline_us)),
            status => Err(PlanningError::Moved(status, stored.version)),
        }
    }

    /// The tools that a task may name: those of the agent that works on tasks.
    async fn worker_tools(&self, caller: &Caller) -> Result<Vec<String>, PlanningError> {
        let project = self.directory.project(&caller.tenant, &project()).await?;
        let worker = project.agents.get(TASK_WORKER);
        let worker = worker.ok_or_else(|| missing(TASK_WORKER))?;
        let is_agent = |name: &str| project.agents.contains_key(name);
        Ok(worker.definition.server_tools(is_agent))
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

fn project() -> ProjectId {
    ProjectId::parse(DEFAULT_PROJECT).unwrap_or_else(|_| unreachable!("it is a valid id"))
}

fn missing(agent: &str) -> PlanningError {
    PlanningError::Unavailable(format!("there is no agent {agent:?}"))
}

fn unknown(detail: &'static str) -> OutcomeUnknown {
    OutcomeUnknown::new(None, detail)
}

fn moved(error: RunError) -> PlanningError {
    match error {
        RunError::SessionMoved(status, version) => PlanningError::Moved(status, version),
        error => PlanningError::Run(error),
    }
}

fn done(moved: Moved) -> Result<(), PlanningError> {
    match moved {
        Moved::Yes => Ok(()),
        Moved::No(status, version) => Err(PlanningError::Moved(status, version)),
        Moved::Mismatch => Err(StoreFailure::KeyReused.into()),
        Moved::NotFound => Err(StoreFailure::NotFound.into()),
    }
}

fn prompt_error(pointer: &str, prompt: &str) -> Option<FieldError> {
    let detail = match prompt.len() {
        _ if prompt.trim().is_empty() => "must not be empty".to_owned(),
        bytes if bytes > MAX_PROMPT => format!("has {bytes} bytes; at most {MAX_PROMPT} are allowed"),
        _ => return None,
    };
    Some(FieldError::new(pointer, detail))
}

/// What the templates insert besides what is read.
fn values(tools: &[String], goal: &str, repo_url: &str, deadline_us: i64) -> BTreeMap<String, String> {
    let values = [
        ("goal", goal.to_owned()),
        ("repo_url", repo_url.to_owned()),
        ("deadline", rfc3339(deadline_us)),
        ("tools", tools.join(", ")),
    ];
    values
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The current plan as the model hands one in, with the ids of its tasks.
fn draft_of(stored: &StoredSession) -> String {
    let tasks = stored.plan.tasks.iter().map(|task| {
        json!({"id": task.id, "title": task.title, "goal": task.goal, "doneWhen": task.done_when, "tools": task.tools})
    });
    let notes = &stored.notes;
    json!({
        "summary": notes.summary,
        "tasks": tasks.collect::<Vec<_>>(),
        "assumptions": notes.assumptions,
        "risks": notes.risks,
    })
    .to_string()
}

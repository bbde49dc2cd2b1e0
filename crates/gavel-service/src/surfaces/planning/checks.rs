//! What a request must fulfil, checked as a whole with all its errors at once, and what every plan is made from.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use chrono::DateTime;
use chrono_tz::Tz;
use serde_json::json;

use super::Planning;
use crate::api::planning::StartBody;
use crate::api::problem::{Code, FieldError};
use crate::domain::definition::quoted;
use crate::domain::ids::{PlanningSessionId, ProjectId, UserId};
use crate::domain::planning_session::{SessionStatus, TASK_WORKER};
use crate::domain::repository::Repository;
use crate::domain::time::rfc3339;
use crate::ports::planning::{Moved, StoredSession};
use crate::surfaces::caller::{APPROVER, Caller};
use crate::surfaces::problem::Problem;
use crate::surfaces::request::{prompt_error, time_zone};

/// A deadline is at least this far ahead.
const LEAST: Duration = Duration::from_secs(10);

impl Planning {
    /// The repository, the deadline in microseconds since the epoch, and the time zone of a valid request.
    pub(super) fn checked(&self, start: &StartBody) -> Result<(Repository, i64, Option<Tz>), Problem> {
        let mut errors = Vec::from_iter(prompt_error("/prompt", &start.prompt));
        let repository = self.settings.repositories.parse(&start.repo_url);
        let (deadline, zone) = (self.deadline(&start.deadline), time_zone(start.time_zone.as_deref()));
        match (repository, deadline, zone) {
            (Ok(repository), Ok(deadline), Ok(zone)) if errors.is_empty() => return Ok((repository, deadline, zone)),
            (repository, deadline, zone) => {
                errors.extend(repository.err().map(|detail| FieldError::new("/repoUrl", detail)));
                errors.extend(deadline.err().map(|detail| FieldError::new("/deadline", detail)));
                errors.extend(zone.err().map(|detail| FieldError::new("/timeZone", detail)));
            }
        }
        Err(Problem::from(errors))
    }

    fn deadline(&self, text: &str) -> Result<i64, String> {
        let hours = self.settings.sessions.max_hours;
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

    /// A session of the user, as it is stored.
    pub(super) async fn stored(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        session: PlanningSessionId,
    ) -> Result<StoredSession, Problem> {
        let found = self
            .sessions
            .session(&caller.tenant, caller.sees(user), session)
            .await?;
        found.ok_or(Problem::from_code(Code::NotFound))
    }

    /// A session that the caller may read, as it is stored: the user's own, and for an approver also one of another user
    /// while a call of it waits for an approver's decision.
    pub(super) async fn readable(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        session: PlanningSessionId,
    ) -> Result<StoredSession, Problem> {
        let own = self.stored(caller, user, session).await;
        if own != Err(Code::NotFound.into()) || !caller.roles.contains(APPROVER) {
            return own;
        }
        let found = self.sessions.session(&caller.tenant, None, session).await?;
        let found = found.ok_or(Code::NotFound)?;
        match self.sessions.waiting(session).await?.is_empty() {
            true => Err(Code::NotFound.into()),
            false => Ok(found),
        }
    }

    /// A session that waits for its confirmation, so that its plan can be changed.
    pub(super) async fn open_for_changes(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        session: PlanningSessionId,
    ) -> Result<StoredSession, Problem> {
        let stored = self.stored(caller, user, session).await?;
        self.waits_for_confirmation(&stored)?;
        Ok(stored)
    }

    /// Does the session wait for its confirmation? A deadline that has passed counts at once.
    pub(super) fn waits_for_confirmation(&self, stored: &StoredSession) -> Result<(), Problem> {
        if !stored.status.has_ended() && stored.deadline_us <= self.runs.now_us() {
            return Err(Problem::deadline_passed(stored.deadline_us));
        }
        match stored.status {
            SessionStatus::AwaitingConfirmation => Ok(()),
            SessionStatus::DeadlineExceeded => Err(Problem::deadline_passed(stored.deadline_us)),
            status => Err(Problem::session_moved(status, stored.version)),
        }
    }

    /// The repository of a session.
    pub(super) fn repository(&self, stored: &StoredSession) -> Result<Repository, Problem> {
        let repository = self.settings.repositories.parse(&stored.repo_url);
        repository.map_err(|_| not_allowed(&stored.repo_url))
    }

    /// The tools that a task may name: those of the agent that works on tasks that servers offer now. Its definition names
    /// the tools of servers that an operator may leave out, too.
    pub(super) async fn worker_tools(&self, caller: &Caller) -> Result<Vec<String>, Problem> {
        let project = self.directory.project(&caller.tenant, &ProjectId::default()).await?;
        let worker = project.agents.get(TASK_WORKER);
        let worker = worker.ok_or_else(|| missing(TASK_WORKER))?;
        let is_agent = |name: &str| project.agents.contains_key(name);
        let tools = self.directory.offered(worker.definition.server_tools(is_agent)).await;
        match tools.is_empty() {
            true => Err(unavailable(format!(
                "no server offers a tool of the agent {TASK_WORKER}; `gavel doctor` shows the reason"
            ))),
            false => Ok(tools),
        }
    }
}

pub(super) fn missing(agent: &str) -> Problem {
    unavailable(format!("there is no agent {agent:?}"))
}

/// Planning is not possible now, for this reason.
pub(super) fn unavailable(why: impl Display) -> Problem {
    let detail = format!("Planning is unavailable: {why}. Nothing was done; tell the operator.");
    Problem::new(Code::AgentUnavailable, detail)
}

/// `planning.repositories` does not have this repository.
pub(super) fn not_allowed(repository: impl Display) -> Problem {
    let detail = format!(
        "Planning sessions may not use the repository {repository}. Name another one, or ask the operator to add it to \
         planning.repositories."
    );
    Problem::new(Code::RepositoryNotAllowed, detail)
}

pub(super) fn done(moved: Moved) -> Result<(), Problem> {
    match moved {
        Moved::Yes => Ok(()),
        Moved::No(status, version) => Err(Problem::session_moved(status, version)),
        Moved::Mismatch => Err(Code::IdempotencyKeyReused.into()),
        Moved::NotFound => Err(Code::NotFound.into()),
    }
}

/// The errors of names that are not among the allowed ones, each with its place in the list at `pointer`.
pub(super) fn values_error(pointer: &str, given: &[String], allowed: &[String]) -> impl Iterator<Item = FieldError> {
    let unknown = given
        .iter()
        .enumerate()
        .filter(move |(_, name)| !allowed.contains(name));
    unknown.map(move |(at, name)| {
        let detail = format!("is {}; allowed: {}", quoted(name), allowed.join(", "));
        FieldError::new(format!("{pointer}/{at}"), detail)
    })
}

/// What the templates insert besides what is read.
pub(super) fn values(tools: &[String], goal: &str, repo_url: &str, deadline_us: i64) -> BTreeMap<String, String> {
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

/// What a person wrote in a session, and what a confirmation of its plan covers.
pub(super) fn confirmed_words(stored: &StoredSession) -> Vec<String> {
    let StoredSession { plan, notes, .. } = stored;
    let tasks = plan
        .tasks
        .iter()
        .flat_map(|task| [&task.title, &task.goal, &task.done_when]);
    let notes = [&notes.summary]
        .into_iter()
        .chain(&notes.assumptions)
        .chain(&notes.risks);
    let written = [&*stored.prompt, &*stored.repo_url].map(str::to_owned);
    written.into_iter().chain(tasks.chain(notes).cloned()).collect()
}

/// The current plan as the model hands one in, with the ids of its tasks.
pub(super) fn draft_of(stored: &StoredSession) -> String {
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

//! Changes sessions without a run: a person edits the plan or cancels the session, or its deadline passes.

use super::Planning;
use super::checks::done;
use crate::api::planning::Session;
use crate::api::problem::{Code, FieldError};
use crate::domain::ids::{PlanningSessionId, UserId};
use crate::domain::plan::{Draft, Plan, difference};
use crate::domain::planning_session::SessionStatus;
use crate::ports::planning::{MadePlan, Moved, PlanEdit, PlanNotes, SessionCancel};
use crate::surfaces::caller::Caller;
use crate::surfaces::problem::Problem;
use crate::surfaces::request::RequestMeta;

impl Planning {
    /// Writes a version that a person edited, checked like the model's.
    ///
    /// # Errors
    /// The draft is invalid; the session does not wait for its confirmation with this version.
    pub async fn edit(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        (session, version): (PlanningSessionId, u32),
        draft: Draft,
        meta: RequestMeta,
    ) -> Result<Session, Problem> {
        if self.runs.claimed(&meta).await?.is_some() {
            // The same request has edited the plan before. Its version may be another one since.
            return self.session(caller, user, session).await;
        }
        let stored = self.open_for_changes(caller, user, session).await?;
        if stored.version != version {
            return Err(Problem::session_moved(stored.status, stored.version));
        }
        let tools = self.worker_tools(caller).await?;
        let notes = PlanNotes {
            summary: draft.summary.clone(),
            assumptions: draft.assumptions.clone(),
            risks: draft.risks.clone(),
            read: stored.notes.read.clone(),
        };
        let plan = Plan::of(draft, stored.id, Some(&stored.plan), &tools).map_err(|errors| {
            let errors = errors
                .into_iter()
                .map(|error| FieldError::new(error.pointer, error.detail));
            Problem::from(errors.collect::<Vec<_>>())
        })?;
        let edited = PlanEdit {
            session: stored.id,
            version,
            made: MadePlan {
                changes: difference(Some(&stored.plan), &plan),
                plan,
                notes,
                by: caller.person(user).into(),
                why: "edited by hand".into(),
            },
            claim: meta.idempotency,
            at_us: self.runs.now_us(),
        };
        let unknown = unknown("It is unknown whether the plan was changed. Read the session to find out.");
        let moved = self
            .sessions
            .edit(edited)
            .await
            .map_err(|error| unknown.after(&error))?;
        done(moved)?;
        self.session(caller, user, stored.id).await
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
    ) -> Result<Session, Problem> {
        let before = self.stored(caller, user, session).await?;
        if before.status.has_ended() {
            return self.shown(caller, before).await;
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
            return Err(Code::NotFound.into());
        }
        if before.status != SessionStatus::AwaitingConfirmation {
            // Known to the store already; this reaches the run at once if this process works on it.
            self.runs.interrupt(before.run);
            // A run that waits for a person has no worker that could end it.
            self.runs
                .claim_resolved(before.run, &caller.tenant, &caller.name_for(user));
        }
        self.session(caller, user, session).await
    }

    /// Ends sessions whose deadline has passed, and those whose plan no person confirmed in time. Returns how many.
    pub async fn sweep(&self) -> u32 {
        const AT_ONCE: u32 = 100;
        let now_us = self.runs.now_us();
        match self.sessions.sweep(now_us, now_us - self.confirm_us(), AT_ONCE).await {
            Ok(count) => count,
            Err(error) => {
                tracing::warn!(%error, "planning sessions past their deadline could not be ended; tried again soon");
                0
            }
        }
    }
}

fn unknown(detail: &'static str) -> Problem {
    Problem::outcome_unknown(None, detail)
}

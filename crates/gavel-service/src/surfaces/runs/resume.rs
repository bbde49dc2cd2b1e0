//! Resumes runs that are paused, or failed since their processes were lost: the same run continues, with a fresh budget
//! and its own deadline.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::read::read_settings;
use super::start::{How, Start};
use super::{Begun, RunError, Runs};
use crate::api::problem::FieldError;
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::ids::{ActionId, RunId, UserId};
use crate::engine::agent::Settings;
use crate::engine::limits::MOST_STEPS;
use crate::engine::log;
use crate::engine::snapshot::DefinitionSnapshot;
use crate::ports::records::OpenDecision;
use crate::ports::runs::{Origin, Reopen, ReopenedFor, Settled, StoredRun};
use crate::surfaces::StoreFailure;
use crate::surfaces::caller::Caller;
use crate::surfaces::request::RequestMeta;

/// The settings of a resume.
#[derive(Clone, Debug)]
pub struct Resume {
    /// For each in-doubt call: did it have its effect?
    pub settled: BTreeMap<ActionId, bool>,
    /// Replaces the definition's time limit.
    pub timeout: Option<Duration>,
    /// True if the caller does not wait for the run.
    pub background: bool,
    /// Metadata from the HTTP layer.
    pub meta: RequestMeta,
}

impl Runs {
    /// Resumes a run that is paused, or failed since its processes were lost. The session of a plan continues with it.
    ///
    /// # Errors
    /// [`RunError`]: the run does not exist, is not paused, has no steps left, its deadline has passed, or it has
    /// unsettled in-doubt calls.
    pub async fn resume(
        self: &Arc<Self>,
        caller: &Caller,
        user: Option<UserId>,
        run: RunId,
        resume: Resume,
    ) -> Result<Begun, RunError> {
        if let Some(before) = self.begun_before(&resume.meta).await? {
            return Ok(before);
        }
        let shed = resume.meta.shed;
        let paused = self.stored(caller, user.as_ref(), run).await?;
        if let Origin::Called((parent, _)) = paused.origin {
            return Err(RunError::PartOf(self.outermost(parent).await?));
        }
        let before = read_settings(&paused)?;
        let lost = paused.stop_reason == Some(StopReason::ProcessLost)
            && paused.origin.thread().is_none()
            && (paused.origin.session().is_none() || before.execution.is_some());
        if paused.status != RunStatus::Paused && !lost {
            return Err(RunError::NotPaused(paused.status));
        }
        if let Some(until_us) = before.until_us
            && until_us <= self.now_us()
        {
            return Err(RunError::DeadlinePassed(until_us));
        }
        check_settled(&paused, before.execution.is_some(), &resume.settled)?;
        let settings = self.settings(&paused, before, &resume)?;
        let reopen = Reopen {
            run,
            attempt: paused.attempt,
            place: ReopenedFor::Caller {
                queued: resume.background,
                settled: Settled {
                    by: caller.name_for(user.as_ref()).into(),
                    calls: resume.settled,
                },
                claim: resume.meta.idempotency,
            },
            session: paused.origin.session().copied(),
            settings: settings.to_raw(),
            entry: log::resumed(paused.steps, paused.usage),
            at_us: self.now_us(),
        };
        let start = Start {
            run,
            queued: resume.background,
            // A refused request is a decision of its own.
            decision: OpenDecision {
                id: RunId::new().decision(),
                message: Arc::from(paused.input.get()),
                request_id: resume.meta.request_id,
                created_at: self.now_us(),
                ..paused.decision
            },
            how: How::Again(Box::new(reopen)),
            fresh: None,
        };
        self.start(start, shed).await
    }

    /// A fresh budget, within the steps that are left over all resumes. A session keeps its own.
    fn settings(&self, paused: &StoredRun, before: Settings, resume: &Resume) -> Result<Settings, RunError> {
        if before.execution.is_some() {
            let settled = resume.settled.clone();
            return Ok(Settings { settled, ..before });
        }
        let bundle = DefinitionSnapshot::read(&paused.snapshot).map_err(|error| {
            tracing::error!(run_id = %paused.id, %error, "the definition of a run cannot be read");
            StoreFailure::Unavailable
        })?;
        let definition = &bundle.get(&paused.agent).ok_or(StoreFailure::NotFound)?.definition;
        let mut settings = Settings::top(definition, resume.timeout, resume.meta.traceparent.clone());
        (settings.zone, settings.until_us) = (before.zone, before.until_us);
        if let Some(most) = definition.limits.max_turns {
            let left = MOST_STEPS.saturating_sub(paused.steps);
            if left == 0 {
                return Err(RunError::StepLimitExceeded);
            }
            settings.steps = Some(most.min(left));
        }
        settings.settled = resume.settled.clone();
        Ok(settings)
    }

    /// The outermost run above this one.
    async fn outermost(&self, mut run: RunId) -> Result<RunId, StoreFailure> {
        while let Some(state) = self.agents.runs.run_state(run).await? {
            match state.origin {
                Origin::Called((parent, _)) => run = parent,
                Origin::Trigger | Origin::Thread(_) | Origin::Session(_) => break,
            }
        }
        Ok(run)
    }
}

/// Every in-doubt call must be settled, and no other call. A session waits for that itself, at its end.
fn check_settled(paused: &StoredRun, waits: bool, settled: &BTreeMap<ActionId, bool>) -> Result<(), RunError> {
    let known = |id: &ActionId| paused.in_doubt.iter().any(|call| call.action_id == *id);
    let unknown: Vec<_> = settled
        .keys()
        .filter(|id| !known(id))
        .map(|id| FieldError::new(format!("/settled/{id}"), "is not an in-doubt call of this run"))
        .collect();
    if !unknown.is_empty() {
        return Err(RunError::Invalid(unknown));
    }
    let open: Vec<_> = paused
        .in_doubt
        .iter()
        .filter(|call| !settled.contains_key(&call.action_id))
        .cloned()
        .collect();
    if open.is_empty() || waits {
        Ok(())
    } else {
        Err(RunError::InDoubt(open))
    }
}

//! What a run does for a planning session, and what its end leads to there.

mod read;

use crate::journal::Journal;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::read::{AGENT_MD, AGENTS_MD, REPOSITORY, TREE};
use super::next::Ending;
use super::opening::{self, Opening, Unread};
use crate::api::planning::RepositoryRead;
use crate::domain::agent_run::StopReason;
use crate::domain::ids::PlanningSessionId;
use crate::domain::journal::{Completion, FaultKind, Verdict};
use crate::domain::plan::{Basis, Plan, PlanError, Task, difference};
use crate::domain::planning_session::SessionReason;
use crate::ports::commit::Planned;
use crate::ports::planning::{MadePlan, PlanNotes};

/// What a run that plans is given. Stored with its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanningWork {
    /// The tools that a task may name.
    pub tools: Vec<String>,
    /// The tasks of the version that it refines; none for the first one.
    pub current: Option<Vec<Task>>,
    /// The number of the last task id that was given.
    pub last: u32,
    /// Who asks for the plan.
    pub by: Arc<str>,
    /// The person's own text: the goal, or what to change.
    pub why: Arc<str>,
}

impl PlanningWork {
    /// What the end of the run leads to. `message` is the run's own error, if it has one.
    #[must_use]
    pub fn planned(
        &self,
        session: PlanningSessionId,
        opening: Option<&Opening>,
        journal: &Journal,
        ending: &Ending,
        message: Option<&str>,
    ) -> Planned {
        let detail = |otherwise: &str| Arc::from(message.unwrap_or(otherwise));
        let (reason, detail) = match ending {
            Ending::Verdict(Verdict::Complete {
                output: Completion::Output(draft),
                ..
            }) => match self.made(session, draft, opening.map(|opening| read::read(opening, journal))) {
                Ok(made) => return Planned::Made(Box::new(made)),
                Err(errors) => (SessionReason::PlanInvalid, errors),
            },
            Ending::StepFailed(_) => match opening.and_then(|opening| opening::unread(journal, opening)) {
                Some(Unread::Missing) => (
                    SessionReason::RepositoryNotFound,
                    "There is no such repository, or gavel's access to GitHub does not include it.".into(),
                ),
                Some(Unread::Failed(why)) => (SessionReason::RepositoryUnreadable, why.into()),
                None => (SessionReason::Internal, detail("the run failed")),
            },
            Ending::Stopped(StopReason::Deadline, _) => (
                SessionReason::Deadline,
                "The deadline passed before there was a plan.".into(),
            ),
            Ending::Stopped(StopReason::TokenLimit, _) => (SessionReason::TokenLimit, detail("the token limit")),
            Ending::Stopped(StopReason::StepLimit | StopReason::TimeLimit, _)
            | Ending::LoopLimit
            | Ending::TimeLimit
            | Ending::DoomLoop(_) => (SessionReason::StepLimit, detail("a limit was reached")),
            Ending::Unable(_) | Ending::Waiting(_) => {
                (SessionReason::ToolsUnavailable, detail("a tool is unavailable"))
            }
            Ending::Fault(FaultKind::Blocked) => (SessionReason::ModelBlocked, detail("the answer was blocked")),
            Ending::Fault(_) => (SessionReason::ModelUnavailable, detail("the model was unavailable")),
            Ending::Cancelled => (SessionReason::Cancelled, detail("The run that plans was cancelled.")),
            Ending::InvalidOutput(..)
            | Ending::MissingOutput(_)
            | Ending::TooLong(_)
            | Ending::Responded(_)
            | Ending::Verdict(_)
            | Ending::Flow(_) => (SessionReason::PlanInvalid, detail("the model handed in no plan")),
            Ending::Stopped(..)
            | Ending::Task(..)
            | Ending::Suspended(_)
            | Ending::Unsettled(_)
            | Ending::Rejected(..)
            | Ending::Broken => (SessionReason::Internal, detail("the run failed")),
        };
        Planned::None(reason, detail)
    }

    /// What the drafts of the run are checked against.
    #[must_use]
    pub fn basis(&self, session: PlanningSessionId) -> Basis {
        Basis {
            session,
            tools: self.tools.clone(),
            current: self.current.as_ref().map(|tasks| Plan {
                tasks: tasks.clone(),
                last: self.last,
            }),
        }
    }

    /// The plan of a draft that fits its schema. `read` is what it was made from.
    fn made(
        &self,
        session: PlanningSessionId,
        draft: &str,
        read: Option<RepositoryRead>,
    ) -> Result<MadePlan, Arc<str>> {
        let basis = self.basis(session);
        let (draft, plan) = basis.plan(draft).map_err(|errors| words(&errors))?;
        let notes = PlanNotes {
            summary: draft.summary,
            assumptions: draft.assumptions,
            risks: draft.risks,
            read,
        };
        Ok(MadePlan {
            changes: difference(basis.current.as_ref(), &plan),
            plan,
            notes,
            by: Arc::clone(&self.by),
            why: Arc::clone(&self.why),
        })
    }
}

fn words(errors: &[PlanError]) -> Arc<str> {
    let errors: Vec<_> = errors
        .iter()
        .map(|error| format!("{}: {}", error.pointer, error.detail))
        .collect();
    errors.join("; ").into()
}

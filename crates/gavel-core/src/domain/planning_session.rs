//! A planning session: its states, and why it ended (P-102).

use super::names::names;

/// The agent that plans.
pub const PLANNER: &str = "planner";
/// The agent that works on tasks; its tools are those that a task may name.
pub const TASK_WORKER: &str = "task_worker";
/// Reads where a repository is and what it is, its files, and one of them: without these tools no plan can be made.
pub const READS: [&str; 3] = ["retrieveRepository", "getRepositoryTree", "getFileContents"];
/// The agents that work only in planning sessions: elsewhere nothing would bind them to one repository.
pub const PLANNING_AGENTS: [&str; 2] = [PLANNER, TASK_WORKER];

/// The tool with which code removes what the tasks left behind, at the end of every session.
pub const CLEANUP_TOOL: &str = "cleanupGroupContainers";

names! {
    /// The status of a planning session.
    SessionStatus {
        /// A plan is being made, or a refinement of it.
        Planning = "PLANNING",
        /// The plan is there; only a person's confirmation continues the session.
        AwaitingConfirmation = "AWAITING_CONFIRMATION",
        /// The confirmed plan is worked through.
        Executing = "EXECUTING",
        /// Every task of the plan is done.
        Completed = "COMPLETED",
        /// It failed.
        Failed = "FAILED",
        /// Its deadline passed.
        DeadlineExceeded = "DEADLINE_EXCEEDED",
        /// A person cancelled it.
        Cancelled = "CANCELLED",
    }
}

names! {
    /// Why a planning session did not reach its goal, or a refinement made no new version.
    SessionReason {
        /// There is no such repository, or gavel's access does not include it.
        RepositoryNotFound = "repository_not_found",
        /// The repository could not be read.
        RepositoryUnreadable = "repository_unreadable",
        /// A tool that planning needs is unavailable.
        ToolsUnavailable = "tools_unavailable",
        /// The model's plan was invalid, also after its errors were reported.
        PlanInvalid = "plan_invalid",
        /// The model was unavailable.
        ModelUnavailable = "model_unavailable",
        /// The model refused the request or its answer was blocked.
        ModelBlocked = "model_blocked",
        /// A limit of time, of model calls or of steps was reached.
        StepLimit = "step_limit",
        /// The token limit was reached.
        TokenLimit = "token_limit",
        /// A task failed, and no other task took its place.
        TaskFailed = "task_failed",
        /// The deadline passed.
        Deadline = "deadline",
        /// No person confirmed its plan in time.
        Unconfirmed = "unconfirmed",
        /// A person cancelled it.
        Cancelled = "cancelled",
        /// gavel failed.
        Internal = "internal",
    }
}

impl SessionStatus {
    /// The legal transitions. Each is one conditional UPDATE, so that only one of two concurrent writers succeeds.
    /// Nothing but a person's confirmation leads to [`SessionStatus::Executing`]. It still holds when a person resumes the
    /// run of a session that failed since its processes were lost: then the session is executing again.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        use SessionStatus::{
            AwaitingConfirmation, Cancelled, Completed, DeadlineExceeded, Executing, Failed, Planning,
        };
        matches!(
            (self, next),
            (Planning, AwaitingConfirmation)
                | (AwaitingConfirmation, Planning | Executing)
                | (Executing, Completed)
                | (
                    Planning | AwaitingConfirmation | Executing,
                    Failed | DeadlineExceeded | Cancelled
                )
        )
    }

    /// Whether the session has ended. No status follows.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::DeadlineExceeded | Self::Cancelled => true,
            Self::Planning | Self::AwaitingConfirmation | Self::Executing => false,
        }
    }

    /// What a session becomes when the run that plans does not make a plan. A refinement leaves the earlier plan as it
    /// was, unless the deadline has passed.
    pub const fn without_plan(reason: SessionReason, has_plan: bool) -> Self {
        match (reason, has_plan) {
            (SessionReason::Deadline, _) => Self::DeadlineExceeded,
            (_, true) => Self::AwaitingConfirmation,
            (SessionReason::Cancelled, false) => Self::Cancelled,
            (_, false) => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P-102: a session that is over stays so, and every other one can end.
    #[test]
    fn the_four_ends_of_a_session_are_final() {
        for from in SessionStatus::ALL {
            let follows = SessionStatus::ALL.iter().filter(|next| from.may_become(**next)).count();
            assert_eq!(from.has_ended(), follows == 0, "{from:?}");
            let can_end = [
                SessionStatus::Failed,
                SessionStatus::DeadlineExceeded,
                SessionStatus::Cancelled,
            ];
            assert!(
                from.has_ended() || can_end.iter().all(|end| from.may_become(*end)),
                "{from:?}"
            );
        }
    }

    /// P-205: a plan is executed only after it waited for its confirmation.
    #[test]
    fn only_a_session_that_waits_for_its_confirmation_can_be_executed() {
        for from in SessionStatus::ALL {
            let waits = *from == SessionStatus::AwaitingConfirmation;
            assert_eq!(from.may_become(SessionStatus::Executing), waits, "{from:?}");
        }
    }

    /// Whatever ended the run that plans, what follows is a legal transition, and an earlier plan stays.
    #[test]
    fn a_refinement_that_fails_leaves_the_earlier_plan_as_it_was() {
        for reason in SessionReason::ALL {
            for has_plan in [false, true] {
                let next = SessionStatus::without_plan(*reason, has_plan);
                assert!(SessionStatus::Planning.may_become(next), "{reason:?}");
                let stays = has_plan && *reason != SessionReason::Deadline;
                assert_eq!(next == SessionStatus::AwaitingConfirmation, stays, "{reason:?}");
            }
        }
    }
}

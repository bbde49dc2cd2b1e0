//! How a session was left: its plan, why it ended, and the exit status.

use super::follow::Showing;
use super::text;
use crate::api::planning::Session;
use crate::cli::exit::Exit;
use crate::cli::gavel::Where;
use crate::cli::output;
use crate::cli::table::single_line;
use crate::domain::plan::TaskStatus;
use crate::domain::planning_session::SessionStatus;

/// Prints a session after it was followed: its plan on standard output, and why it ended on standard error.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn tell(session: &Session, place: &Where, showing: Showing) -> anyhow::Result<Exit> {
    if showing.json {
        output::json(session)?;
    } else if !showing.events {
        output::line(&match session.started_at.is_some() && session.status.has_ended() {
            true => text::end(session),
            false => text::plan(session),
        })?;
    }
    if let Some(reason) = &session.status_reason {
        let (code, detail) = (reason.code, single_line(&reason.detail));
        output::note(&format!("{}: {code}: {detail}", session.status));
    }
    if !showing.quiet {
        let (place, id) = (place.repeated(), &session.session_id);
        if is_open(session) {
            output::note(&format!(
                "to change it:  gavel plan refine{place} {id} 'WHAT TO CHANGE'"
            ));
            let version = session.plan_version;
            output::note(&format!(
                "to confirm it: gavel plan execute{place} --plan-version {version} {id}"
            ));
        } else if session.status == SessionStatus::Planning {
            output::note(&format!("it is still planning: gavel plan watch{place} {id}"));
        } else if session.started_at.is_some() && exit(session) != Exit::Done {
            for task in session.plan.iter().filter(|task| task.status == TaskStatus::Failed) {
                let task = task.id;
                output::note(&format!("what was done: gavel plan show{place} {id} {task}"));
            }
            output::note(&format!("all actions:   gavel plan log{place} {id}"));
        }
    }
    Ok(exit(session))
}

/// Says that a refinement made no new version; `None` if it did.
pub(super) fn failed_refinement(session: &Session) -> Option<Exit> {
    let reason = session.refinement.as_ref().filter(|_| is_open(session))?;
    let (code, detail) = (reason.code, single_line(&reason.detail));
    output::note(&format!(
        "the refinement failed, and plan {} remains: {code}: {detail}",
        session.plan_version
    ));
    Some(Exit::Failed)
}

/// Whether there is a plan that the user can change.
pub(super) fn is_open(session: &Session) -> bool {
    session.status == SessionStatus::AwaitingConfirmation
}

/// The exit status for a session.
pub(super) fn exit(session: &Session) -> Exit {
    match session.status {
        SessionStatus::Failed => Exit::RunFailed,
        SessionStatus::Cancelled => Exit::RunCancelled,
        SessionStatus::DeadlineExceeded => Exit::DeadlineExceeded,
        SessionStatus::Planning
        | SessionStatus::AwaitingConfirmation
        | SessionStatus::Executing
        | SessionStatus::Completed => Exit::Done,
    }
}

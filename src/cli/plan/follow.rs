//! Follows a session over its events, and shows the progress: until there is a plan, or until the session has ended.

use anyhow::Context;

use super::text;
use crate::api::planning::{RefineBody, Session, WaitingFor, WaitingKind};
use crate::cli::approvals::settles;
use crate::cli::client::Wait;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Where};
use crate::cli::interrupt::{or_stopped_with, unless_stopped};
use crate::cli::list::single_line;
use crate::cli::output;
use crate::cli::runs::{Progress, Showing, Watched, is_here, unanswered};
use crate::domain::ids::PlanningSessionId;
use crate::domain::plan::TaskStatus;
use crate::domain::planning_session::SessionStatus;

/// How a session is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Its current run, by the command that began it. When it waits for a person, the user at the terminal is asked; the
    /// command ends, if there is none.
    Begun,
    /// From its first event until its plan waits for the confirmation, or `to_end`. A wait is shown.
    Watches { to_end: bool },
}

/// The session, once what was followed has ended; or how the command ends before that.
pub(super) type Followed = Result<Box<Session>, Exit>;

/// The session of an id.
///
/// # Errors
/// There is none.
pub(super) async fn session(gavel: &Gavel, id: PlanningSessionId) -> anyhow::Result<Session> {
    gavel.get(&path(id)).await
}

/// The path of a session.
pub(super) fn path(id: PlanningSessionId) -> String {
    format!("v1/sessions/{id}")
}

/// Requests a change of the plan in the user's own words, and follows it.
///
/// # Errors
/// It is refused, or the session can no longer be read.
pub(super) async fn refined(
    gavel: &Gavel,
    id: PlanningSessionId,
    words: &str,
    showing: Showing,
) -> anyhow::Result<Followed> {
    let body = RefineBody {
        refinement_prompt: words.to_owned(),
    };
    let path = format!("{}/refine", path(id));
    let unknown = format!(
        "the refinement has begun; `{} {id}` shows it",
        gavel.command("plan watch")
    );
    let begun = or_stopped_with(gavel.post(&path, &[], Wait::Begun, &body), &unknown).await?;
    follow(gavel, begun, showing, How::Begun).await
}

/// Follows a session.
///
/// # Errors
/// The session or its events can no longer be read.
pub(super) async fn follow(gavel: &Gavel, session: Session, showing: Showing, how: How) -> anyhow::Result<Followed> {
    // A plan that is being made may be what the user waits for; the work on one always ends the session.
    let to_end = how == How::Watches { to_end: true } || session.status.has_ended();
    if has_open_plan(&session) && !to_end {
        return Ok(Ok(Box::new(session)));
    }
    let id = session.session_id;
    let mut watched = Watched::new(gavel, &path(id), showing, Some(session.deadline));
    let followed = until_reached(gavel, &session, &mut watched, how, to_end).await;
    watched.progress.end();
    let followed = followed.with_context(|| format!("session {id}"))?;
    let watch = gavel.command("plan watch");
    match followed {
        Err(Exit::NeedsApproval) => {
            if showing.json {
                output::json(&self::session(gavel, id).await?)?;
            }
            output::note(&format!(
                "session {id} waits for a person, and continues after the answer: {watch} {id}"
            ));
        }
        Err(_) => output::note(&format!(
            "session {id} continues in its worker, or in the next `gavel serve`; `{watch} {id}` shows it, `{} {id}` ends it",
            gavel.command("plan cancel")
        )),
        Ok(_) => {}
    }
    Ok(followed)
}

async fn until_reached(
    gavel: &Gavel,
    session: &Session,
    watched: &mut Watched<'_>,
    how: How,
    to_end: bool,
) -> anyhow::Result<Followed> {
    let id = session.session_id;
    let mut is_earlier = how == How::Begun;
    watched.progress.note(&format!("session {id}"));
    while let Some(mut event) = watched.next().await? {
        let is_of_run = event["type"] == "status" && event["runId"] == session.run_id.to_string();
        let is_end = event["type"] == "result";
        is_earlier &= !is_of_run && !is_end;
        if is_earlier {
            continue;
        }
        watched.show(&event)?;
        if is_end {
            let ended = serde_json::from_value(event["session"].take());
            return Ok(Ok(ended.context("the last event has no session")?));
        }
        if is_of_run && !to_end && event["status"] == SessionStatus::AwaitingConfirmation.as_str() {
            return Ok(Ok(gavel.get(&path(id)).await?));
        }
        if event["type"] == "awaiting_confirmation" && event["taskId"].is_null() {
            match unless_stopped(waits(gavel, id, how, &mut watched.progress))
                .await?
                .transpose()?
            {
                None => break,
                Some(true) => return Ok(Err(Exit::NeedsApproval)),
                Some(false) => {}
            }
        }
    }
    Ok(Err(Exit::Interrupted))
}

/// Shows what the session waits for now, and asks the user if that is the way. True: a person must answer, and none did.
///
/// # Errors
/// What it waits for cannot be read, or an answer is refused.
async fn waits(gavel: &Gavel, id: PlanningSessionId, how: How, progress: &mut Progress) -> anyhow::Result<bool> {
    let session: Session = gavel.get(&path(id)).await?;
    let in_doubt = in_doubt(&session, &gavel.place);
    in_doubt.iter().for_each(|line| progress.warn(line));
    let asks = how == How::Begun;
    let open = unanswered(gavel, session.run_id, asks, progress).await?;
    // A wait that has ended since asks nothing.
    Ok(!open.is_empty() || asks && !is_here() && !in_doubt.is_empty())
}

/// How to settle the calls whose outcome is unknown.
fn in_doubt(session: &Session, place: &Where) -> Vec<String> {
    let place = place.repeated();
    let waits = session.waiting_for.iter().flatten();
    waits
        .filter(|wait| wait.kind == WaitingKind::InDoubt)
        .map(
            |WaitingFor {
                 tool,
                 action_id,
                 task_id,
                 ..
             }| {
                let of = task_id.map_or_else(String::new, |task| format!(" of {task}"));
                output::printable(&format!(
                    "in doubt: {tool}{of} may have been done\n{}",
                    settles(*action_id, &place).trim_end()
                ))
            },
        )
        .collect()
}

/// Prints a session after it was followed: its plan on standard output, and why it ended on standard error.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn tell(gavel: &Gavel, session: &Session, showing: Showing) -> anyhow::Result<Exit> {
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
        let (place, id) = (gavel.place.repeated(), &session.session_id);
        if has_open_plan(session) {
            choices(gavel, session);
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

/// Says what can be done with a plan.
pub(super) fn choices(gavel: &Gavel, session: &Session) {
    let (place, id, version) = (gavel.place.repeated(), session.session_id, session.plan_version);
    let until = session.confirm_by.unwrap_or(session.deadline);
    output::note(&format!(
        "to change it:  gavel plan refine{place} {id} 'WHAT TO CHANGE'
to confirm it: gavel plan execute{place} --plan-version {version} {id} (until {until})
to end it:     gavel plan cancel{place} {id}"
    ));
}

/// Says that a refinement made no new version; `None` if it did.
pub(super) fn failed_refinement(session: &Session) -> Option<Exit> {
    let reason = session.refinement.as_ref().filter(|_| has_open_plan(session))?;
    let (code, detail) = (reason.code, single_line(&reason.detail));
    output::note(&format!(
        "the refinement failed, and plan {} remains: {code}: {detail}",
        session.plan_version
    ));
    Some(Exit::Failed)
}

/// Whether there is a plan that the user can change.
pub(super) fn has_open_plan(session: &Session) -> bool {
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

#[cfg(test)]
mod waits_tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        place: Where,
    }

    /// P-306: a session with an unsettled action cannot end, so the user sees how to settle it.
    #[test]
    fn an_in_doubt_action_says_how_it_is_settled() {
        let place = Given::parse_from(["gavel", "--tenant", "acme"]).place;
        let session = json!({"waitingFor": [
            {"kind": "in_doubt", "taskId": "t2", "tool": "create\u{1b}Issue", "actionId": "01980000-0000-7000-8000-000000000000"},
            {"kind": "approval", "taskId": "t2", "tool": "closeIssue", "actionId": "01990000-0000-7000-8000-000000000000"},
        ]});
        let session: Session = crate::cli::tests::samples::sample(session);
        assert_eq!(
            in_doubt(&session, &place),
            ["in doubt: create\\u001bIssue of t2 may have been done\n  \
                 look at the receiving end, then run one of these:\n  \
                 if it happened:          gavel approvals settle --tenant acme 01980000-0000-7000-8000-000000000000 happened\n  \
                 if it did not happen:    gavel approvals settle --tenant acme 01980000-0000-7000-8000-000000000000 did_not_happen"]
        );
    }
}

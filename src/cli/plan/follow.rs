//! Follows a session over its events, and shows the progress: until there is a plan, or until the session has ended.

use anyhow::Context;
use serde_json::Value;

use super::story::SessionStory;
use super::text;
use crate::api::planning::{RefineBody, Session, WaitingFor, WaitingKind};
use crate::cli::approvals::{Question, answers, settles};
use crate::cli::client::Wait;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Where};
use crate::cli::interrupt::unless_stopped;
use crate::cli::list::single_line;
use crate::cli::output;
use crate::cli::runs::{Progress, Watched, ask, is_here, questions, show_questions};
use crate::domain::ids::PlanningSessionId;
use crate::domain::plan::TaskStatus;
use crate::domain::planning_session::SessionStatus;

/// The output options.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(super) struct Showing {
    /// Print the session with its plan as JSON, and nothing else on standard output
    #[arg(long, conflicts_with = "events")]
    pub(super) json: bool,
    /// Print the events as they come, as JSON, one per line; once the session has ended, the last has the type result
    #[arg(long)]
    pub(super) events: bool,
    /// Show no progress
    #[arg(long, short)]
    pub(super) quiet: bool,
}

impl Showing {
    /// Whether a user at the terminal reads the plan, and can answer.
    pub(super) fn is_conversation(&self) -> bool {
        !self.json && !self.events && is_here() && output::answers_are_shown()
    }
}

/// How a session is followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) from: FirstEvent,
    pub(super) until: Until,
    pub(super) on_wait: OnWait,
}

impl How {
    /// The current run, by the command that began it.
    pub(super) const BEGUN: Self = Self {
        from: FirstEvent::OfCurrentRun,
        until: Until::RunHasEnded,
        on_wait: OnWait::Answers,
    };
}

/// The first event that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstEvent {
    /// That of the session.
    OfSession,
    /// That of its current run.
    OfCurrentRun,
}

/// The last event that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The last of the current run: the plan waits for its confirmation, or the session has ended.
    RunHasEnded,
    /// The end of the session.
    SessionHasEnded,
}

/// Why following ended.
pub(super) enum Followed {
    /// What was followed has ended.
    Reached(Box<Session>),
    /// The session waits for a person.
    Waits,
    /// The user stopped following.
    Left,
}

/// The session of an id.
///
/// # Errors
/// There is none.
pub(super) async fn session(gavel: &Gavel, id: PlanningSessionId) -> anyhow::Result<Session> {
    found(gavel, gavel.get(&path(id)).await, id)
}

/// The path of a session.
pub(super) fn path(id: PlanningSessionId) -> String {
    format!("v1/sessions/{id}")
}

/// The answer of a request about a session; the error says where none of this id was found.
pub(super) fn found<T>(gavel: &Gavel, answer: anyhow::Result<T>, id: PlanningSessionId) -> anyhow::Result<T> {
    gavel.found(answer, &format!("planning session {id}"), "")
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
    let Some(begun) = unless_stopped(gavel.post(&path, &[], Wait::Begun, &body)).await? else {
        output::note(&format!(
            "it is unknown whether the refinement has begun; `{} {id}` shows it",
            gavel.command("plan watch")
        ));
        return Ok(Followed::Left);
    };
    follow(gavel, found(gavel, begun, id)?, showing, How::BEGUN).await
}

/// Follows a session.
///
/// # Errors
/// The session or its events can no longer be read.
pub(super) async fn follow(gavel: &Gavel, session: Session, showing: Showing, how: How) -> anyhow::Result<Followed> {
    if session.status == SessionStatus::AwaitingConfirmation && how.until == Until::RunHasEnded {
        return Ok(Followed::Reached(Box::new(session)));
    }
    let id = session.session_id;
    let story = Box::new(SessionStory::new(&session));
    let progress = Progress::of(!showing.quiet && !showing.events, story);
    let mut watched = Watched::new(gavel, format!("{}/events", path(id)), showing.events, progress);
    let followed = until_reached(gavel, &session, &mut watched, how).await;
    watched.progress.end();
    if matches!(followed, Ok(Followed::Left)) {
        output::note(&format!(
            "session {id} continues in its worker, or in the next `gavel serve`; `{} {id}` shows it, `{} {id}` ends it",
            gavel.command("plan watch"),
            gavel.command("plan cancel")
        ));
    }
    followed.with_context(|| format!("session {id}"))
}

async fn until_reached(
    gavel: &Gavel,
    session: &Session,
    watched: &mut Watched<'_>,
    how: How,
) -> anyhow::Result<Followed> {
    let id = session.session_id;
    let mut is_earlier = how.from == FirstEvent::OfCurrentRun;
    watched.progress.note(&format!("session {id}"));
    while let Some(mut event) = watched.next().await? {
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        let is_of_run = kind == "status" && event["runId"] == session.run_id.to_string();
        is_earlier &= !is_of_run && kind != "result";
        if is_earlier {
            continue;
        }
        watched.show(&event)?;
        match kind.as_str() {
            "result" => {
                let ended = serde_json::from_value(event["session"].take());
                return Ok(Followed::Reached(ended.context("the last event has no session")?));
            }
            "status" if is_of_run && how.until == Until::RunHasEnded && is_open(&event) => {
                return Ok(Followed::Reached(gavel.get(&path(id)).await?));
            }
            "awaiting_confirmation" if event["taskId"].is_null() => {
                let handled = handle(gavel, id, how.on_wait, &mut watched.progress);
                match unless_stopped(handled).await?.transpose()? {
                    None => break,
                    Some(true) => {}
                    Some(false) => return Ok(Followed::Waits),
                }
            }
            _ => {}
        }
    }
    Ok(Followed::Left)
}

/// Does the plan wait for its confirmation after this event?
fn is_open(event: &Value) -> bool {
    event["status"] == SessionStatus::AwaitingConfirmation.as_str()
}

/// What to do when the session waits for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnWait {
    /// Shows what it waits for, and continues to watch.
    Watches,
    /// Asks the user at the terminal; ends, if there is none.
    Answers,
}

/// Shows what the session waits for now, and asks the user if that is the way. False: a person must answer, and none
/// did.
///
/// # Errors
/// What it waits for cannot be read, or an answer is refused.
async fn handle(
    gavel: &Gavel,
    id: PlanningSessionId,
    on_wait: OnWait,
    progress: &mut Progress,
) -> anyhow::Result<bool> {
    let session: Session = gavel.get(&path(id)).await?;
    let requests = questions(gavel, session.run_id).await?;
    let in_doubt = in_doubt(&session, &gavel.place);
    for line in &in_doubt {
        progress.warn(line);
    }
    if on_wait != OnWait::Answers || !is_here() {
        show_questions(&requests, &gavel.place, |line| progress.warn(line));
        // A wait that has ended since asks nothing.
        return Ok(on_wait == OnWait::Watches || (requests.is_empty() && in_doubt.is_empty()));
    }
    let later = ask(gavel, &requests, progress).await?;
    if let Some(one) = later.and_then(|action| Question::new(action, None)) {
        output::note(&answers(&one, &gavel.place));
    }
    Ok(later.is_none())
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
                    "in doubt: {tool}{of} may have been done. Look at the receiving end, then run one of these:\n{}",
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
            [
                "in doubt: create\\u001bIssue of t2 may have been done. Look at the receiving end, then run one of these:\n  \
                 if it happened:          gavel approvals settle --tenant acme 01980000-0000-7000-8000-000000000000 happened\n  \
                 if it did not happen:    gavel approvals settle --tenant acme 01980000-0000-7000-8000-000000000000 did_not_happen"
            ]
        );
    }
}

//! Follows a session over its events, and shows the progress: until there is a plan, or until the session has ended.

use anyhow::Context;
use serde_json::Value;

use super::story::SessionStory;
use super::waits::{self, OnWait};
use crate::api::planning::Session;
use crate::cli::client::{Client, Received, Refused};
use crate::cli::gavel::Where;
use crate::cli::interrupt::{unless_stopped, until_interrupted};
use crate::cli::output;
use crate::cli::runs::{Progress, is_here};
use crate::domain::ids::PlanningSessionId;
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
pub(super) async fn session(client: &Client, place: &Where, id: PlanningSessionId) -> anyhow::Result<Session> {
    client.session(id).await.map_err(|error| missing(error, place, id))
}

/// An error of a request about a session, which says where none of this id was found.
pub(super) fn missing(error: anyhow::Error, place: &Where, id: PlanningSessionId) -> anyhow::Error {
    match Refused::in_error(&error) {
        Some(refused) if refused.is_not_found() => {
            anyhow::anyhow!("there is no planning session {id}{}", place.whose_words())
        }
        _ => error,
    }
}

/// Requests a change of the plan in the user's own words, and follows it.
///
/// # Errors
/// It is refused, or the session can no longer be read.
pub(super) async fn refined(
    client: &Client,
    place: &Where,
    id: PlanningSessionId,
    words: &str,
    showing: Showing,
) -> anyhow::Result<Followed> {
    let Some(begun) = unless_stopped(client.refine_plan(id, words)).await? else {
        output::note(&format!(
            "it is unknown whether the refinement has begun; `gavel plan watch{} {id}` shows it",
            place.repeated()
        ));
        return Ok(Followed::Left);
    };
    let begun = begun.map_err(|error| missing(error, place, id))?;
    follow(client, place, begun, showing, How::BEGUN).await
}

/// Follows a session.
///
/// # Errors
/// The session or its events can no longer be read.
pub(super) async fn follow(
    client: &Client,
    place: &Where,
    session: Session,
    showing: Showing,
    how: How,
) -> anyhow::Result<Followed> {
    if session.status == SessionStatus::AwaitingConfirmation && how.until == Until::RunHasEnded {
        return Ok(Followed::Reached(Box::new(session)));
    }
    let id = session.session_id;
    let story = Box::new(SessionStory::new(&session));
    let mut progress = Progress::of(!showing.quiet && !showing.events, story);
    let followed = until_reached(client, place, &session, showing, how, &mut progress).await;
    progress.end();
    if matches!(followed, Ok(Followed::Left)) {
        let place = place.repeated();
        output::note(&format!(
            "session {id} continues in its worker, or in the next `gavel serve`; `gavel plan watch{place} {id}` shows \
             it, `gavel plan cancel{place} {id}` ends it"
        ));
    }
    followed.with_context(|| format!("session {id}"))
}

async fn until_reached(
    client: &Client,
    place: &Where,
    session: &Session,
    showing: Showing,
    how: How,
    progress: &mut Progress,
) -> anyhow::Result<Followed> {
    let id = session.session_id;
    let mut interrupted = Box::pin(until_interrupted());
    let mut events = client.session_events(id);
    let mut is_earlier = how.from == FirstEvent::OfCurrentRun;
    progress.note(&format!("session {id}"));
    loop {
        let received = tokio::select! {
            received = events.next() => received?,
            stopped = &mut interrupted => return stopped.map(|()| Followed::Left).map_err(Into::into),
        };
        let mut event = match received {
            Received::Event(event) => event,
            Received::Lost(reason) => {
                progress.lost(&reason);
                continue;
            }
        };
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        let is_of_run = kind == "status" && event["runId"] == session.run_id.to_string();
        is_earlier &= !is_of_run && kind != "result";
        if is_earlier {
            continue;
        }
        if showing.events {
            output::line(&event.to_string())?;
        }
        progress.event(&event);
        match kind.as_str() {
            "result" => {
                let ended = serde_json::from_value(event["session"].take());
                return Ok(Followed::Reached(Box::new(
                    ended.context("the last event has no session")?,
                )));
            }
            "status" if is_of_run && how.until == Until::RunHasEnded && is_open(&event) => {
                return Ok(Followed::Reached(Box::new(client.session(id).await?)));
            }
            "waiting" => {
                let handled = tokio::select! {
                    handled = waits::handle(client, place, id, how.on_wait, progress) => handled?,
                    stopped = &mut interrupted => return stopped.map(|()| Followed::Left).map_err(Into::into),
                };
                if !handled {
                    return Ok(Followed::Waits);
                }
            }
            _ => {}
        }
    }
}

/// Does the plan wait for its confirmation after this event?
fn is_open(event: &Value) -> bool {
    event["status"] == SessionStatus::AwaitingConfirmation.as_str()
}

//! Follows a session while its plan is made, and shows the progress.

use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use crate::cli::approvals::{answers, question};
use crate::cli::client::{Answer, Client, Received, Refused, Session};
use crate::cli::gavel::Where;
use crate::cli::interrupt::{unless_stopped, until_interrupted};
use crate::cli::output;
use crate::cli::runs::{Progress, is_here, questions};
use crate::domain::ids::{PlanningSessionId, RunId};

/// How often a session is read whose run has ended, until it shows the result.
const READS: u32 = 60;
/// The time between two reads.
const PAUSE: Duration = Duration::from_millis(500);

/// The output options.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Showing {
    /// Print the session with its plan as JSON, and nothing else on standard output
    #[arg(long, conflicts_with = "events")]
    pub(super) json: bool,
    /// Print the events as they come, as JSON, one per line; the last has the type end
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

/// What to do when a tool call of the run that plans requires approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnApproval {
    /// Shows the request, and continues to watch.
    Watches,
    /// Also ends, if no user is at the terminal.
    Ends,
}

/// Why following ended.
pub(super) enum Followed {
    /// The session is no longer planning.
    Planned(Box<Answer<Session>>),
    /// A tool call waits for an approval.
    Waits,
    /// The user stopped following.
    Left,
}

/// The session of an id.
///
/// # Errors
/// There is none.
pub(super) async fn session(client: &Client, place: &Where, id: PlanningSessionId) -> anyhow::Result<Answer<Session>> {
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
    follow(client, place, begun, showing, OnApproval::Ends).await
}

/// Follows a session until it is no longer planning.
///
/// # Errors
/// The session or its events can no longer be read.
pub(super) async fn follow(
    client: &Client,
    place: &Where,
    session: Answer<Session>,
    showing: Showing,
    on_approval: OnApproval,
) -> anyhow::Result<Followed> {
    if !session.is_planning() {
        return Ok(Followed::Planned(Box::new(session)));
    }
    let id = session_id(&session)?;
    let mut progress = Progress::new(!showing.quiet && !showing.events);
    let followed = until_planned(client, place, &session, showing, on_approval, &mut progress).await;
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

async fn until_planned(
    client: &Client,
    place: &Where,
    session: &Session,
    showing: Showing,
    on_approval: OnApproval,
    progress: &mut Progress,
) -> anyhow::Result<Followed> {
    let id = session_id(session)?;
    let mut interrupted = Box::pin(until_interrupted());
    let mut events = client.session_events(id);
    progress.note(&format!("session {id}"));
    loop {
        let received = tokio::select! {
            received = events.next() => received?,
            stopped = &mut interrupted => return stopped.map(|()| Followed::Left).map_err(Into::into),
        };
        let event = match received {
            Received::Event(event) => event,
            Received::Lost(reason) => {
                progress.lost(&reason);
                continue;
            }
        };
        if showing.events {
            output::line(&event.to_string())?;
        }
        let event = in_snake_case(event);
        progress.event(&event);
        match event["type"].as_str() {
            Some("end") => break,
            Some("awaiting_confirmation") => {
                let run = event["run_id"].as_str().and_then(RunId::parse);
                let requests = questions(client, run.context("an event has no run")?).await?;
                for one in &requests {
                    progress.warn(&format!("\n{}\n{}", question(one), answers(one, place)));
                }
                if on_approval == OnApproval::Ends && !requests.is_empty() && !is_here() {
                    return Ok(Followed::Waits);
                }
            }
            _ => {}
        }
    }
    tokio::select! {
        planned = planned(client, id) => Ok(Followed::Planned(Box::new(planned?))),
        stopped = &mut interrupted => stopped.map(|()| Followed::Left).map_err(Into::into),
    }
}

/// An event with its fields spelled as in the events of runs, which progress reads.
fn in_snake_case(event: Value) -> Value {
    let Value::Object(fields) = event else { return event };
    let snake = |name: String| {
        let mut snake = String::new();
        for c in name.chars() {
            if c.is_ascii_uppercase() {
                snake.push('_');
            }
            snake.push(c.to_ascii_lowercase());
        }
        snake
    };
    fields.into_iter().map(|(name, value)| (snake(name), value)).collect()
}

/// The session after the end of its run. A run that could not end the session itself is followed by a sweep of the
/// server, which takes some seconds.
async fn planned(client: &Client, id: PlanningSessionId) -> anyhow::Result<Answer<Session>> {
    for _ in 0..READS {
        let session = client.session(id).await?;
        if !session.is_planning() {
            return Ok(session);
        }
        tokio::time::sleep(PAUSE).await;
    }
    client.session(id).await
}

/// The id of a session that the server answered.
pub(super) fn session_id(session: &Session) -> anyhow::Result<PlanningSessionId> {
    PlanningSessionId::parse(&session.session_id).context("the answer has no session id")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_fields_of_an_event_are_respelled() {
        let event = json!({"type": "tool_call", "runId": "a", "durationMs": 3, "parameters": {"prNumber": 7}});
        let read = json!({"type": "tool_call", "run_id": "a", "duration_ms": 3, "parameters": {"prNumber": 7}});
        assert_eq!(in_snake_case(event), read);
    }
}

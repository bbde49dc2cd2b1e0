//! Follows a run to its end: its progress, its result, and its exit status.

use std::io;
use std::pin::Pin;

use anyhow::Context;
use serde_json::Value;

use super::progress::{self, Progress};
use super::{answer, cancel, is_here, path};
use crate::api::runs::AgentRun;
use crate::api::threads::{ActionAnswer, RunAnswer};
use crate::cli::approvals::{Question, RESOLVE, answers, question, settles};
use crate::cli::client::{Client, Events, Received, Refused, Wait, seen};
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Where};
use crate::cli::interrupt::until_interrupted;
use crate::cli::output::{self, count};
use crate::domain::action::ActionStatus;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::RunId;
use crate::domain::time::Timestamp;

/// The output options of what follows a run or a session.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Showing {
    /// Print the run or session as JSON when it ends or waits for a person, and nothing else on standard output
    #[arg(long, conflicts_with = "events")]
    pub(crate) json: bool,
    /// Print the events as they come, as JSON, one per line; the last has the type end, or result for a session
    #[arg(long)]
    pub(crate) events: bool,
    /// Show no progress
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// The effect of Ctrl-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnInterrupt {
    /// Cancels the run and waits for its end; a second Ctrl-C stops waiting.
    Cancels,
    /// Stops watching; the run continues.
    Leaves,
}

/// The events of a run or a session as they arrive, and what shows them.
pub(crate) struct Watched<'a> {
    events: Events<'a>,
    interrupted: Pin<Box<dyn Future<Output = io::Result<()>>>>,
    /// Prints each event as JSON.
    prints: bool,
    pub(crate) progress: Progress,
}

impl<'a> Watched<'a> {
    /// The events below a path: those of a run, or of a session with its deadline.
    pub(crate) fn new(client: &'a Client, path: &str, showing: Showing, deadline: Option<Timestamp>) -> Self {
        Self {
            events: client.events(format!("{path}/events")),
            interrupted: Box::pin(until_interrupted()),
            prints: showing.events,
            progress: Progress::new(!showing.quiet && !showing.events, deadline),
        }
    }

    /// The next event; `None` when the user interrupts.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            tokio::select! {
                received = self.events.next() => match received? {
                    Received::Event(event) => return Ok(Some(event)),
                    Received::Lost(reason) => self.progress.lost(&reason),
                },
                stopped = &mut self.interrupted => {
                    stopped?;
                    self.interrupted = Box::pin(until_interrupted());
                    return Ok(None);
                }
            }
        }
    }

    /// Runs `work`; `None` if the user interrupts it. An interrupt counts from the last one on, however fast it follows.
    async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> io::Result<Option<T>> {
        tokio::select! {
            done = work => Ok(Some(done)),
            stopped = &mut self.interrupted => stopped.map(|()| None),
        }
    }

    /// Shows an event.
    pub(crate) fn show(&mut self, event: &Value) -> anyhow::Result<()> {
        if self.prints {
            output::line(&event.to_string())?;
        }
        self.progress.event(event);
        Ok(())
    }
}

/// Follows a run until it ends. The events of attempts before this one, counted from 0, are not shown.
///
/// # Errors
/// The run does not exist, or its events can no longer be read.
pub(crate) async fn follow(
    gavel: &Gavel,
    run: RunId,
    showing: Showing,
    on_interrupt: OnInterrupt,
    attempt: usize,
) -> anyhow::Result<Exit> {
    let mut watched = Watched::new(gavel, &path(run), showing, None);
    let followed = until_ended(gavel, run, &mut watched, on_interrupt, attempt).await;
    watched.progress.end();
    match followed.with_context(|| format!("run {run}"))? {
        Followed::Over(ended) => {
            tell(&ended, &gavel.place, showing)?;
            Ok(exit(&ended))
        }
        Followed::Waits(questions) => {
            if showing.json {
                let mut waiting: Value = gavel.get(&path(run)).await?;
                waiting["actions"] = serde_json::to_value(&questions)?;
                output::json(&waiting)?;
            }
            output::note(&format!(
                "run {run} waits for an approval, and continues after the answer"
            ));
            Ok(Exit::NeedsApproval)
        }
        Followed::Left { is_cancelled } => {
            let what = match is_cancelled {
                true => "will be cancelled by its worker, or by the next `gavel serve`",
                false => "continues in its worker, or in the next `gavel serve`",
            };
            output::note(&format!(
                "run {run} {what}; `{} {run}` shows it",
                gavel.command("runs watch")
            ));
            Ok(Exit::Interrupted)
        }
    }
}

/// Why following a run stopped.
enum Followed {
    /// The run has ended.
    Over(Box<AgentRun>),
    /// It waits for a person, and these approval requests were not answered here.
    Waits(Vec<ActionAnswer>),
    /// The user stopped following.
    Left { is_cancelled: bool },
}

/// Follows the run until one of these.
async fn until_ended(
    gavel: &Gavel,
    run: RunId,
    watched: &mut Watched<'_>,
    on_interrupt: OnInterrupt,
    mut earlier: usize,
) -> anyhow::Result<Followed> {
    // Whether the user asked for the cancellation, and whether it was accepted.
    let (mut has_asked, mut is_cancelled) = (false, false);
    watched.progress.note(&format!("run {run}"));
    loop {
        let Some(mut event) = watched.next().await? else {
            if has_asked || on_interrupt == OnInterrupt::Leaves {
                return Ok(Followed::Left { is_cancelled });
            }
            has_asked = true;
            let words = "cancelling the run and waiting for its end; press Ctrl-C again to stop waiting";
            watched.progress.warn(words);
            match watched.unless_stopped(cancel(gavel, run)).await? {
                None => return Ok(Followed::Left { is_cancelled: true }),
                Some(Ok(_)) => is_cancelled = true,
                Some(Err(error)) => watched.progress.warn(&format!(
                    "the run could not be cancelled: {error:#}; retry with `{} {run}`",
                    gavel.command("runs cancel")
                )),
            }
            continue;
        };
        let (is_own, is_end) = (event["run_id"] == run.to_string(), event["type"] == "end");
        if event["type"] == "resumed" && is_own {
            earlier = earlier.saturating_sub(1);
        }
        if earlier > 0 && !is_end {
            continue;
        }
        watched.show(&event)?;
        if is_end {
            let ended = serde_json::from_value(event["run"].take()).context("the last event has no run")?;
            return Ok(Followed::Over(ended));
        }
        if event["type"] == "awaiting_confirmation" && is_own {
            let asks = on_interrupt == OnInterrupt::Cancels;
            let open = unanswered(gavel, run, asks, &mut watched.progress).await?;
            if !open.is_empty() {
                return Ok(Followed::Waits(open));
            }
        }
    }
}

/// The actions of a run, and of those that it called; empty if the run is no longer kept, or hidden from the user.
pub(crate) async fn actions(client: &Client, run: RunId) -> anyhow::Result<Vec<ActionAnswer>> {
    let run = seen(client.get::<RunAnswer>(&format!("api/agent/runs/{run}")).await)?;
    let calls = run.map(|run| run.actions).unwrap_or_default();
    let is_action = |call: &ActionAnswer| call.record.created_at.is_some();
    Ok(calls.into_iter().filter(is_action).collect())
}

/// Asks the user at the terminal about the approval requests of this run and the runs it called, oldest first. Returns
/// those that a person must still answer, after showing how. Without `asks` the user only watches: each is shown, and
/// another person may answer it.
///
/// # Errors
/// An answer is refused.
pub(crate) async fn unanswered(
    gavel: &Gavel,
    run: RunId,
    asks: bool,
    progress: &mut Progress,
) -> anyhow::Result<Vec<ActionAnswer>> {
    let mut requests = actions(gavel, run).await?;
    requests.retain(|action| Question::new(action, None).is_some());
    if !asks || !is_here() {
        for one in requests.iter().filter_map(|action| Question::new(action, None)) {
            progress.warn(&format!("\n{}\n{}", question(&one), answers(&one, &gavel.place)));
        }
        requests.retain(|_| asks);
        return Ok(requests);
    }
    for action in requests {
        let Some(one) = Question::new(&action, None) else {
            continue;
        };
        progress.end();
        let Some(answer) = answer(&one).await? else {
            output::note(&answers(&one, &gavel.place));
            return Ok(vec![action]);
        };
        match gavel.post::<RunAnswer>(RESOLVE, &[], Wait::No, &answer).await {
            // Another approver was faster.
            Err(error) if Refused::has_code(&error, "already_resolved") => {
                output::note(&format!("{error:#}"));
            }
            answered => drop(answered?),
        }
    }
    progress.resume_output();
    Ok(Vec::new())
}

/// Prints the result on standard output, and the status on standard error.
fn tell(run: &AgentRun, place: &Where, showing: Showing) -> anyhow::Result<()> {
    if showing.json {
        output::json(run)?;
    } else if !showing.events
        && let Some(summary) = run.summary.as_deref().filter(|summary| !summary.is_empty())
    {
        output::line(summary)?;
    }
    let is_completed = run.status == RunStatus::Completed;
    if !is_completed || !showing.quiet && !showing.events {
        output::note(&footer(run));
    }
    for line in next(run, place) {
        output::note(&line);
    }
    Ok(())
}

/// One line: the status, the reason, and the cost.
fn footer(run: &AgentRun) -> String {
    let mut line = run.status.to_string();
    if let Some(error) = run.error_message.as_deref().filter(|error| !error.is_empty()) {
        line.push_str(&format!(": {error}"));
    }
    if let Some(from) = &run.recovered_from {
        line.push_str(&format!(", recovered from {from}"));
    }
    let tokens = run.usage.total();
    let time = progress::time(run.duration_ms.unwrap_or_default());
    output::printable(&format!(
        "{line} ({}, {tokens} tokens, {time}, run {})",
        count(run.steps, "step"),
        run.id
    ))
}

/// The next steps for the user: none, unless the run is paused.
pub(super) fn next(run: &AgentRun, place: &Where) -> Vec<String> {
    if run.status != RunStatus::Paused || run.parent_run_id.is_some() {
        return Vec::new();
    }
    let mut lines = Vec::new();
    let mut command = format!("gavel runs resume{} {}", place.repeated(), run.id);
    for call in &run.in_doubt {
        let action = call.action_id;
        lines.push(format!(
            "in doubt: {} {} may have been done (action {action}). Look at the receiving end",
            output::printable(&call.tool),
            output::printable(&call.parameters.to_string()),
        ));
    }
    match run.in_doubt.as_slice() {
        [] => lines.push(format!("to resume it: {command}")),
        [call] => {
            let settled = format!("{command} --settled {}", call.action_id);
            lines.push(format!("if it happened, resume it with:        {settled}=happened"));
            lines.push(format!(
                "if it did not happen, resume it with:  {settled}=did_not_happen"
            ));
        }
        several => {
            for call in several {
                let action = call.action_id;
                // The pasted command fails as printed: the user chooses for each.
                command.push_str(&format!(" --settled '{action}=happened|did_not_happen'"));
            }
            lines.push(format!("to resume it, keep one of the two for each: {command}"));
        }
    }
    lines
}

/// An action of this user, and how the user resolves or settles it.
pub(super) fn action(run: &AgentRun, action: &ActionAnswer, user: Option<&str>, place: &Where) -> String {
    if let Some(one) = Question::new(action, user) {
        return format!("{}{}", question(&one), answers(&one, place));
    }
    let id = action.action_id;
    let head = format!("action {id}  {}  {}\n", output::printable(&action.tool), action.state);
    // In a paused run, an in-doubt action is settled when the run is resumed.
    let has_ended = run.status.has_ended() && run.status != RunStatus::Paused;
    match action.state == ActionStatus::InDoubt && has_ended {
        true => head + &settles(id, &place.for_call_of(user).repeated()),
        false => head,
    }
}

fn exit(run: &AgentRun) -> Exit {
    match run.status {
        RunStatus::Completed => Exit::Done,
        RunStatus::Failed => Exit::RunFailed,
        RunStatus::Cancelled => Exit::RunCancelled,
        RunStatus::Paused => Exit::RunPaused,
        // A run that has ended is in none of these.
        RunStatus::Queued | RunStatus::Running | RunStatus::AwaitingConfirmation => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::cli::tests::samples::sample;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        place: Where,
    }

    #[test]
    fn an_in_doubt_action_says_how_it_is_settled_once_its_run_has_ended() {
        let place = Given::parse_from(["gavel", "--tenant", "acme"]).place;
        let id = "01980000-0000-7000-8000-000000000000";
        let in_doubt: ActionAnswer = sample(json!({"actionId": id, "tool": "gmail_send", "state": "in_doubt"}));
        let reported = |status: &str| action(&sample(json!({"status": status})), &in_doubt, None, &place);
        for over in ["failed", "cancelled", "completed"] {
            for outcome in ["happened", "did_not_happen"] {
                let command = format!("gavel approvals settle --tenant acme {id} {outcome}\n");
                assert!(reported(over).contains(&command), "{}", reported(over));
            }
        }
        for open in ["running", "awaiting_confirmation", "paused"] {
            assert_eq!(reported(open), format!("action {id}  gmail_send  in_doubt\n"));
        }
    }
}

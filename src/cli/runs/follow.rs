//! Follows a run to its end: its progress, its result, and its exit status.

use super::progress::{self, Progress};
use crate::api::runs::AgentRun;
use crate::api::threads::ActionAnswer;
use crate::cli::approvals::{Question, answers, question, settles};
use crate::cli::client::{Client, Received, Refused};
use crate::cli::exit::Exit;
use crate::cli::gavel::Where;
use crate::cli::interrupt::until_interrupted;
use crate::cli::output::{self, count};
use crate::cli::runs::{self as persons, Said};
use crate::domain::action::ActionStatus;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::RunId;
use anyhow::Context;

/// The output options.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Showing {
    /// Print the complete run as JSON when it ends or waits for an approval, and nothing else on standard output
    #[arg(long, conflicts_with = "events")]
    pub(crate) json: bool,
    /// Print the events as they come, as JSON, one per line; the last has the type end
    #[arg(long)]
    events: bool,
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

/// Follows a run until it ends. The events of attempts before this one, counted from 0, are not shown.
///
/// # Errors
/// The run does not exist, or its events can no longer be read.
pub(crate) async fn follow(
    client: &Client,
    place: &Where,
    run: RunId,
    showing: &Showing,
    on_interrupt: OnInterrupt,
    attempt: usize,
) -> anyhow::Result<Exit> {
    let mut progress = Progress::new(!showing.quiet && !showing.events);
    let mut is_cancelled = false;
    let followed = until_ended(
        client,
        place,
        run,
        showing,
        (on_interrupt, attempt),
        &mut progress,
        &mut is_cancelled,
    )
    .await;
    progress.end();
    match followed {
        Ok(Followed::Over(ended)) => {
            tell(&ended, place, showing)?;
            Ok(exit(&ended))
        }
        Ok(Followed::Waits(questions)) => {
            if showing.json {
                let mut waiting = serde_json::to_value(client.run(run).await?)?;
                waiting["actions"] = serde_json::to_value(&questions)?;
                output::json(&waiting)?;
            }
            for one in asked(&questions) {
                output::note(&format!("\n{}\n{}", question(&one), answers(&one, place)));
            }
            output::note(&format!(
                "run {run} waits for an approval, and continues after the answer"
            ));
            Ok(Exit::NeedsApproval)
        }
        Ok(Followed::Left) => {
            let what = match is_cancelled {
                true => "will be cancelled by its worker, or by the next `gavel serve`",
                false => "continues in its worker, or in the next `gavel serve`",
            };
            output::note(&format!(
                "run {run} {what}; `gavel runs watch{} {run}` shows it",
                place.repeated()
            ));
            Ok(Exit::Interrupted)
        }
        Err(error) => Err(error.context(format!("run {run}"))),
    }
}

/// Why following a run stopped.
enum Followed {
    /// The run has ended.
    Over(Box<AgentRun>),
    /// It waits for an approval, and no user is at the terminal: the approval requests.
    Waits(Vec<ActionAnswer>),
    /// The user stopped following.
    Left,
}

/// Follows the run until one of these.
// Longer than a screen: one loop over everything that can happen while a run is followed.
async fn until_ended(
    client: &Client,
    place: &Where,
    run: RunId,
    showing: &Showing,
    (on_interrupt, mut earlier): (OnInterrupt, usize),
    progress: &mut Progress,
    is_cancelled: &mut bool,
) -> anyhow::Result<Followed> {
    let mut interrupted = Box::pin(until_interrupted());
    let mut events = client.events(run);
    let mut has_asked = false;
    progress.note(&format!("run {run}"));
    loop {
        tokio::select! {
            received = events.next() => match received? {
                Received::Event(mut event) => {
                    if event["type"] == "resumed" && event["run_id"] == run.to_string() {
                        earlier = earlier.saturating_sub(1);
                    }
                    if earlier > 0 && event["type"] != "end" {
                        continue;
                    }
                    if showing.events {
                        output::line(&event.to_string())?;
                    }
                    progress.event(&event);
                    if event["type"] == "end" {
                        let ended = serde_json::from_value(event["run"].take()).context("the last event has no run")?;
                        return Ok(Followed::Over(ended));
                    }
                    let waits = event["type"] == "awaiting_confirmation" && event["run_id"] == run.to_string();
                    if waits && on_interrupt == OnInterrupt::Leaves {
                        // A user who only watches may see it answered elsewhere.
                        for one in asked(&questions(client, run).await?) {
                            progress.note(&format!("\n{}\n{}", question(&one), answers(&one, place)));
                        }
                    } else if waits {
                        let questions = questions(client, run).await?;
                        if !questions.is_empty() && !persons::is_here() {
                            return Ok(Followed::Waits(questions));
                        }
                        for question in questions {
                            progress.end();
                            let Some(one) = Question::new(&question, None) else { continue };
                            match persons::answer(&one).await? {
                                Said::Answer(answer) => {
                                    match client.resolve(&answer).await {
                                        Err(error) if is_late(&error) => output::note(&format!("{error:#}")),
                                        answered => drop(answered?),
                                    }
                                }
                                Said::Later => return Ok(Followed::Waits(vec![question])),
                            }
                        }
                        progress.resume_output();
                    }
                }
                Received::Lost(reason) => progress.lost(&reason),
            },
            stopped = &mut interrupted => {
                stopped?;
                interrupted = Box::pin(until_interrupted());
                if has_asked || on_interrupt == OnInterrupt::Leaves {
                    return Ok(Followed::Left);
                }
                (has_asked, *is_cancelled) = (true, true);
                progress.warn("cancelling the run and waiting for its end; press Ctrl-C again to stop waiting");
                let cancelled = tokio::select! {
                    cancelled = client.cancel(run) => cancelled,
                    stopped = &mut interrupted => {
                        stopped?;
                        return Ok(Followed::Left);
                    }
                };
                if let Err(error) = cancelled {
                    *is_cancelled = false;
                    progress.warn(&format!(
                        "the run could not be cancelled: {error:#}; retry with `gavel runs cancel{} {run}`",
                        place.repeated()
                    ));
                }
            }
        }
    }
}

/// The approval requests of this run and the runs it called, oldest first.
pub(crate) async fn questions(client: &Client, run: RunId) -> anyhow::Result<Vec<ActionAnswer>> {
    let actions = client.actions(run).await?;
    Ok(actions
        .into_iter()
        .filter(|action| action.approval_id.is_some())
        .collect())
}

/// What a person is asked about these actions.
pub(crate) fn asked(actions: &[ActionAnswer]) -> impl Iterator<Item = Question<'_>> {
    actions.iter().filter_map(|action| Question::new(action, None))
}

/// Was the request already resolved?
pub(crate) fn is_late(error: &anyhow::Error) -> bool {
    Refused::in_error(error).is_some_and(|refused| refused.has_code("already_resolved"))
}

/// Prints the result on standard output, and the status on standard error.
fn tell(run: &AgentRun, place: &Where, showing: &Showing) -> anyhow::Result<()> {
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
        true => format!(
            "{head}  it may have been done: look at the receiving end, then run one of these:\n{}",
            settles(id, &place.for_call_of(user).repeated())
        ),
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

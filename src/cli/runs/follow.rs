//! Follows a run to its end: its progress, its result, and its exit status.

use anyhow::Context;
use serde_json::Value;

use super::events::Heard;
use super::persons::{self, Said};
use super::place::Where;
use super::progress::{self, Progress};
use super::service::Service;
use crate::cli::approvals::{answers, question};
use crate::cli::exit::Exit;
use crate::cli::interrupt::told_to_stop;
use crate::cli::output::{self, count};
use crate::domain::action::ActionStatus;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::RunId;

/// The output options.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Showing {
    /// Print the complete run as JSON when it ends or waits for an approval, and nothing else on standard output
    #[arg(long, conflicts_with = "events")]
    pub(in crate::cli) json: bool,
    /// Print the events as they come, as JSON, one per line; the last has the type end
    #[arg(long)]
    events: bool,
    /// Show no progress
    #[arg(long, short)]
    pub(in crate::cli) quiet: bool,
}

/// The effect of Ctrl-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum OnInterrupt {
    /// Cancels the run and waits for its end; a second Ctrl-C stops waiting.
    Cancels,
    /// Stops watching; the run continues.
    Leaves,
}

/// Follows a run until it ends.
///
/// # Errors
/// The run does not exist, or its events can no longer be read.
pub(in crate::cli) async fn follow(
    service: &Service,
    place: &Where,
    run: RunId,
    showing: &Showing,
    on_interrupt: OnInterrupt,
) -> anyhow::Result<Exit> {
    let mut progress = Progress::new(!showing.quiet && !showing.events);
    let mut is_cancelled = false;
    let followed = until_over(
        service,
        place,
        run,
        showing,
        on_interrupt,
        &mut progress,
        &mut is_cancelled,
    )
    .await;
    progress.end();
    match followed {
        Ok(Followed::Over(ended)) => {
            tell(&ended, place, showing)?;
            exit(&ended)
        }
        Ok(Followed::Waits(questions)) => {
            if showing.json {
                let mut waiting = service.get(run).await?;
                waiting["actions"] = questions.clone().into();
                output::json(&waiting)?;
            }
            for one in questions {
                output::note(&format!("\n{}\n{}", question(&one), answers(&one, place)));
            }
            output::note(&format!(
                "run {run} waits for an approval, and continues after the answer"
            ));
            Ok(Exit::RunWaits)
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
    /// The run has ended: its document.
    Over(Value),
    /// It waits for an approval, and no user is at the terminal: the approval requests.
    Waits(Vec<Value>),
    /// The user stopped following.
    Left,
}

/// Follows the run until one of these.
async fn until_over(
    service: &Service,
    place: &Where,
    run: RunId,
    showing: &Showing,
    on_interrupt: OnInterrupt,
    progress: &mut Progress,
    is_cancelled: &mut bool,
) -> anyhow::Result<Followed> {
    let mut interrupted = Box::pin(told_to_stop());
    let mut events = service.events(run).await?;
    let mut has_asked = false;
    progress.note(&format!("run {run}"));
    loop {
        tokio::select! {
            heard = events.next() => match heard? {
                Heard::Event(mut event) => {
                    if showing.events {
                        output::line(&event.to_string())?;
                    }
                    progress.event(&event);
                    if event["type"] == "end" {
                        return Ok(Followed::Over(event["run"].take()));
                    }
                    let waits = event["type"] == "awaiting_confirmation" && event["run_id"] == run.to_string();
                    if waits && on_interrupt == OnInterrupt::Leaves {
                        // A user who only watches may see it answered elsewhere.
                        for one in service.questions(run).await? {
                            progress.note(&format!("\n{}\n{}", question(&one), answers(&one, place)));
                        }
                    } else if waits {
                        let questions = service.questions(run).await?;
                        if !questions.is_empty() && !persons::is_here() {
                            return Ok(Followed::Waits(questions));
                        }
                        for question in questions {
                            progress.end();
                            match persons::answer(&question).await? {
                                Said::Answer(answer) => {
                                    if let Some(late) = service.answer(answer).await? {
                                        output::note(&late);
                                    }
                                }
                                Said::Later => return Ok(Followed::Waits(vec![question])),
                            }
                        }
                        progress.resume_output();
                    }
                }
                Heard::Lost(reason) => progress.lost(&reason),
            },
            stopped = &mut interrupted => {
                stopped?;
                interrupted = Box::pin(told_to_stop());
                if has_asked || on_interrupt == OnInterrupt::Leaves {
                    return Ok(Followed::Left);
                }
                (has_asked, *is_cancelled) = (true, true);
                progress.warn("cancelling the run and waiting for its end; press Ctrl-C again to stop waiting");
                let cancelled = tokio::select! {
                    cancelled = service.cancel(run) => cancelled,
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

/// Prints the result on standard output, and the status on standard error.
fn tell(run: &Value, place: &Where, showing: &Showing) -> anyhow::Result<()> {
    if showing.json {
        output::json(run)?;
    } else if !showing.events
        && let Some(summary) = run["summary"].as_str().filter(|summary| !summary.is_empty())
    {
        output::line(summary)?;
    }
    let is_completed = run["status"] == RunStatus::Completed.as_str();
    if !is_completed || !showing.quiet && !showing.events {
        output::note(&footer(run));
    }
    for line in next(run, place) {
        output::note(&line);
    }
    Ok(())
}

/// One line: the status, the reason, and the cost.
fn footer(run: &Value) -> String {
    let text = |field: &str| run[field].as_str().unwrap_or_default();
    let mut line = text("status").to_owned();
    if !text("error_message").is_empty() {
        line.push_str(&format!(": {}", text("error_message")));
    }
    if !text("recovered_from").is_empty() {
        line.push_str(&format!(", recovered from {}", text("recovered_from")));
    }
    let tokens = ["input_tokens", "output_tokens", "thought_tokens"]
        .iter()
        .map(|field| run["usage"][field].as_u64().unwrap_or_default())
        .sum::<u64>();
    let time = progress::time(run["duration_ms"].as_u64().unwrap_or_default());
    output::printable(&format!(
        "{line} ({}, {tokens} tokens, {time}, run {})",
        count(run["steps"].as_u64().unwrap_or_default(), "step"),
        text("id")
    ))
}

/// The next steps for the user: none, unless the run is paused and not resumed.
pub(super) fn next(run: &Value, place: &Where) -> Vec<String> {
    let text = |field: &str| run[field].as_str().unwrap_or_default();
    if run["status"] != RunStatus::Paused.as_str() || run["resumed_by"].is_string() || run["parent_run_id"].is_string()
    {
        return Vec::new();
    }
    let mut lines = Vec::new();
    let mut command = format!("gavel runs resume{} {}", place.repeated(), text("id"));
    let calls = run["in_doubt"].as_array().into_iter().flatten();
    for call in calls {
        let word = |field: &str| output::printable(call[field].as_str().unwrap_or_default());
        lines.push(format!(
            "in doubt: {} {} may have been done. Find out, and keep either happened or did_not_happen for {}",
            word("tool"),
            output::printable(&call["parameters"].to_string()),
            word("action_id"),
        ));
        // The pasted command fails as printed, since it has both answers in quotes: the user must choose one.
        command.push_str(&format!(" --settled '{}=happened|did_not_happen'", word("action_id")));
    }
    lines.push(format!("to resume it: {command}"));
    lines
}

/// An action, and how the user resolves or settles it.
pub(super) fn action(run: &Value, action: &Value, place: &Where) -> String {
    if action["approvalId"].is_string() {
        return format!("{}{}", question(action), answers(action, place));
    }
    let word = |field: &str| output::printable(action[field].as_str().unwrap_or_default());
    let (id, state) = (word("actionId"), word("state"));
    let head = format!("action {id}  {}  {state}\n", word("tool"));
    let status = run["status"].as_str().and_then(RunStatus::parse);
    // In a paused run, an in-doubt action is settled when the run is resumed.
    let is_over = status.is_some_and(|status| status.is_over() && status != RunStatus::Paused);
    match state == ActionStatus::InDoubt.as_str() && is_over {
        true => format!(
            "{head}  it may have been done: find out, then run  gavel approvals settle{} {id} 'happened|did_not_happen'\n",
            place.for_call_of(action["userId"].as_str()).repeated()
        ),
        false => head,
    }
}

fn exit(run: &Value) -> anyhow::Result<Exit> {
    let status = run["status"].as_str().and_then(RunStatus::parse);
    Ok(match status.context("the run ended in an unknown state")? {
        RunStatus::Completed => Exit::Done,
        RunStatus::Failed => Exit::RunFailed,
        RunStatus::Cancelled => Exit::RunCancelled,
        RunStatus::Paused => Exit::RunPaused,
        // A run that has ended is in none of these.
        RunStatus::Queued | RunStatus::Running | RunStatus::AwaitingConfirmation => Exit::Failed,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        place: Where,
    }

    #[test]
    fn a_doubt_says_how_it_is_settled_once_its_run_is_over() {
        let place = Given::parse_from(["gavel", "--tenant", "acme"]).place;
        let doubt = json!({"actionId": "0198", "tool": "gmail_send", "state": "in_doubt"});
        let told = |status: &str| action(&json!({ "status": status }), &doubt, &place);
        let command = "gavel approvals settle --tenant acme 0198 'happened|did_not_happen'";
        for over in ["failed", "cancelled", "completed"] {
            assert!(told(over).contains(command), "{}", told(over));
        }
        for open in ["running", "awaiting_confirmation", "paused"] {
            assert_eq!(told(open), "action 0198  gmail_send  in_doubt\n");
        }
    }
}

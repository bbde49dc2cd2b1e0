//! What the row and the thread of a run that has ended show of it.

use crate::journal::Journal;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::journal::{Cause, Completion, Entry, FaultKind, Line, Verdict};
use crate::domain::templates::{self, Text, counted};
use crate::domain::thread::end_words;
use crate::domain::time::rfc3339;
use crate::limits::Limits;
use crate::next::{Ending, soft_stop};
use crate::ports::commit::RunEnd;
use crate::ports::runs::{MOST_TAKES, StoredRun};
use crate::record::Record;
use crate::record::current;
use crate::strategy::Strategy;
use crate::strategy::plan::Progress;
use crate::{approvals, derive, doom_loop, flow};

/// Marks a run as failed because calls are in doubt: it does not count as completed (promise: truthful states).
pub(super) fn fail_in_doubt(end: &mut RunEnd) {
    let tools: BTreeSet<_> = end.in_doubt.iter().map(|call| call.tool.as_str()).collect();
    let tools: Vec<_> = tools.into_iter().collect();
    end.error_message = Some(Text::InDoubt.with(&[("actions", &tools.join(", "))]));
    end.status = RunStatus::Failed;
    end.stop_reason = Some(StopReason::InDoubt);
}

/// How the end of a run is shown: its status and its texts. `formatted`: the final text, if the definition formats the
/// output.
// Longer than a screen: a table, with one branch for each ending.
pub(super) fn summarize(
    record: &Record,
    strategy: &Strategy,
    limits: &Limits,
    ending: &Ending,
    formatted: Option<String>,
) -> RunEnd {
    let so_far = || progress(record, strategy);
    let mut end = RunEnd::new(RunStatus::Failed);
    match ending {
        Ending::Responded(text) => {
            end.status = RunStatus::Completed;
            end.summary = Some(text.clone());
        }
        Ending::Verdict(Verdict::Complete { output, .. }) | Ending::Flow(output) => {
            end.status = RunStatus::Completed;
            end.summary = Some(formatted.unwrap_or_else(|| derive::words(output)));
            if let Completion::Output(json) = output {
                end.output = RawValue::from_string(json.to_string()).ok().map(Arc::from);
            }
        }
        Ending::Verdict(Verdict::Clarify { question: words, .. } | Verdict::Refuse { message: words, .. }) => {
            end.status = RunStatus::Completed;
            end.summary = Some(words.clone());
        }
        Ending::Stopped(reason, words) => {
            end.status = RunStatus::Paused;
            end.summary = words.clone().or_else(so_far);
            end.stop_reason = Some(*reason);
            end.error_message = Some(stopped(*reason, limits));
        }
        Ending::Waiting(why) => {
            end.status = RunStatus::Paused;
            end.summary = so_far();
            let in_doubt = record.journal.ledger().calls().any(|call| call.is_in_doubt());
            end.stop_reason = Some(if in_doubt {
                StopReason::InDoubt
            } else {
                StopReason::Unavailable
            });
            end.error_message = Some(why.clone());
        }
        Ending::DoomLoop(name) => {
            end.stop_reason = Some(StopReason::DoomLoop);
            end.summary = so_far();
            let times = counted(doom_loop::ENDS_AT as u64, "time");
            end.error_message = Some(Text::DoomLoop.with(&[("tool", name), ("times", &times)]));
        }
        Ending::MissingOutput(words) => {
            end.stop_reason = Some(StopReason::MissingOutput);
            end.summary = Some(words.clone()).filter(|words| !words.trim().is_empty());
            end.error_message = Some(Text::MissingOutput.with(&[]));
        }
        Ending::InvalidOutput(turns, errors) => {
            end.stop_reason = Some(StopReason::InvalidOutput);
            end.summary = so_far();
            let times = counted(u64::from(*turns), "time");
            end.error_message = Some(Text::InvalidOutput.with(&[("times", &times), ("errors", errors)]));
        }
        Ending::TooLong(why) => {
            end.stop_reason = Some(StopReason::SizeLimit);
            end.summary = so_far();
            end.error_message = Some(why.clone());
        }
        Ending::StepFailed(why) | Ending::Unable(why) | Ending::Task(_, why) => {
            end.summary = so_far();
            end.error_message = Some(why.clone());
        }
        Ending::Fault(kind) => {
            end.summary = so_far();
            end.error_message = Some(match derive::cut(&record.journal) {
                Some(_) => Text::ModelCut.with(&[]),
                None => fault(*kind),
            });
        }
        Ending::Rejected(fails, call) => {
            let ledger = record.journal.ledger();
            let action = ledger.call(*call).map(approvals::render_call).unwrap_or_default();
            let words = Text::Rejected.with(&[("action", &action)]);
            if *fails {
                end.summary = so_far();
                end.error_message = Some(words);
            } else {
                end.status = RunStatus::Completed;
                end.summary = Some(words);
            }
        }
        Ending::LoopLimit => {
            end.summary = so_far();
            end.error_message = Some(stopped(StopReason::StepLimit, limits));
            end.stop_reason = Some(StopReason::StepLimit);
        }
        Ending::TimeLimit => {
            end.summary = so_far();
            end.error_message = Some(stopped(StopReason::TimeLimit, limits));
            end.stop_reason = Some(StopReason::TimeLimit);
        }
        Ending::Cancelled => {
            end.status = RunStatus::Cancelled;
            end.summary = with_words_under_way(record, so_far());
        }
        // A suspended run has not ended, and a reflection alone ends none.
        Ending::Suspended(_) | Ending::Unsettled(_) | Ending::Broken | Ending::Verdict(Verdict::Reflect(_)) => {
            end.summary = so_far();
            end.error_message = Some(Text::Broken.with(&[]));
        }
    }
    end
}

/// Does it end without a final text from a model that knows the results of its calls?
pub(super) fn lacks_model_summary(end: &RunEnd, ending: &Ending) -> bool {
    end.status != RunStatus::Completed || matches!(ending, Ending::Rejected(..))
}

/// The thread message at the end of a run. `completed_effects`: the effects that it had nevertheless.
pub(super) fn final_message(stored: &StoredRun, end: &RunEnd, completed_effects: Option<&str>) -> Option<Arc<str>> {
    stored.origin.thread()?;
    let words = end_words(end.status, end.summary.as_deref(), end.error_message.as_deref());
    Some(match completed_effects {
        Some(completed_effects) => format!("{words}\n\n{completed_effects}").into(),
        None => words.into(),
    })
}

/// Why the model gave no answer, for the acting user. The provider's message is in the decision's `error_detail`, for
/// operators.
fn fault(kind: FaultKind) -> String {
    let text = match kind {
        FaultKind::Unavailable => Text::ModelUnavailable,
        FaultKind::Credentials => Text::ModelCredentials,
        FaultKind::Permission => Text::ModelPermission,
        FaultKind::NoSuchModel => Text::ModelUnknown,
        FaultKind::Quota => Text::ModelQuota,
        FaultKind::Rejected => Text::ModelRejected,
        FaultKind::Timeout => Text::ModelTimeout,
        FaultKind::Malformed => Text::ModelMalformed,
        FaultKind::Blocked => Text::ModelBlocked,
    };
    text.with(&[])
}

/// Why a run was cut short, for a user.
fn stopped(reason: StopReason, limits: &Limits) -> String {
    let steps = counted(limits.iterations.unwrap_or_default().into(), "step");
    let spent = templates::time(limits.time.unwrap_or_default().as_secs());
    let deadline = rfc3339(limits.until.map_or(0, |until| until.at_us));
    let tokens = counted(limits.tokens.unwrap_or_default(), "token");
    match reason {
        StopReason::StepLimit => Text::StepLimit.with(&[("steps", &steps)]),
        StopReason::TimeLimit => Text::TimeLimit.with(&[("time", &spent)]),
        StopReason::Deadline => Text::Deadline.with(&[("time", &deadline)]),
        StopReason::TokenLimit => Text::TokenLimit.with(&[("tokens", &tokens)]),
        StopReason::InDoubt => Text::ResumeInDoubt.with(&[]),
        StopReason::Step => Text::StepCut.with(&[]),
        StopReason::MissingOutput => Text::MissingOutput.with(&[]),
        StopReason::Unavailable => Text::Unavailable.with(&[]),
        StopReason::SizeLimit => Text::SizeLimit.with(&[]),
        StopReason::ProcessLost => Text::ProcessLost.with(&[("many", &MOST_TAKES.to_string())]),
        StopReason::InvalidOutput | StopReason::DoomLoop | StopReason::Crash => Text::Broken.with(&[]),
    }
}

/// A run's progress: the last text of its model, or the last output of its steps.
fn progress(record: &Record, strategy: &Strategy) -> Option<String> {
    match strategy {
        Strategy::Steps(_) => flow::last_output(&record.journal),
        Strategy::Plan(execution) => {
            let progress = Progress::of(&record.journal, execution);
            (!progress.reports.is_empty()).then(|| progress.summary())
        }
        Strategy::Turns | Strategy::Opened(_) | Strategy::React(_) => last_words(&record.journal),
    }
}

/// Its last text, plus the text of the turn in which it was cancelled.
fn with_words_under_way(record: &Record, before: Option<String>) -> Option<String> {
    let under_way = record.log().map(|log| log.live.said()).unwrap_or_default();
    if under_way.trim().is_empty() {
        return before;
    }
    Some(match before {
        Some(before) => format!("{before}\n\n{under_way}"),
        None => under_way,
    })
}

/// The model's last text, plus the text of later turns that the time limit cut.
fn last_words(journal: &Journal) -> Option<String> {
    let mut words = Vec::new();
    for entry in journal.iter().rev() {
        match entry.line() {
            Some(Line::Turn(turn, _)) if !turn.text().trim().is_empty() => {
                words.push(turn.text());
                break;
            }
            Some(Line::Cut(said)) => words.push(said.to_owned()),
            Some(Line::Turn(..) | Line::User(_) | Line::Notice(_)) | None => {}
        }
    }
    words.reverse();
    (!words.is_empty()).then(|| words.join("\n\n"))
}

/// The stop reason or crash that the run recovered from.
pub(super) fn recovered_from(own: &[Entry], status: RunStatus) -> Option<StopReason> {
    let current = current(own);
    let soft_stop = soft_stop(current).map(|(reason, _)| reason);
    if status == RunStatus::Completed && soft_stop.is_some() {
        return soft_stop;
    }
    let reminded = |entry: &Entry| matches!(entry.cause(), Some(Cause::OutputDue));
    if status == RunStatus::Completed && current.iter().any(reminded) {
        return Some(StopReason::MissingOutput);
    }
    let recovered = |entry: &Entry| matches!(entry, Entry::Recovered);
    current.iter().any(recovered).then_some(StopReason::Crash)
}

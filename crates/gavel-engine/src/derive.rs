//! Derives the decision from a run's journal and its ending.

use crate::journal::Journal;
use std::sync::Arc;

use super::ledger::Call;
use super::next::Ending;
use crate::domain::agent_run::StopReason;
use crate::domain::decision::{DecisionType, Outcome, Usage};
use crate::domain::journal::{Completion, Entry, FaultKind, Served, Target, Verdict};
use crate::domain::templates::Progress;
use crate::domain::tool::FailureCode;

/// The derived fields of a decision, without its response text and its log entry.
#[derive(Debug, PartialEq, Eq)]
pub struct Derived {
    /// REFUSE > REQUEST_CLARIFICATION > INVOKE_TOOL > RESPOND_ONLY.
    pub decision_type: DecisionType,
    /// REFUSAL > AMBIGUITY > ERROR > SUCCESS.
    pub outcome: Outcome,
    /// The last call that had an effect, else the last call of a tool or an agent, else `respond`, `clarify`, `refuse`
    /// or `none`.
    pub intent: Arc<str>,
    /// The model's own text, if any; otherwise a fixed reply is used.
    pub words: Option<String>,
}

/// Derives the decision.
pub fn derive(journal: &Journal, ending: &Ending) -> Derived {
    let ledger = journal.ledger();
    let calls: Vec<_> = ledger.of_tools().collect();
    let ran = calls.iter().any(|call| call.sent_us().is_some());
    let outcome = outcome(&calls, ending);
    let (otherwise, words) = match ending {
        Ending::Responded(text) => ("respond", Some(text.clone())),
        Ending::Verdict(Verdict::Clarify { question, .. }) => ("clarify", Some(question.clone())),
        Ending::Verdict(Verdict::Refuse { message, .. }) => ("refuse", Some(message.clone())),
        Ending::Verdict(Verdict::Complete { output, .. }) | Ending::Flow(output) => ("respond", Some(words(output))),
        Ending::Stopped(_, Some(text)) | Ending::MissingOutput(text) => ("none", Some(text.clone())),
        Ending::Fault(_)
        | Ending::LoopLimit
        | Ending::TimeLimit
        | Ending::Stopped(_, None)
        | Ending::StepFailed(_)
        | Ending::Task(..)
        | Ending::Unable(_)
        | Ending::Waiting(_)
        | Ending::TooLong(_)
        | Ending::DoomLoop(_)
        | Ending::InvalidOutput(..)
        | Ending::Suspended(_)
        | Ending::Unsettled(_)
        | Ending::Verdict(Verdict::Reflect(_))
        | Ending::Rejected(..)
        | Ending::Cancelled
        | Ending::Broken => ("none", None),
    };
    Derived {
        decision_type: outcome.decision_type(ran),
        outcome,
        intent: intent(&calls).unwrap_or_else(|| Arc::from(otherwise)),
        words,
    }
}

/// The purpose of the calls. A name that the model made up is no intent, since it can be any text.
fn intent(calls: &[Call<'_>]) -> Option<Arc<str>> {
    let effect = calls.iter().rev().find(|call| call.may_have_acted());
    let known = |call: &&Call<'_>| !matches!(call.proposed.target, Target::Unknown);
    let last = || calls.iter().rev().find(known);
    effect.or_else(last).map(|call| call.name())
}

/// The run's output as text.
pub fn words(output: &Completion) -> String {
    match output {
        Completion::Output(json) => json.to_string(),
        Completion::Text(text) => text.clone(),
    }
}

/// Tokens over all model calls.
pub fn usage(journal: &[Entry]) -> Usage {
    let mut total = Usage::default();
    (journal.iter().filter_map(Entry::model_call)).for_each(|(usage, _)| total += *usage);
    total
}

/// What the run has done so far, for a reply that must neither hide an effect nor claim one for a read-only call.
pub fn progress(journal: &Journal) -> Progress {
    let ledger = journal.ledger();
    let done = ledger.of_tools().map(|call| match call.failure_code() {
        Some(FailureCode::InDoubt) => Progress::InDoubt,
        None if call.may_have_acted() => Progress::Partial,
        _ => Progress::Nothing,
    });
    done.max().unwrap_or_default()
}

/// The model that answered last, usable or not.
pub fn served(journal: &[Entry]) -> Option<&Served> {
    let mut served = journal
        .iter()
        .rev()
        .filter_map(Entry::model_call)
        .map(|(_, served)| served);
    served.find(|served| served.model.is_some())
}

/// The text of the model's last answer, if that answer was cut off.
pub fn cut(journal: &[Entry]) -> Option<&str> {
    match journal.last()? {
        Entry::ModelFault { kind, said, .. } if *kind != FaultKind::Timeout => said.as_deref(),
        _ => None,
    }
}

fn outcome(calls: &[Call<'_>], ending: &Ending) -> Outcome {
    let unrepaired = |call: &&Call<'_>| call.failure().is_some() && !repaired(call, calls);
    let denied = calls
        .iter()
        .filter(unrepaired)
        .any(|call| call.failure_code().is_some_and(FailureCode::is_denial));
    let in_doubt = calls.iter().any(|call| call.is_in_doubt());
    match ending {
        Ending::Verdict(Verdict::Refuse { outcome, .. }) => *outcome,
        Ending::Fault(FaultKind::Blocked) => Outcome::SafetyBlocked,
        Ending::Cancelled => Outcome::Cancelled,
        // The requested output exists, whatever failed before.
        Ending::Verdict(Verdict::Complete {
            output: Completion::Output(_),
            ..
        })
        | Ending::Flow(Completion::Output(_))
            if !in_doubt =>
        {
            match calls.iter().any(|call| call.succeeded()) {
                true => Outcome::TaskCompleted,
                false => Outcome::ResponseGiven,
            }
        }
        Ending::Responded(_) | Ending::Verdict(Verdict::Complete { .. }) if denied => Outcome::PolicyDenied,
        Ending::Verdict(Verdict::Clarify { outcome, .. }) => *outcome,
        Ending::Fault(
            FaultKind::Unavailable
            | FaultKind::Credentials
            | FaultKind::Permission
            | FaultKind::NoSuchModel
            | FaultKind::Quota
            | FaultKind::Rejected,
        ) => Outcome::ModelUnavailable,
        Ending::Fault(FaultKind::Timeout) => Outcome::ModelTimeout,
        Ending::Fault(FaultKind::Malformed) => Outcome::MalformedOutput,
        Ending::MissingOutput(_) | Ending::InvalidOutput(..) => Outcome::MalformedOutput,
        // The user rejected a call that the answer needed.
        Ending::Rejected(..) => Outcome::PolicyDenied,
        Ending::LoopLimit
        | Ending::DoomLoop(_)
        | Ending::Stopped(StopReason::StepLimit | StopReason::TokenLimit, _) => Outcome::LoopLimit,
        Ending::TimeLimit | Ending::Stopped(StopReason::TimeLimit | StopReason::Deadline, _) => Outcome::Deadline,
        Ending::TooLong(_) => Outcome::UserInput,
        Ending::Stopped(StopReason::ProcessLost, _) => Outcome::Internal,
        // A run that cannot start lacks its tools or its model.
        Ending::StepFailed(_) | Ending::Task(..) | Ending::Unable(_) | Ending::Waiting(_) | Ending::Stopped(..) => {
            Outcome::ToolInvocation
        }
        Ending::Responded(_) | Ending::Verdict(Verdict::Complete { .. }) | Ending::Flow(_) => {
            if calls.iter().any(|call| unrepaired(&call)) {
                Outcome::ToolInvocation
            } else if calls.iter().any(|call| call.succeeded()) {
                Outcome::TaskCompleted
            } else {
                Outcome::ResponseGiven
            }
        }
        // The chat surface never suspends a run; if it did, there would be no answer.
        Ending::Suspended(_) | Ending::Unsettled(_) | Ending::Verdict(Verdict::Reflect(_)) | Ending::Broken => {
            Outcome::Internal
        }
    }
}

/// A failure is repaired when the same tool succeeded in a later turn. A call that was not allowed to run is repaired
/// when any call of a later turn succeeded. An in-doubt call is never repaired.
fn repaired(failed: &Call<'_>, calls: &[Call<'_>]) -> bool {
    if failed.is_in_doubt() {
        return false;
    }
    calls.iter().any(|later| {
        later.turn > failed.turn && later.succeeded() && (failed.allowed().is_none() || later.name() == failed.name())
    })
}

#[cfg(test)]
mod tests;

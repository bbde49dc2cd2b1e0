//! Derives the decision from a run's journal and its ending (DESIGN.md section 3).

use std::sync::Arc;

use super::Ending;
use super::events::tool_name;
use crate::domain::agent_run::StopReason;
use crate::domain::decision::{DecisionType, Outcome, Usage};
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallResult, Completion, Entry, FaultKind, PolicyDecision, Proposed, Target, Verdict};
use crate::domain::policy::{DecidedBy, Effect};
use crate::domain::templates::Progress;
use crate::domain::tool::FailureCode;
use crate::ports::records::Ruled as Recorded;

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
#[must_use]
pub fn derive(journal: &[Entry], ending: &Ending) -> Derived {
    let calls = calls(journal);
    let ran = calls.iter().any(|call| call.started);
    let outcome = outcome(&calls, ending);
    let decision_type = match outcome.as_str().split(':').next() {
        Some("REFUSAL") => DecisionType::Refuse,
        Some("AMBIGUITY") => DecisionType::RequestClarification,
        _ if ran => DecisionType::InvokeTool,
        _ => DecisionType::RespondOnly,
    };
    let (otherwise, words) = match ending {
        Ending::Responded(text) => ("respond", Some(text.clone())),
        Ending::Verdict(Verdict::Clarify { question, .. }) => ("clarify", Some(question.clone())),
        Ending::Verdict(Verdict::Refuse { message, .. }) => ("refuse", Some(message.clone())),
        Ending::Verdict(Verdict::Complete { output, .. }) | Ending::Flow(output) => ("respond", Some(words(output))),
        Ending::Stopped(_, Some(text)) | Ending::MissingOutput(text) => ("none", Some(text.clone())),
        Ending::Fault(_)
        | Ending::LoopLimit
        | Ending::Deadline
        | Ending::Stopped(_, None)
        | Ending::StepFailed(_)
        | Ending::Unable(_)
        | Ending::Waiting(_)
        | Ending::TooLong(_)
        | Ending::DoomLoop(_)
        | Ending::InvalidOutput(..)
        | Ending::Suspended(_)
        | Ending::Rejected(..)
        | Ending::Cancelled
        | Ending::Broken => ("none", None),
    };
    Derived {
        decision_type,
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
    effect.or_else(last).map(Call::name)
}

/// The run's output as text.
#[must_use]
pub fn words(output: &Completion) -> String {
    match output {
        Completion::Output(json) => json.to_string(),
        Completion::Text(text) => text.clone(),
    }
}

/// Tokens over all model calls.
#[must_use]
pub fn usage(journal: &[Entry]) -> Usage {
    let mut total = Usage::default();
    for entry in journal {
        match entry {
            Entry::ModelTurn { turn, .. } => total += turn.usage,
            Entry::ModelFault { usage, .. } => total += *usage,
            _ => {}
        }
    }
    total
}

/// What the run has done so far, for a reply that must neither hide an effect nor claim one for a read-only call.
#[must_use]
pub fn progress(journal: &[Entry]) -> Progress {
    let calls = calls(journal);
    let done = calls.iter().map(|call| match call.failure() {
        Some(FailureCode::InDoubt) => Progress::InDoubt,
        None if call.may_have_acted() => Progress::Partial,
        _ => Progress::Nothing,
    });
    done.max().unwrap_or_default()
}

/// The model that answered last, by its own name.
#[must_use]
pub fn model(journal: &[Entry]) -> Option<&str> {
    journal.iter().rev().find_map(|entry| match entry {
        Entry::ModelTurn { turn, .. } => Some(turn.model.as_str()),
        _ => None,
    })
}

/// A proposed call and its state.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What the model proposed.
    pub proposed: &'a Proposed,
    /// The number of its turn.
    pub turn: u32,
    /// The arguments that were allowed.
    pub arguments: Option<&'a Arc<serde_json::value::RawValue>>,
    /// The policy's decision on it; `None` where the policy was not asked.
    pub ruled: Option<Ruled<'a>>,
    /// Was it sent?
    pub started: bool,
    /// When it was sent, in microseconds since the epoch.
    pub started_at: Option<i64>,
    /// Its result.
    pub result: Option<&'a CallResult>,
}

impl Call<'_> {
    /// The tool's own name, or the model's name for an unknown tool.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        tool_name(self.proposed)
    }

    fn failure(&self) -> Option<FailureCode> {
        self.result
            .and_then(|result| result.outcome.as_ref().err())
            .map(|failure| failure.code)
    }

    fn succeeded(&self) -> bool {
        self.result.is_some_and(|result| result.outcome.is_ok())
    }

    /// Did it have an effect, or is its outcome unknown? A call of an agent counts as an effect here; its own run has
    /// the details.
    fn may_have_acted(&self) -> bool {
        let acts = match &self.proposed.target {
            Target::Tool(tool) => tool.side_effect,
            Target::Unresolved(tool) => tool.side_effect,
            Target::Agent(_) => true,
            Target::Verdict(_) | Target::Unknown => false,
        };
        acts && (self.succeeded() || self.failure() == Some(FailureCode::InDoubt))
    }
}

/// Every proposed call except verdicts, in order.
#[must_use]
pub fn calls(journal: &[Entry]) -> Vec<Call<'_>> {
    let mut found: Vec<Call<'_>> = Vec::new();
    let mut turn = 0;
    for entry in journal {
        match entry {
            Entry::ModelTurn { .. } | Entry::Step { .. } => {
                turn += 1;
                let tools = entry
                    .calls()
                    .iter()
                    .filter(|call| !matches!(call.target, Target::Verdict(_)));
                found.extend(tools.map(|proposed| Call {
                    proposed,
                    turn,
                    arguments: None,
                    ruled: None,
                    started: false,
                    started_at: None,
                    result: None,
                }));
            }
            Entry::Decided { call, decision } => with(&mut found, *call, |call| {
                if let PolicyDecision::Allow { arguments, .. } = decision {
                    call.arguments = Some(arguments);
                }
                call.ruled = Some(after(call.ruled, decision));
            }),
            Entry::Started { call, at_us, .. } => with(&mut found, *call, |call| {
                call.started = true;
                call.started_at = Some(*at_us);
            }),
            Entry::Result { call, result } => with(&mut found, *call, |call| {
                call.result = Some(result);
                // Started, but never sent: the server was unavailable, or no time was left.
                if !result.sent {
                    (call.started, call.started_at) = (false, None);
                }
            }),
            _ => {}
        }
    }
    found
}

/// The policy's decision on a call: the last one, and whether an approval was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruled<'a> {
    /// The effect.
    pub effect: Effect,
    /// What decided it.
    pub by: &'a [DecidedBy],
}

impl Ruled<'_> {
    /// The decision in its recorded form.
    #[must_use]
    pub fn recorded(self) -> Recorded {
        let by: Vec<_> = self.by.iter().map(ToString::to_string).collect();
        Recorded {
            effect: self.effect,
            by: (!by.is_empty()).then(|| by.join(", ").into()),
        }
    }
}

/// The policy's decision on one call.
#[must_use]
pub fn policy_decision(journal: &[Entry], id: ActionId) -> Option<Recorded> {
    let decided = journal.iter().filter_map(|entry| match entry {
        Entry::Decided { call, decision } if *call == id => Some(decision),
        _ => None,
    });
    let last = decided.fold(None, |before, decision| Some(after(before, decision)));
    last.map(Ruled::recorded)
}

fn after<'a>(before: Option<Ruled<'a>>, decision: &'a PolicyDecision) -> Ruled<'a> {
    match (decision, before) {
        // An approver has approved the call since, so the effect remains "requires approval".
        (PolicyDecision::Allow { by: None, .. }, Some(asked)) if asked.effect == Effect::RequireApproval => asked,
        (PolicyDecision::Allow { by, .. }, _) => Ruled {
            effect: Effect::Allow,
            by: by.as_slice(),
        },
        (PolicyDecision::RequireApproval { by, .. }, _) => Ruled {
            effect: Effect::RequireApproval,
            by,
        },
        (PolicyDecision::Refuse { by, .. }, _) => Ruled {
            effect: Effect::Deny,
            by,
        },
    }
}

fn with<'a>(calls: &mut [Call<'a>], id: ActionId, change: impl FnOnce(&mut Call<'a>)) {
    if let Some(call) = calls.iter_mut().rev().find(|call| call.proposed.id == id) {
        change(call);
    }
}

fn outcome(calls: &[Call<'_>], ending: &Ending) -> Outcome {
    let unrepaired = |call: &&Call<'_>| call.failure().is_some() && !repaired(call, calls);
    let denied = calls.iter().filter(unrepaired).any(|call| is_denial(call.failure()));
    let in_doubt = calls.iter().any(|call| call.failure() == Some(FailureCode::InDoubt));
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
            match calls.iter().any(Call::succeeded) {
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
        Ending::Deadline | Ending::Stopped(StopReason::TimeLimit, _) => Outcome::Deadline,
        Ending::TooLong(_) => Outcome::UserInput,
        // A run that cannot start lacks its tools or its model.
        Ending::StepFailed(_) | Ending::Unable(_) | Ending::Waiting(_) | Ending::Stopped(..) => Outcome::ToolInvocation,
        Ending::Responded(_) | Ending::Verdict(Verdict::Complete { .. }) | Ending::Flow(_) => {
            if calls.iter().any(|call| unrepaired(&call)) {
                Outcome::ToolInvocation
            } else if calls.iter().any(Call::succeeded) {
                Outcome::TaskCompleted
            } else {
                Outcome::ResponseGiven
            }
        }
        // The chat surface never suspends a run; if it did, there would be no answer.
        Ending::Suspended(_) | Ending::Broken => Outcome::Internal,
    }
}

/// Was the call denied by the policy or by a user? A function that was not offered is outside the grant.
fn is_denial(code: Option<FailureCode>) -> bool {
    matches!(
        code,
        Some(FailureCode::Denied | FailureCode::UnknownTool | FailureCode::Rejected | FailureCode::Expired)
    )
}

/// A failure is repaired when the same tool succeeded in a later turn. A call that was not allowed to run is repaired
/// when any call of a later turn succeeded. An in-doubt call is never repaired.
fn repaired(failed: &Call<'_>, calls: &[Call<'_>]) -> bool {
    if failed.failure() == Some(FailureCode::InDoubt) {
        return false;
    }
    calls.iter().any(|later| {
        later.turn > failed.turn && later.succeeded() && (failed.arguments.is_none() || later.name() == failed.name())
    })
}

#[cfg(test)]
mod tests;

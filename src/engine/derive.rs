//! The decision, derived from a run's journal and its ending (DESIGN.md section 3).

use std::sync::Arc;

use super::Ending;
use super::events::tool_name;
use crate::domain::agent_run::StopReason;
use crate::domain::decision::{DecisionType, Outcome, Usage};
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallResult, Completion, Entry, FaultKind, Judgement, Proposed, Target, Verdict};
use crate::domain::policy::{DecidedBy, Effect};
use crate::domain::templates::Progress;
use crate::domain::tool::FailureCode;
use crate::ports::records::Ruled as Recorded;

/// What a decision says, apart from its words and its record.
#[derive(Debug, PartialEq, Eq)]
pub struct Derived {
    /// REFUSE > REQUEST_CLARIFICATION > INVOKE_TOOL > RESPOND_ONLY.
    pub decision_type: DecisionType,
    /// REFUSAL > AMBIGUITY > ERROR > SUCCESS.
    pub outcome: Outcome,
    /// The last call that had an effect, else the last call of a tool or an agent, else `respond`, `clarify`, `refuse` or `none`.
    pub intent: Arc<str>,
    /// The model's own words, when it had some; else a fixed reply is due.
    pub words: Option<String>,
}

/// Derives it.
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

/// What the calls were for. A name that the model made up is no intent: it may be anything.
fn intent(calls: &[Call<'_>]) -> Option<Arc<str>> {
    let effect = calls.iter().rev().find(|call| call.may_have_acted());
    let known = |call: &&Call<'_>| !matches!(call.proposed.target, Target::Unknown);
    let last = || calls.iter().rev().find(known);
    effect.or_else(last).map(Call::name)
}

/// What was handed in, as text.
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

/// What has been done by the end, for a reply that must not hide it, nor claim an effect of what only read.
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

/// The model that answered last, as it names itself.
#[must_use]
pub fn model(journal: &[Entry]) -> Option<&str> {
    journal.iter().rev().find_map(|entry| match entry {
        Entry::ModelTurn { turn, .. } => Some(turn.model.as_str()),
        _ => None,
    })
}

/// A proposed call with all that became of it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What the model proposed.
    pub proposed: &'a Proposed,
    /// In which turn.
    pub turn: u32,
    /// The arguments that were allowed.
    pub arguments: Option<&'a Arc<serde_json::value::RawValue>>,
    /// What the gate said of it; nothing where it was not asked.
    pub ruled: Option<Ruled<'a>>,
    /// Was it sent?
    pub started: bool,
    /// When, in microseconds since the epoch.
    pub started_at: Option<i64>,
    /// What came of it.
    pub result: Option<&'a CallResult>,
}

impl Call<'_> {
    /// The tool's own name, or the model's word for what is none.
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

    /// Did it have an effect, or is that not known? What an agent did that was called is its own run's, and counts as one here.
    fn may_have_acted(&self) -> bool {
        let acts = match &self.proposed.target {
            Target::Tool(tool) => tool.side_effect,
            Target::Gone(tool) => tool.side_effect,
            Target::Agent(_) => true,
            Target::Verdict(_) | Target::Unknown => false,
        };
        acts && (self.succeeded() || self.failure() == Some(FailureCode::InDoubt))
    }
}

/// Every proposed call but verdicts, in order.
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
            Entry::Judged { call, judgement } => with(&mut found, *call, |call| {
                if let Judgement::Allow { arguments, .. } = judgement {
                    call.arguments = Some(arguments);
                }
                call.ruled = Some(after(call.ruled, judgement));
            }),
            Entry::Started { call, at_us, .. } => with(&mut found, *call, |call| {
                call.started = true;
                call.started_at = Some(*at_us);
            }),
            Entry::Result { call, result } => with(&mut found, *call, |call| {
                call.result = Some(result);
                // Started, but never sent: the server was away, or no time was left.
                if !result.sent {
                    (call.started, call.started_at) = (false, None);
                }
            }),
            _ => {}
        }
    }
    found
}

/// What the gate said of a call: its last word, and that a person had to be asked where one was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruled<'a> {
    /// Its answer.
    pub effect: Effect,
    /// What decided it.
    pub by: &'a [DecidedBy],
}

impl Ruled<'_> {
    /// For the record.
    #[must_use]
    pub fn recorded(self) -> Recorded {
        let by: Vec<_> = self.by.iter().map(ToString::to_string).collect();
        Recorded {
            effect: self.effect,
            by: (!by.is_empty()).then(|| by.join(", ").into()),
        }
    }
}

/// What the gate said of one call.
#[must_use]
pub fn ruled(journal: &[Entry], id: ActionId) -> Option<Recorded> {
    let judged = journal.iter().filter_map(|entry| match entry {
        Entry::Judged { call, judgement } if *call == id => Some(judgement),
        _ => None,
    });
    let last = judged.fold(None, |before, judgement| Some(after(before, judgement)));
    last.map(Ruled::recorded)
}

fn after<'a>(before: Option<Ruled<'a>>, judgement: &'a Judgement) -> Ruled<'a> {
    match (judgement, before) {
        // A person has agreed since: that is why it may run.
        (Judgement::Allow { by: None, .. }, Some(asked)) if asked.effect == Effect::RequireApproval => asked,
        (Judgement::Allow { by, .. }, _) => Ruled {
            effect: Effect::Allow,
            by: by.as_slice(),
        },
        (Judgement::RequireApproval { by, .. }, _) => Ruled {
            effect: Effect::RequireApproval,
            by,
        },
        (Judgement::Refuse { by, .. }, _) => Ruled {
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
        // The output that was asked for is there, whatever failed on the way to it.
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
        // What the answer needed was denied, by a person.
        Ending::Rejected(..) => Outcome::PolicyDenied,
        Ending::LoopLimit
        | Ending::DoomLoop(_)
        | Ending::Stopped(StopReason::StepLimit | StopReason::TokenLimit, _) => Outcome::LoopLimit,
        Ending::Deadline | Ending::Stopped(StopReason::TimeLimit, _) => Outcome::Deadline,
        Ending::TooLong(_) => Outcome::UserInput,
        // Of a run that cannot begin its tools are what is missing, or its model.
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
        // The chat surface never waits; if it did, the answer would not be there.
        Ending::Suspended(_) | Ending::Broken => Outcome::Internal,
    }
}

/// Did the gate say no, or a person? A function that was not offered is outside the grant.
fn is_denial(code: Option<FailureCode>) -> bool {
    matches!(
        code,
        Some(FailureCode::Denied | FailureCode::UnknownTool | FailureCode::Rejected | FailureCode::Expired)
    )
}

/// A failure is repaired when a later turn's call of the same tool succeeded; that of a call which was not allowed to run,
/// when any later turn's call did. What is in doubt stays so.
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

//! What the journal calls for: a pure function (DESIGN.md section 2).

use std::time::Duration;

use super::limits::Limits;
use crate::domain::ids::ActionId;
use crate::domain::journal::{Entry, FaultKind, Judgement, Proposed, Target, Verdict};
use crate::domain::tool::FailureCode;

/// The next thing to do.
#[derive(Debug)]
pub enum Next<'a> {
    /// Ask the model.
    Ask,
    /// Judge and, where allowed, run these calls.
    Act(Vec<&'a Proposed>),
    /// Answer these calls without running them, for this reason.
    Refuse(Vec<&'a Proposed>, FailureCode),
    /// Wait for a person's word on these calls.
    Suspend(Vec<ActionId>),
    /// Done.
    End(Ending),
}

/// How a run ended: a value, never an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The model answered in words.
    Responded(String),
    /// The model ended it by a verdict function.
    Verdict(Verdict),
    /// The model gave no usable answer.
    Fault(FaultKind),
    /// Iterations are spent.
    LoopLimit,
    /// Time is spent.
    Deadline,
    /// Calls wait for a person.
    Suspended(Vec<ActionId>),
    /// The run broke down or was cut short; what had been started is in doubt.
    Broken,
}

/// Decides from the journal, the limits and the time used so far.
///
/// Every call of a turn gets exactly one `Result` before the model is asked again. A verdict
/// ends the run only when it stands alone; together with calls none of them runs, since it is
/// not known which of the two the model meant.
#[must_use]
pub fn next<'a>(journal: &'a [Entry], limits: &Limits, elapsed: Duration) -> Next<'a> {
    if let Some(Entry::ModelFault { kind, .. }) = journal.last() {
        return Next::End(Ending::Fault(*kind));
    }
    let asked = iterations(journal);
    let last_turn = journal
        .iter()
        .rposition(|entry| matches!(entry, Entry::ModelTurn { .. }));
    if let Some(at) = last_turn
        && let Entry::ModelTurn { turn, calls } = &journal[at]
    {
        let since = &journal[at + 1..];
        if calls.is_empty() {
            let text = turn.text();
            return Next::End(if text.trim().is_empty() {
                Ending::Fault(FaultKind::Malformed)
            } else {
                Ending::Responded(text)
            });
        }
        if let [
            Proposed {
                target: Target::Verdict(Ok(verdict)),
                ..
            },
        ] = calls.as_slice()
        {
            return Next::End(Ending::Verdict(verdict.clone()));
        }
        if let Some(open) = open_calls(calls, since, limits, asked, elapsed) {
            return open;
        }
    }
    if elapsed >= limits.deadline {
        return Next::End(Ending::Deadline);
    }
    if asked >= limits.iterations {
        return Next::End(Ending::LoopLimit);
    }
    Next::Ask
}

/// Model calls made so far.
#[must_use]
pub fn iterations(journal: &[Entry]) -> u32 {
    let count = journal
        .iter()
        .filter(|entry| matches!(entry, Entry::ModelTurn { .. } | Entry::ModelFault { .. }))
        .count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// What the calls of the last turn need; `None` when all are answered.
fn open_calls<'a>(
    calls: &'a [Proposed],
    since: &'a [Entry],
    limits: &Limits,
    asked: u32,
    elapsed: Duration,
) -> Option<Next<'a>> {
    let open = |call: &&Proposed| {
        !since
            .iter()
            .any(|e| matches!(e, Entry::Result { call: id, .. } if *id == call.id))
    };
    let refuse = |code, which: Vec<&'a Proposed>| (!which.is_empty()).then_some(Next::Refuse(which, code));

    // A verdict that came with calls, or does not hold, costs an iteration and runs nothing.
    if calls.iter().any(|call| matches!(call.target, Target::Verdict(_))) {
        return refuse(FailureCode::MixedWithVerdict, calls.iter().filter(open).collect());
    }
    // Nobody would read the results of a last turn's calls, so they are not begun.
    if asked >= limits.iterations || elapsed >= limits.deadline {
        let begun = |call: &Proposed| {
            since
                .iter()
                .any(|e| matches!(e, Entry::Started { call: id, .. } if *id == call.id))
        };
        if !calls.iter().any(begun) {
            return refuse(FailureCode::LimitReached, calls.iter().filter(open).collect());
        }
    }
    let surplus: Vec<_> = calls.iter().skip(limits.parallel_calls).filter(open).collect();
    if !surplus.is_empty() {
        return refuse(FailureCode::TooManyCalls, surplus);
    }

    let (mut ready, mut waiting) = (Vec::new(), Vec::new());
    for call in calls.iter().filter(open) {
        if awaits_person(call.id, since) {
            waiting.push(call.id)
        } else {
            ready.push(call)
        }
    }
    match (ready.is_empty(), waiting.is_empty()) {
        (false, _) => Some(Next::Act(ready)),
        (true, false) => Some(Next::Suspend(waiting)),
        (true, true) => None,
    }
}

fn awaits_person(call: ActionId, since: &[Entry]) -> bool {
    let mut waits = false;
    for entry in since {
        match entry {
            Entry::Judged {
                call: id,
                judgement: Judgement::RequireApproval { .. },
            } if *id == call => waits = true,
            Entry::Settled { call: id, .. } if *id == call => return false,
            _ => {}
        }
    }
    waits
}

#[cfg(test)]
mod tests;

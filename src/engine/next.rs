//! What the journal calls for: a pure function (DESIGN.md section 2).

use std::time::Duration;

use super::doom_loop;
use super::limits::{AtLimit, Limits, OnReject};
use crate::domain::agent_run::StopReason;
use crate::domain::ids::ActionId;
use crate::domain::journal::{Completion, Entry, FaultKind, PolicyDecision, Proposed, Target, Verdict};
use crate::domain::tool::FailureCode;

/// The next thing to do.
#[derive(Debug)]
pub enum Next<'a> {
    /// Ask the model.
    Ask,
    /// Judge and, where allowed, run these calls.
    Act(Vec<&'a Proposed>),
    /// These calls were begun, and whoever began them is gone: find out what became of them.
    Recover(Vec<&'a Proposed>),
    /// Answer these calls without running them, for this reason.
    Refuse(Vec<&'a Proposed>, FailureCode),
    /// Wait for a person's word on these calls.
    Suspend(Vec<ActionId>),
    /// Tell the model to sum up.
    SoftStop(StopReason),
    /// Tell the model that its output is due.
    OutputDue,
    /// Make this step of the flow: the step, and the round.
    Step(u32, u32),
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
    /// Its last step's output is that of the flow.
    Flow(Completion),
    /// A step of its flow came to no good end: its name.
    StepFailed(String),
    /// It cannot run: why.
    Unable(String),
    /// It had begun and cannot go on now: why.
    Waiting(String),
    /// The model gave no usable answer.
    Fault(FaultKind),
    /// Iterations are spent.
    LoopLimit,
    /// Time is spent.
    Deadline,
    /// It was cut short, and can be resumed; with the model's words, where it had some to sum up.
    Stopped(StopReason, Option<String>),
    /// What it was to put together, or to remember, is longer than it may be: what, and the limit.
    TooLong(String),
    /// The same call again and again: which.
    DoomLoop(String),
    /// The model ended in words, twice, where its output was due.
    MissingOutput(String),
    /// The model handed in its output so many times in a row, each time invalid: how often, and what was wrong with the last.
    InvalidOutput(u32, String),
    /// Calls wait for a person.
    Suspended(Vec<ActionId>),
    /// A person said no, and that is the end of it: does it count as failed, and to which call?
    Rejected(bool, ActionId),
    /// Somebody cancelled it.
    Cancelled,
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
    if limits.pause_in_doubt
        && let Some(next) = doubts_of_agents(journal)
    {
        return next;
    }
    let journal = current(journal);
    let stopped = soft_stop(journal);
    let out_of_time = limits.time.is_some_and(|time| elapsed >= time);
    let sums_up = matches!(limits.at_limit, AtLimit::SumUp { .. });
    if let Some(Entry::ModelFault { kind, .. }) = journal.last() {
        match stopped {
            Some((reason, _)) => return Next::End(Ending::Stopped(reason, None)),
            // The model was still at it when the time was over.
            None if sums_up && out_of_time && *kind == FaultKind::Timeout => {
                return Next::SoftStop(StopReason::TimeLimit);
            }
            None => return Next::End(Ending::Fault(*kind)),
        }
    }
    let asked = iterations(journal);
    let last_turn = journal
        .iter()
        .rposition(|entry| matches!(entry, Entry::ModelTurn { .. }));
    if let Some(at) = last_turn
        && let Entry::ModelTurn { turn, calls } = &journal[at]
    {
        let (before, since) = (&journal[..at], &journal[at + 1..]);
        let summed_up = stopped.filter(|_| soft_stop(before).is_some());
        if calls.is_empty() {
            let text = turn.text();
            let blank = text.trim().is_empty();
            if let Some((reason, _)) = summed_up {
                return Next::End(Ending::Stopped(reason, (!blank).then_some(text)));
            }
            if limits.output_due {
                // Once it is told; what came after that counts.
                let told = |entry: &Entry| matches!(entry, Entry::OutputDue(_));
                if before.iter().any(told) {
                    return Next::End(Ending::MissingOutput(text));
                }
                if !since.iter().any(told) {
                    return Next::OutputDue;
                }
            } else {
                return Next::End(if blank {
                    Ending::Fault(FaultKind::Malformed)
                } else {
                    Ending::Responded(text)
                });
            }
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
        if let Some((reason, _)) = summed_up {
            // no more calls, and no more turns.
            let open: Vec<_> = open(calls, since).collect();
            if !open.is_empty() {
                return Next::Refuse(open, FailureCode::LimitReached);
            }
            let text = turn.text();
            return Next::End(Ending::Stopped(reason, (!text.trim().is_empty()).then_some(text)));
        }
        let mut rejected = calls.iter().filter(|call| was_rejected(call.id, since));
        let rejected = rejected.next().filter(|_| limits.on_reject != OnReject::Continue);
        match (open_calls(journal, calls, since, limits, asked, out_of_time), rejected) {
            // the run is over with that, so nobody is asked about the others any more.
            (Some(Next::Suspend(_)), Some(_)) => {
                return Next::Refuse(open(calls, since).collect(), FailureCode::Rejected);
            }
            (Some(open), _) => return open,
            (None, Some(call)) => {
                return Next::End(Ending::Rejected(limits.on_reject == OnReject::Fail, call.id));
            }
            (None, None) => {}
        }
        if limits.doom_loop
            && let Some(n) = doom_loop::end(&doom_loop::in_a_row(journal))
        {
            return Next::End(Ending::DoomLoop(calls[n].call.name.clone()));
        }
        if let Some(most) = limits.invalid_outputs
            && let Some((turns, errors)) = invalid_outputs(journal)
            && turns >= most
        {
            return Next::End(Ending::InvalidOutput(turns, errors));
        }
        if limits.pause_in_doubt && calls.iter().any(|call| in_doubt(call.id, since)) {
            return Next::End(Ending::Stopped(StopReason::InDoubt, None));
        }
    }
    let AtLimit::SumUp { grace } = limits.at_limit else {
        return if out_of_time {
            Next::End(Ending::Deadline)
        } else if limits.iterations.is_some_and(|most| asked >= most) {
            Next::End(Ending::LoopLimit)
        } else {
            Next::Ask
        };
    };
    if let Some((reason, since)) = stopped {
        // The call that sums up has no other end in time, so this is what recovery finds.
        return if elapsed.saturating_sub(since) >= grace {
            Next::End(Ending::Stopped(reason, None))
        } else {
            Next::Ask
        };
    }
    let reached = [
        (out_of_time, StopReason::TimeLimit),
        (
            limits.iterations.is_some_and(|most| asked >= most),
            StopReason::StepLimit,
        ),
        (
            limits.tokens.is_some_and(|most| tokens(journal) >= most),
            StopReason::TokenLimit,
        ),
    ];
    match reached.into_iter().find(|(reached, _)| *reached) {
        Some((_, reason)) => Next::SoftStop(reason),
        None => Next::Ask,
    }
}

/// How many turns in a row, up to the last, have tried to end the run by a verdict function and were refused; and what the last was
/// told. `None` where the last has not.
fn invalid_outputs(journal: &[Entry]) -> Option<(u32, String)> {
    let turns = journal.iter().rev().filter_map(|entry| match entry {
        Entry::ModelTurn { calls, .. } => Some(calls),
        _ => None,
    });
    let tries = |calls: &&Vec<Proposed>| calls.iter().any(|call| matches!(call.target, Target::Verdict(_)));
    let count = turns.take_while(tries).count();
    let last = journal.iter().rev().find_map(|entry| match entry {
        Entry::ModelTurn { calls, .. } => Some(calls),
        _ => None,
    })?;
    let refused = last.iter().find(|call| matches!(call.target, Target::Verdict(_)))?;
    let told = journal.iter().rev().find_map(|entry| match entry {
        Entry::Result { call, result } if *call == refused.id => result.outcome.as_ref().err(),
        _ => None,
    })?;
    Some((u32::try_from(count).unwrap_or(u32::MAX), told.message.clone()))
}

/// An agent that was called and came into doubt is gone on with when the run is resumed, before the model is asked: it knows
/// itself what a person said of its calls, and its caller's call then has another result.
fn doubts_of_agents(journal: &[Entry]) -> Option<Next<'_>> {
    let resumed = journal.len() - current(journal).len();
    let (before, since) = journal.split_at(resumed);
    if since.iter().any(|entry| matches!(entry, Entry::ModelTurn { .. })) {
        return None;
    }
    let turn = before.iter().rfind(|entry| matches!(entry, Entry::ModelTurn { .. }))?;
    let called = turn
        .calls()
        .iter()
        .filter(|call| matches!(call.target, Target::Agent(_)));
    let doubtful: Vec<_> = called.filter(|call| in_doubt(call.id, journal)).collect();
    let looked_at = |call: &&Proposed| has_result(call.id, since);
    if doubtful.iter().any(looked_at) {
        return Some(Next::End(Ending::Stopped(StopReason::InDoubt, None)));
    }
    (!doubtful.is_empty()).then_some(Next::Recover(doubtful))
}

pub(super) fn has_result(call: ActionId, entries: &[Entry]) -> bool {
    let is_its = |entry: &Entry| matches!(entry, Entry::Result { call: id, .. } if *id == call);
    entries.iter().any(is_its)
}

/// What counts against the limits: all since the run was resumed last.
pub(super) fn current(journal: &[Entry]) -> &[Entry] {
    let resumed = journal.iter().rposition(|entry| matches!(entry, Entry::Resumed { .. }));
    match resumed {
        None => journal,
        Some(at) => &journal[at..],
    }
}

/// The soft stop, and when it came.
pub(super) fn soft_stop(journal: &[Entry]) -> Option<(StopReason, Duration)> {
    journal.iter().rev().find_map(|entry| match entry {
        Entry::SoftStop { reason, elapsed_us, .. } => {
            let at = Duration::from_micros(u64::try_from(*elapsed_us).unwrap_or(0));
            Some((*reason, at))
        }
        _ => None,
    })
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

fn tokens(journal: &[Entry]) -> u64 {
    let used = journal.iter().map(|entry| match entry {
        Entry::ModelTurn { turn, .. } => turn.usage.total(),
        Entry::ModelFault { usage, .. } => usage.total(),
        _ => 0,
    });
    used.fold(0, u64::saturating_add)
}

/// Those without a result.
pub(super) fn open<'a>(calls: &'a [Proposed], since: &'a [Entry]) -> impl Iterator<Item = &'a Proposed> {
    calls.iter().filter(|call| !has_result(call.id, since))
}

/// What the calls of the last turn need; `None` when all are answered.
fn open_calls<'a>(
    journal: &'a [Entry],
    calls: &'a [Proposed],
    since: &'a [Entry],
    limits: &Limits,
    asked: u32,
    out_of_time: bool,
) -> Option<Next<'a>> {
    let refuse = |code, which: Vec<&'a Proposed>| (!which.is_empty()).then_some(Next::Refuse(which, code));
    let begun = |call: &Proposed| {
        since
            .iter()
            .any(|e| matches!(e, Entry::Started { call: id, .. } if *id == call.id))
    };

    // A verdict that came with calls, or does not hold, costs an iteration and runs nothing.
    if calls.iter().any(|call| matches!(call.target, Target::Verdict(_))) {
        return refuse(FailureCode::MixedWithVerdict, open(calls, since).collect());
    }
    let orphans: Vec<_> = open(calls, since).filter(|call| begun(call)).collect();
    if !orphans.is_empty() {
        return Some(Next::Recover(orphans));
    }
    // Where nobody would read the results of a last turn's calls, they are not begun; and none is without time.
    let unread = limits.at_limit == AtLimit::End && limits.iterations.is_some_and(|most| asked >= most);
    let sums_up = limits.at_limit != AtLimit::End;
    if ((unread || out_of_time) && !calls.iter().any(begun)) || (out_of_time && sums_up) {
        return refuse(FailureCode::LimitReached, open(calls, since).collect());
    }
    let surplus: Vec<_> = open(&calls[limits.parallel_calls.min(calls.len())..], since).collect();
    if !surplus.is_empty() {
        return refuse(FailureCode::TooManyCalls, surplus);
    }
    if limits.doom_loop {
        let counts = doom_loop::in_a_row(journal);
        let open_where = |which: &dyn Fn(usize) -> bool| -> Vec<_> {
            open(calls, since)
                .filter(|call| calls.iter().position(|other| other.id == call.id).is_some_and(which))
                .collect()
        };
        let again = open_where(&|n| counts.get(n).is_some_and(|count| *count >= doom_loop::REFUSED_FROM));
        if !again.is_empty() {
            return refuse(FailureCode::DoomLoop, again);
        }
        // with that call the run is over, so nothing after it is begun.
        if let Some(end) = doom_loop::end(&counts) {
            let after = open_where(&|n| n > end);
            if !after.is_empty() {
                return refuse(FailureCode::LimitReached, after);
            }
        }
    }

    let (mut ready, mut waiting) = (Vec::new(), Vec::new());
    for call in open(calls, since) {
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

/// Is it not known whether the call had its effect? The last result counts: a person may have settled it.
pub(super) fn in_doubt(call: ActionId, since: &[Entry]) -> bool {
    let last = since.iter().rev().find_map(|entry| match entry {
        Entry::Result { call: id, result } if *id == call => Some(&result.outcome),
        _ => None,
    });
    matches!(last, Some(Err(failure)) if failure.code == FailureCode::InDoubt)
}

fn was_rejected(call: ActionId, since: &[Entry]) -> bool {
    since.iter().any(|entry| match entry {
        Entry::Result { call: id, result } if *id == call => {
            matches!(&result.outcome, Err(failure) if failure.code == FailureCode::Rejected)
        }
        _ => false,
    })
}

fn awaits_person(call: ActionId, since: &[Entry]) -> bool {
    let mut waits = false;
    for entry in since {
        match entry {
            Entry::Decided {
                call: id,
                decision: PolicyDecision::RequireApproval { .. },
            } if *id == call => waits = true,
            Entry::ApprovalResolved { call: id, .. } if *id == call => return false,
            _ => {}
        }
    }
    waits
}

#[cfg(test)]
mod tests;

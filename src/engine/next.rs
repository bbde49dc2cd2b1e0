//! Decides from the journal what to do next: a pure function (DESIGN.md section 2).

use std::time::Duration;

use super::doom_loop;
use super::limits::{AtLimit, Limits, OnReject};
use crate::domain::agent_run::StopReason;
use crate::domain::ids::ActionId;
use crate::domain::journal::{Completion, Entry, FaultKind, PolicyDecision, Proposed, Target, Verdict};
use crate::domain::tool::FailureCode;

/// The next step of a run.
#[derive(Debug)]
pub enum Next<'a> {
    /// Ask the model.
    Ask,
    /// Decide on these calls and run the allowed ones.
    Act(Vec<&'a Proposed>),
    /// These calls were started by a process that has died: find out their outcomes.
    Recover(Vec<&'a Proposed>),
    /// Refuse these calls, for this reason.
    Refuse(Vec<&'a Proposed>, FailureCode),
    /// Wait until these calls are approved.
    Suspend(Vec<ActionId>),
    /// Ask the model for a final summary.
    SoftStop(StopReason),
    /// Tell the model that its output is due.
    OutputDue,
    /// Start this step of the flow: the step, and the round.
    Step(u32, u32),
    /// The run has ended.
    End(Ending),
}

/// How a run ended: a value, never an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The model answered with text.
    Responded(String),
    /// The model ended it with a verdict function.
    Verdict(Verdict),
    /// The last step's output is the output of the flow.
    Flow(Completion),
    /// A step of its flow did not complete: the message.
    StepFailed(String),
    /// It cannot run: the reason.
    Unable(String),
    /// It had started and cannot continue now: the reason.
    Waiting(String),
    /// The model gave no usable answer.
    Fault(FaultKind),
    /// The model call limit is exceeded.
    LoopLimit,
    /// The time limit is exceeded.
    Deadline,
    /// It was cut short and can be resumed; with the model's final summary, if there is one.
    Stopped(StopReason, Option<String>),
    /// A text or its journal exceeds its size limit: which one, and the limit.
    TooLong(String),
    /// The model repeated the same call: the function's name.
    DoomLoop(String),
    /// The model answered with text, twice, where its output was due.
    MissingOutput(String),
    /// The model's output was invalid this many times in a row; with the errors of the last one.
    InvalidOutput(u32, String),
    /// Calls wait for approvals.
    Suspended(Vec<ActionId>),
    /// The user rejected this call, which ends the run. True: the run counts as failed.
    Rejected(bool, ActionId),
    /// The run was cancelled.
    Cancelled,
    /// The run panicked or was interrupted; calls that had started are in doubt.
    Broken,
}

/// Decides from the journal, the limits and the time used so far.
///
/// Every call of a turn gets exactly one `Result` before the model is asked again. A verdict ends the run only when it
/// is the only call of its turn. Together with other calls, none is run, since it is unclear which one the model meant.
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
            // The model was still answering when the time limit was reached.
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
                // The model is reminded once; only later turns count.
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
            // this ends the run, so no further approvals are requested.
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
        // The final summary has no other time limit, so recovery gets here.
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

/// The number of consecutive turns, up to the last one, whose verdict function was refused, and the last error. `None`
/// if the last turn called no verdict function.
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

/// When a run is resumed, child runs in doubt are continued before the model is asked. They know how the user settled
/// their calls, and the parent's call then gets a new result.
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

/// The entries that count against the limits: those since the last resume.
pub(super) fn current(journal: &[Entry]) -> &[Entry] {
    let resumed = journal.iter().rposition(|entry| matches!(entry, Entry::Resumed { .. }));
    match resumed {
        None => journal,
        Some(at) => &journal[at..],
    }
}

/// The soft stop, and when it happened.
pub(super) fn soft_stop(journal: &[Entry]) -> Option<(StopReason, Duration)> {
    journal.iter().rev().find_map(|entry| match entry {
        Entry::SoftStop { reason, elapsed_us, .. } => {
            let at = Duration::from_micros(u64::try_from(*elapsed_us).unwrap_or(0));
            Some((*reason, at))
        }
        _ => None,
    })
}

/// The number of model calls so far.
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

/// Calls without a result.
pub(super) fn open<'a>(calls: &'a [Proposed], since: &'a [Entry]) -> impl Iterator<Item = &'a Proposed> {
    calls.iter().filter(|call| !has_result(call.id, since))
}

/// The next step for the calls of the last turn; `None` when all have results.
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

    // An invalid verdict, or one together with other calls, uses an iteration and runs nothing.
    if calls.iter().any(|call| matches!(call.target, Target::Verdict(_))) {
        return refuse(FailureCode::MixedWithVerdict, open(calls, since).collect());
    }
    let orphans: Vec<_> = open(calls, since).filter(|call| begun(call)).collect();
    if !orphans.is_empty() {
        return Some(Next::Recover(orphans));
    }
    // If no further model call would read the results of the last turn's calls, they are not started. None is started
    // after the time limit.
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
        // that call ends the run, so no later call is started.
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

/// Is the call's outcome unknown? The last result counts: the user may have settled the call.
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

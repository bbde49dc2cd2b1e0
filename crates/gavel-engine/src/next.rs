//! Decides from the journal what to do next: a pure function.

use std::time::Duration;

use super::journal::Journal;
use super::ledger::{Call, Ledger};
use super::limits::{AtLimit, Limits, OnReject};
use super::record::{current, iterations};
use super::{derive, doom_loop};
use crate::domain::agent_run::StopReason;
use crate::domain::ids::ActionId;
use crate::domain::journal::{Cause, Completion, Entry, FaultKind, ModelTurn, Phase, Proposed, Target, Verdict};
use crate::domain::plan::TaskReason;
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
    /// Remind the model that its output is due.
    OutputDue,
    /// Start this step of the flow, or this read: the step, and the round.
    Step(u32, u32),
    /// Everything is read: begin with the message that is made of it.
    Open,
    /// Begin this phase of a step; true: once more, since the answer could not be used.
    Phase(Phase, bool),
    /// Answer this reflection: it is accepted, or why not.
    Reflected(&'a Proposed, Result<(), (FailureCode, String)>),
    /// Ask the model after this pause, since it was unavailable.
    AskAfter(Duration),
    /// Wait until a person has settled these calls in doubt, which other runs made.
    AwaitSettlement(Vec<ActionId>),
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
    /// Its task ended without reaching its goal: why, with details.
    Task(TaskReason, String),
    /// It cannot run: the reason.
    Unable(String),
    /// It had started and cannot continue now: the reason.
    Waiting(String),
    /// The model gave no usable answer.
    Fault(FaultKind),
    /// The model call limit is exceeded.
    LoopLimit,
    /// The time limit is exceeded.
    TimeLimit,
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
    /// Calls in doubt of its steps wait for a person to settle them.
    Unsettled(Vec<ActionId>),
    /// The user rejected this call, which ends the run. True: the run counts as failed.
    Rejected(bool, ActionId),
    /// The run was cancelled.
    Cancelled,
    /// The run panicked or was interrupted; calls that had started are in doubt.
    Broken,
}

impl Ending {
    /// The deadline has passed.
    pub(super) const PAST_DEADLINE: Self = Self::Stopped(StopReason::Deadline, None);
}

/// Decides from the journal, the limits and the time used so far.
///
/// Every call of a turn gets exactly one `Result` before the model is asked again. A verdict ends the run only when it
/// is the only call of its turn. Together with other calls, none is run, since it is unclear which one the model meant.
pub fn next<'a>(journal: &'a Journal, limits: &Limits, elapsed: Duration) -> Next<'a> {
    if limits.pause_in_doubt
        && let Some(next) = in_doubt_child_runs(journal)
    {
        return next;
    }
    let ledger = journal.ledger();
    let journal = current(journal);
    let now = Situation {
        journal,
        ledger,
        limits,
        elapsed,
        soft_stop: soft_stop(journal),
        asked: iterations(journal),
        out_of_time: limits.time.is_some_and(|time| elapsed >= time),
        past_deadline: limits.is_past_deadline(elapsed),
    };
    if let Some(Entry::ModelFault { kind, .. }) = journal.last() {
        return now.after_fault(*kind);
    }
    let mut entries = journal.iter().enumerate().rev();
    let last_turn = entries.find_map(|(at, entry)| Some((at, entry.turn()?)));
    let next = match last_turn {
        None => None,
        Some((at, (turn, []))) => now.after_words(at, turn),
        Some((at, (turn, calls))) => now.after_calls(at, turn, calls),
    };
    next.unwrap_or_else(|| now.within_limits())
}

/// What the next step is decided from.
struct Situation<'a, 'b> {
    /// Since the last resume.
    journal: &'a [Entry],
    /// Of the whole run.
    ledger: Ledger<'a>,
    limits: &'b Limits,
    elapsed: Duration,
    /// The soft stop, if there was one, and when.
    soft_stop: Option<(StopReason, Duration)>,
    /// Model calls so far.
    asked: u32,
    /// Its time limit is reached.
    out_of_time: bool,
    past_deadline: bool,
}

impl<'a> Situation<'a, '_> {
    /// After a model call without a usable answer.
    fn after_fault(&self, kind: FaultKind) -> Next<'a> {
        let sums_up = matches!(self.limits.at_limit, AtLimit::SumUp { .. });
        match self.soft_stop {
            Some((reason, _)) => Next::End(Ending::Stopped(reason, None)),
            None if self.past_deadline && kind == FaultKind::Timeout => Next::End(Ending::PAST_DEADLINE),
            // The time limit passed while the model was answering.
            None if sums_up && self.out_of_time && kind == FaultKind::Timeout => Next::SoftStop(StopReason::TimeLimit),
            None => Next::End(Ending::Fault(kind)),
        }
    }

    /// After a turn without calls; `None` if the model is asked again.
    fn after_words(&self, at: usize, turn: &ModelTurn) -> Option<Next<'a>> {
        let (before, since) = (&self.journal[..at], &self.journal[at + 1..]);
        let text = turn.text();
        let blank = text.trim().is_empty();
        if let Some(reason) = self.summed_up(at) {
            return Some(Next::End(Ending::Stopped(reason, (!blank).then_some(text))));
        }
        if !self.limits.output_due {
            return Some(Next::End(match blank {
                true => Ending::Fault(FaultKind::Malformed),
                false => Ending::Responded(text),
            }));
        }
        // The model is reminded once that its output is due.
        let reminded = |entry: &Entry| matches!(entry.cause(), Some(Cause::OutputDue));
        if before.iter().any(reminded) {
            return Some(Next::End(Ending::MissingOutput(text)));
        }
        (!since.iter().any(reminded)).then_some(Next::OutputDue)
    }

    /// The reason of a soft stop before the turn at `at`, which then sums up.
    fn summed_up(&self, at: usize) -> Option<StopReason> {
        let (reason, _) = self.soft_stop?;
        soft_stop(&self.journal[..at]).map(|_| reason)
    }

    /// When all calls of the last turn have results: a limit ends the run, or has the model sum up; else it is asked.
    fn within_limits(&self) -> Next<'a> {
        if self.past_deadline {
            let reason = self.soft_stop.map_or(StopReason::Deadline, |(reason, _)| reason);
            return Next::End(Ending::Stopped(reason, None));
        }
        let steps_exceeded = self.limits.iterations.is_some_and(|most| self.asked >= most);
        let AtLimit::SumUp { grace } = self.limits.at_limit else {
            return match (self.out_of_time, steps_exceeded) {
                (true, _) => Next::End(Ending::TimeLimit),
                (false, true) => Next::End(Ending::LoopLimit),
                (false, false) => Next::Ask,
            };
        };
        if let Some((reason, since)) = self.soft_stop {
            // also how recovery ends a run whose summing-up call was lost.
            return match self.elapsed.saturating_sub(since) >= grace {
                true => Next::End(Ending::Stopped(reason, None)),
                false => Next::Ask,
            };
        }
        let tokens_exceeded = self
            .limits
            .tokens
            .is_some_and(|most| derive::usage(self.journal).total() >= most);
        match (self.out_of_time, steps_exceeded, tokens_exceeded) {
            (true, _, _) => Next::SoftStop(StopReason::TimeLimit),
            (false, true, _) => Next::SoftStop(StopReason::StepLimit),
            (false, false, true) => Next::SoftStop(StopReason::TokenLimit),
            (false, false, false) => Next::Ask,
        }
    }
}

/// When a run is resumed, child runs in doubt are continued before the model is asked. They know how the user settled
/// their calls, and the parent's call then gets a new result.
fn in_doubt_child_runs(journal: &Journal) -> Option<Next<'_>> {
    let resumed = journal.len() - current(journal).len();
    let (before, since) = journal.split_at(resumed);
    if since.iter().any(|entry| entry.turn().is_some()) {
        return None;
    }
    let (_, calls) = before.iter().rev().find_map(Entry::turn)?;
    let ledger = journal.ledger();
    let mut in_doubt = Vec::new();
    for call in calls.iter().filter(|call| matches!(call.target, Target::Agent(_))) {
        let state = ledger.call(call.id)?;
        if state.is_in_doubt() {
            if state.has_result_from(resumed) {
                return Some(Next::End(Ending::Stopped(StopReason::InDoubt, None)));
            }
            in_doubt.push(call);
        }
    }
    (!in_doubt.is_empty()).then_some(Next::Recover(in_doubt))
}

/// The soft stop, and when it happened.
pub(super) fn soft_stop(journal: &[Entry]) -> Option<(StopReason, Duration)> {
    journal.iter().rev().find_map(|entry| match entry.cause() {
        Some(Cause::Limit { reason, elapsed_us }) => {
            let at = Duration::from_micros(u64::try_from(*elapsed_us).unwrap_or(0));
            Some((*reason, at))
        }
        _ => None,
    })
}

// What comes after a turn with calls.

impl<'a> Situation<'a, '_> {
    /// After a turn with calls; `None` if the model is asked again.
    fn after_calls(&self, at: usize, turn: &ModelTurn, calls: &'a [Proposed]) -> Option<Next<'a>> {
        if let [only] = calls
            && let Target::Verdict(Ok(verdict)) = &only.target
        {
            return Some(Next::End(Ending::Verdict(verdict.clone())));
        }
        let states: Vec<_> = calls.iter().filter_map(|call| self.ledger.call(call.id)).collect();
        if let Some(reason) = self.summed_up(at) {
            // no more calls, and no more turns.
            return Some(refuse(FailureCode::LimitReached, open(&states)).unwrap_or_else(|| {
                let text = turn.text();
                Next::End(Ending::Stopped(reason, (!text.trim().is_empty()).then_some(text)))
            }));
        }
        let rejected = states
            .iter()
            .find(|call| call.failure_code() == Some(FailureCode::Rejected));
        let rejected = rejected.filter(|_| self.limits.on_reject != OnReject::Continue);
        match (self.open_calls(calls, &states), rejected) {
            // the rejection ends the run, so no other approval is requested.
            (Some(Next::Suspend(_)), Some(_)) => return refuse(FailureCode::Rejected, open(&states)),
            (Some(next), _) => return Some(next),
            (None, Some(call)) => {
                let failed = self.limits.on_reject == OnReject::Fail;
                return Some(Next::End(Ending::Rejected(failed, call.id())));
            }
            (None, None) => {}
        }
        if self.limits.doom_loop
            && let Some(n) = doom_loop::end(&doom_loop::in_a_row(self.journal))
        {
            return Some(Next::End(Ending::DoomLoop(calls[n].call.name.clone())));
        }
        if let Some(most) = self.limits.invalid_outputs
            && let Some((turns, errors)) = self.invalid_outputs(&states)
            && turns >= most
        {
            return Some(Next::End(Ending::InvalidOutput(turns, errors)));
        }
        let in_doubt = self.limits.pause_in_doubt && states.iter().any(|call| call.is_in_doubt());
        in_doubt.then_some(Next::End(Ending::Stopped(StopReason::InDoubt, None)))
    }

    /// The next step for the calls of the last turn; `None` when all have results.
    fn open_calls(&self, calls: &'a [Proposed], states: &[Call<'a>]) -> Option<Next<'a>> {
        // An invalid verdict, or one together with other calls, uses an iteration and runs nothing.
        if calls.iter().any(|call| matches!(call.target, Target::Verdict(_))) {
            return refuse(FailureCode::MixedWithVerdict, open(states));
        }
        let orphans: Vec<_> = open(states)
            .filter(|call| call.was_started())
            .map(|call| call.proposed)
            .collect();
        if !orphans.is_empty() {
            return Some(Next::Recover(orphans));
        }
        // An answer that refuses a call is its result, also after the deadline.
        let answered: Vec<_> = open(states).filter(|call| call.was_approved() == Some(false)).collect();
        if self.past_deadline && !answered.is_empty() {
            return Some(Next::Act(answered.into_iter().map(|call| call.proposed).collect()));
        }
        if self.is_too_late(states) {
            return refuse(FailureCode::LimitReached, open(states));
        }
        let surplus = refuse(
            FailureCode::TooManyCalls,
            open(&states[self.limits.parallel_calls.min(states.len())..]),
        );
        if surplus.is_some() {
            return surplus;
        }
        if self.limits.doom_loop
            && let Some(refused) = self.repeated(states)
        {
            return Some(refused);
        }
        let (waiting, ready): (Vec<Call<'a>>, Vec<_>) = open(states).partition(|call| call.awaits_approval());
        match (ready.is_empty(), waiting.is_empty()) {
            (false, _) => Some(Next::Act(ready.into_iter().map(|call| call.proposed).collect())),
            (true, false) => Some(Next::Suspend(waiting.into_iter().map(Call::id).collect())),
            (true, true) => None,
        }
    }

    /// Are the open calls not to be started? If no further model call would read their results, none is started; and
    /// none after the time limit or the deadline.
    fn is_too_late(&self, states: &[Call<'_>]) -> bool {
        let ends = self.limits.at_limit == AtLimit::End;
        let unread = ends && self.limits.iterations.is_some_and(|most| self.asked >= most);
        let none_started = !states.iter().any(|call| call.was_started());
        ((unread || self.out_of_time) && none_started) || (self.out_of_time && !ends) || self.past_deadline
    }

    /// Refuses open calls that are identical to the ones before, and those after a call that ends the run.
    fn repeated(&self, states: &[Call<'a>]) -> Option<Next<'a>> {
        let counts = doom_loop::in_a_row(self.journal);
        let open_where = |which: &dyn Fn(usize) -> bool| -> Vec<Call<'a>> {
            let numbered = states.iter().enumerate();
            numbered
                .filter(|(n, call)| call.is_open() && which(*n))
                .map(|(_, call)| *call)
                .collect()
        };
        let again = open_where(&|n| counts.get(n).is_some_and(|count| *count >= doom_loop::REFUSED_FROM));
        refuse(FailureCode::DoomLoop, again.into_iter()).or_else(|| {
            // that call ends the run, so no later call is started.
            let end = doom_loop::end(&counts)?;
            refuse(FailureCode::LimitReached, open_where(&|n| n > end).into_iter())
        })
    }

    /// How many turns in a row, up to the last, tried to end the run with an invalid verdict, and the errors of the
    /// last one. `None` if the last turn did not.
    fn invalid_outputs(&self, states: &[Call<'_>]) -> Option<(u32, String)> {
        let last = states.iter().find(|call| is_verdict(call.proposed))?;
        let turns = self.journal.iter().rev().filter_map(Entry::turn);
        let count = turns.take_while(|(_, calls)| calls.iter().any(is_verdict)).count();
        Some((
            u32::try_from(count).unwrap_or(u32::MAX),
            last.failure()?.message.clone(),
        ))
    }
}

fn is_verdict(call: &Proposed) -> bool {
    matches!(call.target, Target::Verdict(_))
}

/// Calls without a result.
fn open<'s, 'a>(states: &'s [Call<'a>]) -> impl Iterator<Item = Call<'a>> + use<'s, 'a> {
    states.iter().copied().filter(|call| call.is_open())
}

/// Refuses these calls; `None` if there are none.
fn refuse<'a>(code: FailureCode, calls: impl Iterator<Item = Call<'a>>) -> Option<Next<'a>> {
    let refused: Vec<_> = calls.map(|call| call.proposed).collect();
    (!refused.is_empty()).then_some(Next::Refuse(refused, code))
}

#[cfg(test)]
mod tests;

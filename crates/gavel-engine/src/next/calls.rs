//! What comes after a turn with calls.

use super::{Ending, Next, Situation};
use crate::domain::agent_run::StopReason;
use crate::domain::journal::{Entry, ModelTurn, Proposed, Target};
use crate::domain::tool::FailureCode;
use crate::doom_loop;
use crate::ledger::Call;
use crate::limits::{AtLimit, OnReject};

impl<'a> Situation<'a, '_> {
    /// After a turn with calls; `None` if the model is asked again.
    pub(super) fn after_calls(&self, at: usize, turn: &ModelTurn, calls: &'a [Proposed]) -> Option<Next<'a>> {
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
        let turns = self.journal.iter().rev().filter_map(|entry| match entry {
            Entry::ModelTurn { calls, .. } => Some(calls),
            _ => None,
        });
        let count = turns.take_while(|calls| calls.iter().any(is_verdict)).count();
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

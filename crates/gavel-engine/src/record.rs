//! Projects a run's journal into the decision log.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::derive::{self, Derived};
use super::journal::Journal;
use super::ledger::Call;
use super::log::Log;
use super::strategy::Strategy;
use crate::domain::budget::Held;
use crate::domain::decision::{LimitReached, Usage};
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallFailure, CallResult, Entry, Served, Target};
use crate::domain::prices::Prices;
use crate::domain::time::Timestamp;
use crate::domain::tool::FailureCode;
use crate::ports::commit::Spent;
use crate::ports::records::{Asked, ClosedCall, ClosedDecision, OpenCall, OpenDecision, StoredAnswer, Times, Turn};

/// A run's row and journal, and how they become durable: enough to close it.
pub struct Record {
    /// The tenant, the user and the other fields of its row in the decision log.
    pub decision: OpenDecision,
    /// The journal so far.
    pub journal: Journal,
    /// How it becomes durable.
    pub durability: Durability,
    /// When this process started to execute it.
    pub began: Instant,
    /// The run's clock at that time, as used by earlier processes.
    pub before: Duration,
    /// What the model was asked with, once it was.
    pub asked: Option<Arc<Asked>>,
    /// The limits that it has reached, once it has ended.
    pub limits: Vec<LimitReached>,
    /// Details of a model fault, for operators.
    pub fault_detail: Option<Arc<str>>,
    /// The memory that its journal uses, beyond a small free amount.
    pub remembered: Option<Held<'static>>,
}

/// How a run becomes durable.
pub enum Durability {
    /// In two commits: its intents before their calls are sent, and its end. No other process continues it.
    Commits {
        /// Has commit 1 been made?
        opened: bool,
        /// Intents made durable so far.
        intended: Vec<ActionId>,
    },
    /// Entry by entry, under a lease.
    Log(Log),
}

impl Record {
    /// The record of a run that begins now.
    pub fn new(decision: OpenDecision, durability: Durability, began: Instant) -> Self {
        Self {
            decision,
            journal: Journal::default(),
            durability,
            began,
            before: Duration::ZERO,
            asked: None,
            limits: Vec::new(),
            fault_detail: None,
            remembered: None,
        }
    }

    /// Its log, if it is written entry by entry.
    pub fn log(&self) -> Option<&Log> {
        match &self.durability {
            Durability::Commits { .. } => None,
            Durability::Log(log) => Some(log),
        }
    }

    pub(super) fn log_mut(&mut self) -> Option<&mut Log> {
        match &mut self.durability {
            Durability::Commits { .. } => None,
            Durability::Log(log) => Some(log),
        }
    }

    /// Does its row exist?
    pub fn is_opened(&self) -> bool {
        match &self.durability {
            Durability::Commits { opened, .. } => *opened,
            Durability::Log(_) => true,
        }
    }

    /// The run's clock. Waits for approvals and the time between two processes do not count.
    pub(super) fn elapsed(&self, now: Instant) -> Duration {
        self.before + now.saturating_duration_since(self.began)
    }

    /// Is it certain that no other process works on it? For a run without a log that is always so.
    pub(super) fn is_ours(&self) -> bool {
        self.log().is_none_or(|log| log.hold.is_ours())
    }

    /// The number of entries that are written.
    pub(super) fn written(&self) -> usize {
        self.log().map_or(0, |log| log.written)
    }

    /// The decision as the last commit writes it.
    pub fn closed(
        &self,
        prices: &Prices,
        derived: &Derived,
        response: &str,
        (duration, closed_at): (Duration, i64),
        answer: Option<StoredAnswer>,
    ) -> ClosedDecision {
        let journal = &self.journal;
        let duration_us = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let served = derive::served(journal);
        ClosedDecision {
            open: self.decision.clone(),
            asked: self.asked.clone(),
            decision_type: derived.decision_type,
            outcome: derived.outcome,
            intent: Arc::clone(&derived.intent),
            response: Arc::from(response),
            model: served.and_then(|served| served.model.clone()),
            service_tier: served.and_then(|served| served.service_tier.clone()),
            turns: turns(journal, prices),
            usage: derive::usage(journal),
            duration_us,
            times: times(journal, duration_us),
            limits: self.limits.clone(),
            closed_at,
            error_detail: self.fault_detail.clone(),
            calls: of_attempt(journal).map(|call| self.ended_call(call)).collect(),
            answer,
            opened: self.is_opened(),
        }
    }

    /// Outcomes of side effects in the entries that are not written yet.
    pub(super) fn ended(&self) -> Option<Vec<ClosedCall>> {
        let written = self.written();
        if !(self.journal.iter().skip(written)).any(|entry| entry.result().is_some()) {
            return None;
        }
        // Includes calls that were started but could not be sent.
        let ended = of_attempt(&self.journal).filter(|call| {
            let is_new = call.has_result_from(written) && call.was_started();
            is_new && call.tool().is_some_and(|tool| tool.side_effect)
        });
        let effects: Vec<_> = ended.map(|call| self.ended_call(call)).collect();
        (!effects.is_empty()).then_some(effects)
    }

    /// The row of a call that is sent at this time, or not at all.
    pub(super) fn open_call(&self, call: Call<'_>, sent_us: Option<i64>) -> OpenCall {
        OpenCall {
            id: call.id(),
            decision: self.decision.id,
            tenant: self.decision.tenant.clone(),
            sequence: call.proposed.sequence,
            turn: (call.step.is_none()).then(|| iterations(&self.journal[..=call.proposed_at()])),
            tool: call.tool().map(Arc::clone),
            name: Arc::from(call.proposed.call.name.as_str()),
            words: call.words(),
            arguments: call.arguments(),
            policy: call.policy(),
            idempotency_key: sent_us.map(|_| Arc::from(call.id().to_string())),
            created_at: sent_us.unwrap_or(self.decision.created_at),
        }
    }

    fn ended_call(&self, call: Call<'_>) -> ClosedCall {
        let (sent_us, result) = (call.sent_us(), call.result());
        ClosedCall {
            open: self.open_call(call, sent_us),
            started_at: sent_us,
            duration_us: result.map_or(0, |result| result.duration_us),
            outcome: result.map_or_else(|| Err(without_result(call)), |result| result.outcome.clone()),
        }
    }

    /// Total usage of the run and of the flows that it is a step of, if entries that are not written yet change it.
    pub(super) fn spent(&self, strategy: &Strategy) -> Vec<Spent> {
        let Some(log) = self.log() else { return Vec::new() };
        // The end of a step of a flow counts.
        let changes =
            |entry: &Entry| entry.model_call().is_some() || (strategy.has_steps() && entry.result().is_some());
        if !self.journal.iter().skip(log.written).any(changes) {
            return Vec::new();
        }
        let (steps, usage) = strategy.total(&self.journal);
        with_flows(log, steps, usage)
    }
}

/// Results for all open calls after a panic or a cancellation; each states how far its call came.
pub(super) fn unfinished_calls(record: &Record, why: &str, harmless: FailureCode) -> Vec<Entry> {
    // Calls in an unconfirmed append were not sent: sending waits for the store's answer.
    let announcing = record.log().filter(|log| log.intending).map(|log| log.written);
    let confirmed = announcing.unwrap_or(record.journal.len());
    let ledger = record.journal.ledger();
    ledger
        .calls()
        .filter(|call| call.is_open())
        .map(|call| {
            let sent = call.was_started_before(confirmed);
            // The effects of a child run are known if it was driven to its end first, as after a cancellation.
            let of_child = matches!(call.proposed.target, Target::Agent(_)) && harmless != FailureCode::Cancelled;
            let acts = call.has_side_effect() || of_child;
            let (code, message) = match (sent, acts) {
                (true, true) => (
                    FailureCode::InDoubt,
                    format!("{why} during this call; its outcome is unknown"),
                ),
                (true, false) if harmless == FailureCode::LimitReached => {
                    (FailureCode::Timeout, format!("{why} during this call"))
                }
                (true, false) => (harmless, format!("{why} during this call")),
                (false, _) => (harmless, format!("{why} before this call was sent")),
            };
            Entry::Result {
                call: call.id(),
                result: CallResult {
                    sent,
                    ..CallResult::not_sent(code, message)
                },
            }
        })
        .collect()
}

/// The usage of the run itself, and added to each flow that it is a step of.
pub(super) fn with_flows(log: &Log, steps: u32, usage: Usage) -> Vec<Spent> {
    let own = Spent {
        run: log.run,
        steps,
        usage,
    };
    let flows = log.flows.iter().map(|flow| {
        let mut all = *flow;
        all.steps = all.steps.saturating_add(steps);
        all.usage += usage;
        all
    });
    flows.chain([own]).collect()
}

/// The calls whose log the current attempt writes: all, but for those that an earlier attempt has closed. What a user
/// reported about a call of an earlier attempt is in the log already.
fn of_attempt(journal: &Journal) -> impl Iterator<Item = Call<'_>> {
    let resumed = journal.len() - current(journal).len();
    let before: HashSet<_> = journal[..resumed]
        .iter()
        .flat_map(Entry::calls)
        .map(|call| call.id)
        .collect();
    journal.ledger().of_tools().filter(move |call| {
        let calls_agent = matches!(call.proposed.target, Target::Agent(_));
        !before.contains(&call.id()) || (calls_agent && call.has_result_from(resumed))
    })
}

/// A started call without a result is a step that was cut short; a call that was not started was not recorded.
pub fn without_result(call: Call<'_>) -> CallFailure {
    if call.sent_us().is_some() {
        return CallFailure::new(
            FailureCode::Cancelled,
            "cut short; it continues when the run is resumed".to_owned(),
        );
    }
    not_run()
}

/// The run was abandoned because its intents could not be made durable.
pub fn not_run() -> CallFailure {
    CallFailure::new(
        FailureCode::NotRecorded,
        "the record could not be made durable, so this call was not sent".to_owned(),
    )
}

// Which entries of a journal count, and how much they are.

/// The entries that count against the limits: those since the last resume.
pub(super) fn current(journal: &[Entry]) -> &[Entry] {
    let resumed = journal.iter().rposition(|entry| matches!(entry, Entry::Resumed { .. }));
    match resumed {
        None => journal,
        Some(at) => &journal[at..],
    }
}

/// The model calls of a journal, as its row has them.
fn turns(journal: &[Entry], prices: &Prices) -> Vec<Turn> {
    let ms = |us: i64| us.max(0).unsigned_abs() / 1000;
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    let calls = journal.iter().filter_map(Entry::model_call);
    let turn = |(usage, served): (&Usage, &Served)| {
        let cost = prices.cost(served, usage);
        Turn {
            requested_model: served.requested_model.to_string(),
            model: text(&served.model),
            service_tier: text(&served.service_tier),
            finish_reason: text(&served.finish_reason),
            attempts: served.attempts,
            started_at: Timestamp(served.started_at),
            duration_ms: ms(served.duration_us),
            first_text_ms: served.first_text_us.map(ms),
            usage: *usage,
            cost_nano: cost.as_ref().map(|cost| cost.nano),
            price_id: cost.map(|cost| cost.price_id),
        }
    };
    calls.map(turn).collect()
}

/// Where the time of a run went. What people were waited for comes first, since the agents that a run calls may wait too.
fn times(journal: &Journal, duration_us: i64) -> Times {
    let (mut spans, mut before) = (Vec::new(), 0);
    let mut more = |new: &mut dyn Iterator<Item = (i64, i64)>| {
        spans.extend(new);
        let all = covered(&mut spans).min(duration_us);
        all - std::mem::replace(&mut before, all)
    };
    let asked = |(_, served): (&Usage, &Served)| (served.started_at, served.started_at + served.duration_us);
    let sent = |call: Call<'_>| Some((call.sent_us()?, call.sent_us()? + call.duration_us()?));
    Times {
        human_us: more(&mut journal.iter().filter_map(Entry::waited)),
        model_us: more(&mut journal.iter().filter_map(Entry::model_call).map(asked)),
        tool_us: more(&mut journal.ledger().of_tools().filter_map(sent)),
    }
}

/// The length of what these spans cover together.
fn covered(spans: &mut [(i64, i64)]) -> i64 {
    spans.sort_unstable();
    let (mut all, mut until) = (0, i64::MIN);
    for &mut (from, to) in spans {
        all += (to - from.max(until)).max(0);
        until = until.max(to);
    }
    all
}

/// The number of model calls so far.
pub fn iterations(journal: &[Entry]) -> u32 {
    u32::try_from(journal.iter().filter_map(Entry::model_call).count()).unwrap_or(u32::MAX)
}

/// The number of calls proposed so far.
pub(super) fn proposed(journal: &[Entry]) -> u32 {
    let calls = journal.iter().map(|entry| entry.calls().len());
    u32::try_from(calls.sum::<usize>()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod times_tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::domain::journal::ModelTurn;
    use crate::testing::{call_of, raw, tool_on};

    /// A model call that proposes one call, at these times.
    fn asked((from, to): (i64, i64)) -> (Entry, ActionId) {
        let call = call_of(&tool_on("tasks", "add_task"), "{}");
        let id = call.id;
        let turn = ModelTurn {
            content: Arc::from(raw("{}")),
            parts: Vec::new(),
            usage: Usage::default(),
            served: Served {
                started_at: from,
                duration_us: to - from,
                ..Served::by("test")
            },
        };
        (
            Entry::ModelTurn {
                turn,
                calls: vec![call],
            },
            id,
        )
    }

    fn called(call: ActionId, (from, to): (i64, i64)) -> [Entry; 2] {
        let outcome = Ok(Arc::from(raw("1")));
        let result = CallResult::sent(outcome, Duration::from_micros((to - from).unsigned_abs()));
        [
            Entry::Started {
                call,
                at_us: from,
                child: None,
            },
            Entry::Result { call, result },
        ]
    }

    fn waited(call: ActionId, waited: (i64, i64)) -> Entry {
        Entry::ApprovalResolved {
            call,
            approved: true,
            by: Some("ann".to_owned()),
            reason: None,
            waited,
        }
    }

    fn journal(turns: &[[(i64, i64); 3]]) -> Journal {
        let entries = turns.iter().flat_map(|&[model, human, tool]| {
            let (turn, call) = asked(model);
            let [started, result] = called(call, tool);
            [turn, waited(call, human), started, result]
        });
        entries.collect::<Vec<_>>().into()
    }

    #[test]
    fn an_approver_within_a_call_of_an_agent_is_no_time_of_the_call() {
        let journal = journal(&[[(0, 10), (20, 80), (15, 100)]]);
        let times = times(&journal, 120);
        assert_eq!((times.model_us, times.human_us, times.tool_us), (10, 60, 25));
    }

    #[test]
    fn calls_at_the_same_time_count_once() {
        let journal = journal(&[[(0, 10), (0, 0), (10, 30)], [(30, 40), (0, 0), (15, 25)]]);
        assert_eq!(times(&journal, 40).tool_us, 20);
    }

    proptest! {
        /// Whatever clocks say: what is left for gavel itself is never negative.
        #[test]
        fn the_parts_never_exceed_the_whole(
            turns in prop::collection::vec(prop::array::uniform3((0_i64..1000, 0_i64..1000)), 0..8),
            duration in 0_i64..2000,
        ) {
            let turns: Vec<_> = turns.iter().map(|spans| spans.map(|(from, long)| (from, from + long))).collect();
            let times = times(&journal(&turns), duration);
            let parts = [times.human_us, times.model_us, times.tool_us];
            prop_assert!(parts.iter().all(|part| *part >= 0));
            prop_assert!(parts.iter().sum::<i64>() <= duration, "{times:?}");
        }
    }
}

//! Projects a run's journal into the decision log.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::derive::{self, Derived};
use super::ledger::{Call, Ledger};
use super::log::Log;
use super::{Run, iterations};
use crate::domain::canonical;
use crate::domain::decision::Usage;
use crate::domain::journal::{CallFailure, Entry};
use crate::domain::nesting;
use crate::domain::tool::FailureCode;
use crate::ports::claims::StoredAnswer;
use crate::ports::commit::Spent;
use crate::ports::records::{CallRecord, ClosedDecision, OpenDecision};

/// The decision as commit 2 writes it.
#[must_use]
pub fn closed(
    run: &Run,
    derived: &Derived,
    response: &str,
    model: &str,
    duration: Duration,
    answer: Option<StoredAnswer>,
) -> ClosedDecision {
    let journal = own(run);
    ClosedDecision {
        open: run.record.clone(),
        decision_type: derived.decision_type,
        outcome: derived.outcome,
        intent: Arc::clone(&derived.intent),
        response: Arc::from(response),
        model: Arc::from(model),
        iterations: iterations(journal),
        usage: derive::usage(journal),
        duration_us: i64::try_from(duration.as_micros()).unwrap_or(i64::MAX),
        error_detail: run.fault_detail.clone(),
        calls: Ledger::of(journal).of_tools().map(call_record).collect(),
        answer,
        opened: run.opened,
    }
}

/// Outcomes of side effects in the entries that are not written yet.
#[must_use]
pub fn ended(run: &Run) -> Option<(OpenDecision, Vec<CallRecord>)> {
    let written = run.log.as_ref().map_or(0, |log| log.written);
    let has_new_result = |entry: &Entry| matches!(entry, Entry::Result { .. });
    if !run.journal.iter().skip(written).any(has_new_result) {
        return None;
    }
    let own = own(run);
    let inherited = run.journal.len() - own.len();
    let ledger = Ledger::of(own);
    // Includes calls that were started but could not be sent.
    let ended = ledger.of_tools().filter(|call| {
        let is_new = call.has_result_from(written.saturating_sub(inherited)) && call.was_started();
        is_new && call.tool().is_some_and(|tool| tool.side_effect)
    });
    let effects: Vec<_> = ended.map(call_record).collect();
    (!effects.is_empty()).then(|| (run.record.clone(), effects))
}

/// Total usage of the run and of the flows that it is a step of, if entries that are not written yet change it.
#[must_use]
pub fn spent(run: &Run) -> Vec<Spent> {
    let Some(log) = &run.log else { return Vec::new() };
    let is_flow = run.strategy.flow().is_some();
    let changes = |entry: &Entry| match entry {
        Entry::ModelTurn { .. } | Entry::ModelFault { .. } => true,
        // A step of a flow has ended.
        Entry::Result { .. } => is_flow,
        _ => false,
    };
    if !run.journal.iter().skip(log.written).any(changes) {
        return Vec::new();
    }
    let (steps, usage) = run.strategy.spent(&run.journal, own(run));
    with_flows(log, steps, usage)
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

/// The entries of this run, without those of the runs it resumes.
#[must_use]
pub fn own(run: &Run) -> &[Entry] {
    let inherited = run.log.as_ref().map_or(0, |log| log.inherited);
    run.journal.get(inherited..).unwrap_or_default()
}

fn call_record(call: &Call<'_>) -> CallRecord {
    let (id, sent_us, result) = (call.id(), call.sent_us(), call.result());
    CallRecord {
        id,
        sequence: call.proposed.sequence,
        tool: call.tool().map(Arc::clone),
        name: Arc::from(call.proposed.call.name.as_str()),
        arguments: arguments(call),
        policy: call.policy(),
        idempotency_key: sent_us.map(|_| Arc::from(id.to_string())),
        started_at: sent_us,
        duration_us: result.map_or(0, |result| result.duration_us),
        outcome: result.map_or_else(|| Err(without_result(call)), |result| result.outcome.clone()),
    }
}

/// The allowed arguments, or else the model's own. Arguments that nest too deeply are left out, since many readers
/// could not parse them.
#[must_use]
pub fn arguments(call: &Call<'_>) -> Arc<RawValue> {
    let given = &call.proposed.call.args;
    match call.allowed() {
        Some(allowed) => Arc::clone(allowed),
        None if nesting::within(given.get().as_bytes(), nesting::MAX_LEVELS) => Arc::from(given.clone()),
        None => Arc::from(canonical::to_raw(&Value::Object(Map::new()))),
    }
}

/// A started call without a result is a step that was cut short; a call that was not started was not recorded.
#[must_use]
pub fn without_result(call: &Call<'_>) -> CallFailure {
    if call.sent_us().is_some() {
        return CallFailure::new(
            FailureCode::Cancelled,
            "cut short; it continues when the run is resumed".to_owned(),
        );
    }
    not_run()
}

/// The run was abandoned because its intents could not be made durable.
#[must_use]
pub fn not_run() -> CallFailure {
    CallFailure::new(
        FailureCode::NotRecorded,
        "the record could not be made durable, so this call was not sent".to_owned(),
    )
}

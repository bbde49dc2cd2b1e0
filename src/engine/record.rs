//! Projects a run's journal into the decision log.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::derive::{self, Call, Derived};
use super::log::Log;
use super::{Run, flow, iterations};
use crate::domain::canonical;
use crate::domain::decision::Usage;
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallFailure, Entry, Target};
use crate::domain::nesting;
use crate::domain::tool::FailureCode;
use crate::ports::records::{CallRecord, ClosedDecision, OpenDecision, StoredAnswer};
use crate::ports::runs::Spent;

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
        calls: derive::calls(journal).iter().map(call_record).collect(),
        answer,
        opened: run.opened,
    }
}

/// Outcomes of side effects in the entries that are not written yet.
#[must_use]
pub fn ended(run: &Run) -> Option<(OpenDecision, Vec<CallRecord>)> {
    let written = run.log.as_ref().map_or(0, |log| log.written);
    let results = run.journal.iter().skip(written).filter_map(|entry| match entry {
        Entry::Result { call, .. } => Some(*call),
        _ => None,
    });
    // Includes calls that were started but could not be sent.
    let begun = |id: &ActionId| {
        let mut all = run.journal.iter().rev();
        all.any(|entry| matches!(entry, Entry::Started { call, .. } if call == id))
    };
    let ended: Vec<_> = results.filter(begun).collect();
    if ended.is_empty() {
        return None;
    }
    let calls = derive::calls(own(run));
    let effects = calls.iter().filter(|call| match &call.proposed.target {
        Target::Tool(tool) => tool.side_effect && ended.contains(&call.proposed.id),
        _ => false,
    });
    let effects: Vec<_> = effects.map(call_record).collect();
    (!effects.is_empty()).then(|| (run.record.clone(), effects))
}

/// What the run and the flows that it is a step of have used by now, where the entries that are not written yet change it.
#[must_use]
pub fn spent(run: &Run) -> Vec<Spent> {
    let Some(log) = &run.log else { return Vec::new() };
    let is_flow = run.agent.as_ref().is_some_and(|place| place.flow().is_some());
    let changes = |entry: &Entry| match entry {
        Entry::ModelTurn { .. } | Entry::ModelFault { .. } => true,
        // A step of a flow is done.
        Entry::Result { .. } => is_flow,
        _ => false,
    };
    if !run.journal.iter().skip(log.written).any(changes) {
        return Vec::new();
    }
    let (steps, usage) = match is_flow {
        true => flow::spent(&run.journal),
        false => (iterations(own(run)), derive::usage(own(run))),
    };
    with_flows(log, steps, usage)
}

/// What the run has used, as part of each flow that it is a step of, and by itself.
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

/// What belongs to this run, and not to one that it goes on with.
#[must_use]
pub fn own(run: &Run) -> &[Entry] {
    let inherited = run.log.as_ref().map_or(0, |log| log.inherited);
    run.journal.get(inherited..).unwrap_or_default()
}

fn call_record(call: &Call<'_>) -> CallRecord {
    let id = call.proposed.id;
    CallRecord {
        id,
        sequence: call.proposed.sequence,
        tool: match &call.proposed.target {
            Target::Tool(tool) => Some(Arc::clone(tool)),
            Target::Unresolved(_) | Target::Agent(_) | Target::Verdict(_) | Target::Unknown => None,
        },
        name: Arc::from(call.proposed.call.name.as_str()),
        arguments: arguments(call),
        ruled: call.ruled.map(derive::Ruled::recorded),
        idempotency_key: call.started.then(|| Arc::from(id.to_string())),
        started_at: call.started_at,
        duration_us: call.result.map_or(0, |result| result.duration_us),
        outcome: call
            .result
            .map_or_else(|| Err(without_result(call)), |result| result.outcome.clone()),
    }
}

/// What was allowed, or else what the model gave. Arguments that nest too deeply were not allowed, and are left out: many a
/// reader of the reply or of the record could not read past them.
#[must_use]
pub fn arguments(call: &Call<'_>) -> Arc<RawValue> {
    let given = &call.proposed.call.args;
    match call.arguments {
        Some(allowed) => Arc::clone(allowed),
        None if nesting::within(given.get().as_bytes(), nesting::MAX_LEVELS) => Arc::from(given.clone()),
        None => Arc::from(canonical::to_raw(&Value::Object(Map::new()))),
    }
}

/// A call that was begun and has no result is a step that was cut short; one that was not begun was not recorded.
#[must_use]
pub fn without_result(call: &Call<'_>) -> CallFailure {
    if call.started {
        return CallFailure::new(
            FailureCode::Cancelled,
            "cut short; it goes on when the run is resumed".to_owned(),
        );
    }
    not_run()
}

/// The run was abandoned because its intents were not durable.
#[must_use]
pub fn not_run() -> CallFailure {
    CallFailure::new(
        FailureCode::NotRecorded,
        "the record could not be made durable, so this call was not sent".to_owned(),
    )
}

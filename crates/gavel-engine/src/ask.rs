//! One model call: projects the journal into a request and routes the answer.

use crate::journal::Journal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use tracing::Instrument;

use super::ledger::{Call, Ledger};
use super::limits::AtLimit;
use super::run::{Engine, Run};
use super::strategy::Strategy;
use super::strategy::react::{self, Shortened};
use super::{next, record, spans};
use crate::domain::decision::Usage;
use crate::domain::ids::ActionId;
use crate::domain::journal::{Entry, FaultKind, FunctionCall, Line, Proposed, Served, Speaker, Target};
use crate::ports::metrics::{MODEL_COST, MODEL_COST_UNKNOWN};
use crate::ports::model::{CallMode, Content, FunctionResponse, ModelEvent, ModelRequest};

/// The mode in force: that of the last prompt since the last resume.
fn mode(journal: &Journal) -> &CallMode {
    let mut prompts = record::current(journal).iter().rev().filter_map(|entry| match entry {
        Entry::Prompted { mode, .. } => Some(mode),
        _ => None,
    });
    prompts.next().unwrap_or(&CallMode::Auto)
}

/// D-R6: an agent's thoughts are stored and streamed unless its definition disables it; a chat's are not, unless its
/// constitution enables it.
fn asks_for_thoughts(run: &Run) -> bool {
    run.context
        .definition
        .model
        .include_thoughts
        .unwrap_or(run.context.agent.is_some())
}

/// The answer must arrive before the run's time limit; for a final summary, before the end of the grace period; and in
/// any case before the deadline.
fn ask_until(engine: &Engine, run: &Run) -> Instant {
    let now = engine.clock.instant();
    let elapsed = run.record.elapsed(now);
    let left = match (
        next::soft_stop(record::current(&run.record.journal)),
        run.context.limits.at_limit,
    ) {
        (Some((_, since)), AtLimit::SumUp { grace }) => Some((since + grace).saturating_sub(elapsed)),
        _ => run.context.limits.time.map(|time| time.saturating_sub(elapsed)),
    };
    let until = run.context.limits.until_deadline(elapsed);
    let longest = left
        .into_iter()
        .chain(until)
        .fold(run.context.limits.ask, Duration::min);
    now + longest
}

/// Asks the model and appends its turn, or how it failed.
pub(super) async fn ask(engine: &Engine, run: &mut Run) {
    run.record.asked.get_or_insert_with(|| run.context.asked());
    let outcome = {
        let ledger = run.record.journal.ledger();
        let shortened = shortened(run);
        let responses = responses(&ledger, &shortened);
        let contents = contents(&run.context.history, &run.record.journal, &responses, &shortened);
        let request = ModelRequest {
            settings: &run.context.definition.model,
            system: &run.context.system,
            functions: &run.context.toolset.functions,
            contents: &contents,
            mode: mode(&run.record.journal),
            thoughts: asks_for_thoughts(run),
            deadline: ask_until(engine, run),
            holder: (run.record.decision.tenant.as_str(), run.record.decision.user.as_str()),
        };
        // Watchers that join in mid-turn get the following text, and a cancelled run keeps the text so far.
        let (sink, live) = (&run.context.events, run.record.log().map(|log| &log.live));
        let (began, started_at, mut first) = (engine.clock.instant(), engine.clock.now_us(), None);
        let mut tell = |event: ModelEvent<'_>| {
            match event {
                ModelEvent::Delta(_) => first = first.or_else(|| Some(engine.clock.instant())),
                ModelEvent::Thought(_) => {}
                ModelEvent::Reset => first = None,
            }
            match (sink, live) {
                (Some(sink), _) => sink.arrived(event),
                (None, Some(live)) => live.arrived(event),
                (None, None) => {}
            }
        };
        let events: Option<&mut (dyn FnMut(ModelEvent<'_>) + Send)> = match (sink, live) {
            (None, None) => None,
            _ => Some(&mut tell),
        };
        let span = spans::model_call(engine, run);
        let asked = engine.model.generate(request, events);
        let mut outcome = asked.instrument(span.clone()).await;
        let served = match &mut outcome {
            Ok(turn) => &mut turn.served,
            Err(fault) => &mut *fault.served,
        };
        served.started_at = started_at;
        served.duration_us = micros(engine.clock.instant().saturating_duration_since(began));
        served.first_text_us = first.map(|first| micros(first.saturating_duration_since(began)));
        spans::answered(&span, &outcome);
        match &outcome {
            Ok(turn) => count_cost(engine, &turn.served, &turn.usage),
            Err(fault) => count_cost(engine, &fault.served, &fault.usage),
        }
        outcome
    };
    let said = run.record.log().map(|log| log.live.turn_over()).unwrap_or_default();
    match outcome {
        Ok(turn) => {
            let mut calls = Vec::new();
            for (sequence, call) in (record::proposed(&run.record.journal) + 1..).zip(turn.calls()) {
                calls.push(Proposed {
                    id: ActionId::new(),
                    sequence,
                    call: call.clone(),
                    target: route(engine, run, call).await,
                });
            }
            run.push(Entry::ModelTurn { turn, calls });
        }
        Err(fault) => {
            tracing::warn!(
                decision_id = %run.record.decision.id,
                kind = ?fault.kind,
                attempts = fault.served.attempts,
                detail = %fault.detail,
                "the model gave no usable answer"
            );
            run.record.fault_detail = Some(fault.detail.into());
            // Only a timeout or a cut keeps the text so far: blocked or malformed text is discarded.
            let live = (fault.kind == FaultKind::Timeout).then_some(said);
            let said = fault.said.or(live).filter(|said| !said.trim().is_empty());
            run.push(Entry::ModelFault {
                kind: fault.kind,
                usage: fault.usage,
                served: *fault.served,
                said,
            });
        }
    }
}

/// Adds what a model call cost to the metrics. Only names of the table of prices become labels.
fn count_cost(engine: &Engine, served: &Served, usage: &Usage) {
    match (engine.prices.cost(served, usage), &served.model) {
        (Some(cost), Some(model)) => MODEL_COST.with([Arc::clone(model).into()]).increment(cost.nano),
        _ if usage.total() > 0 => MODEL_COST_UNKNOWN.get().increment(1),
        _ => {}
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// What is said to a model that is asked again after its own words.
const CONTINUE: &str = "Continue.";

/// Finds the target of a call. An output that takes long to check is checked on a separate thread.
async fn route(engine: &Engine, run: &Run, call: &FunctionCall) -> Target {
    match run.context.toolset.route(call) {
        Ok(target) => target,
        Err(verdict) => {
            let args = call.args.clone();
            let decision = &run.record.decision;
            let read = engine
                .checks
                .apart(&decision.tenant, &decision.user, move || verdict.read(&args));
            Target::Verdict(read.await.unwrap_or_else(Err))
        }
    }
}

/// How the history is shortened for the model, if it may be.
fn shortened(run: &Run) -> Shortened {
    match &run.context.strategy {
        Strategy::React(work) => react::shortened(&run.record.journal, work.rules.limits.context_tokens),
        Strategy::Turns | Strategy::Opened(_) | Strategy::Steps(_) | Strategy::Plan(_) => Shortened::default(),
    }
}

/// For every turn with calls, in order, the responses to its calls in the order of the calls.
fn responses<'a>(ledger: &Ledger<'a>, shortened: &'a Shortened) -> Vec<Vec<FunctionResponse<'a>>> {
    let response = |call: Call<'a>| {
        let whole = call.result()?.outcome.as_deref();
        Some(FunctionResponse {
            id: call.proposed.call.id.as_deref(),
            name: &call.proposed.call.name,
            outcome: shortened.results.get(&call.id()).map_or(whole, |short| Ok(short)),
        })
    };
    ledger
        .turns()
        .map(|calls| calls.into_iter().filter_map(response).collect())
        .collect()
}

/// History, message, then each turn with its responses. A notice comes after the responses, never between them.
fn contents<'a>(
    history: &'a [(Speaker, String)],
    journal: &'a [Entry],
    responses: &'a [Vec<FunctionResponse<'a>>],
    shortened: &'a Shortened,
) -> Vec<Content<'a>> {
    let mut contents = Vec::with_capacity(history.len() + 2 * responses.len() + 1);
    // Gemini rejects parts with empty text.
    let said = history.iter().filter(|(_, text)| !text.trim().is_empty());
    contents.extend(said.map(|(speaker, text)| Content::Text(*speaker, text)));
    let mut responses = responses.iter();
    let mut notices: Vec<&str> = Vec::new();
    let left_out = shortened.left_out.as_ref();
    for (at, entry) in journal.iter().enumerate() {
        if let Some((range, text)) = left_out.filter(|(range, _)| range.contains(&at)) {
            if at == range.start {
                contents.push(Content::Text(Speaker::User, text));
            }
            if entry.turn().is_some_and(|(_, calls)| !calls.is_empty()) {
                responses.next();
            }
            continue;
        }
        match entry.line() {
            Some(Line::User(text)) => contents.push(Content::Text(Speaker::User, text)),
            Some(Line::Turn(turn, calls)) => {
                let verbatim: &RawValue = &turn.content;
                contents.extend(notices.drain(..).map(|text| Content::Text(Speaker::User, text)));
                contents.push(Content::Turn(verbatim, turn.served.model.as_deref()));
                if !calls.is_empty()
                    && let Some(answers) = responses.next()
                {
                    contents.push(Content::Responses(answers));
                }
            }
            Some(Line::Notice(text)) => notices.push(text),
            Some(Line::Cut(said)) => {
                contents.extend(notices.drain(..).map(|text| Content::Text(Speaker::User, text)));
                contents.push(Content::Text(Speaker::Assistant, said));
            }
            None => {}
        }
    }
    contents.extend(notices.into_iter().map(|text| Content::Text(Speaker::User, text)));
    // Gemini rejects a request that ends with a turn of the model.
    if let Some(Content::Turn(..) | Content::Text(Speaker::Assistant, _)) = contents.last() {
        contents.push(Content::Text(Speaker::User, CONTINUE));
    }
    contents
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::decision::Usage;

    #[test]
    fn a_request_never_ends_with_words_of_the_model() {
        let user = || Entry::User("add milk".to_owned());
        let cut = |kind| Entry::ModelFault {
            kind,
            usage: Usage::default(),
            served: Default::default(),
            said: Some("I wi".to_owned()),
        };
        let shortened = Shortened::default();
        for journal in [
            vec![user(), cut(FaultKind::Timeout)],
            vec![user(), cut(FaultKind::Unavailable), Entry::Recovered],
            vec![user(), cut(FaultKind::Malformed), cut(FaultKind::Malformed)],
        ] {
            let last = contents(&[], &journal, &[], &shortened).pop();
            assert!(
                matches!(last, Some(Content::Text(Speaker::User, CONTINUE))),
                "{journal:?}"
            );
        }
        let asked = contents(&[(Speaker::Assistant, "Hello".to_owned())], &[user()], &[], &shortened).len();
        assert_eq!(asked, 2, "nothing is added to the user's words");
    }
}

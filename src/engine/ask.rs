//! One model call: the journal projected into a request, the answer routed.

use serde_json::value::RawValue;
use tracing::Instrument;

use super::{Engine, Run, spans};
use crate::domain::event::Event;
use crate::domain::ids::ActionId;
use crate::domain::journal::{Entry, Proposed, Speaker};
use crate::ports::model::{CallMode, Content, FunctionResponse, ModelEvent, ModelRequest};

/// Asks the model and appends its turn, or how it failed.
pub(super) async fn ask(engine: &Engine, run: &mut Run) {
    let outcome = {
        let responses = responses(&run.journal);
        let contents = contents(&run.history, &run.journal, &responses);
        let request = ModelRequest {
            settings: &run.settings,
            system: &run.system,
            functions: &run.toolset.functions,
            contents: &contents,
            mode: CallMode::Auto,
            deadline: run.deadline(),
        };
        let asked = async {
            match &run.events {
                Some(sink) => {
                    let mut tell = |event: ModelEvent<'_>| match event {
                        ModelEvent::Delta(text) => sink.delta(Event::Delta { text: text.to_owned() }),
                        ModelEvent::Reset => sink.reset(),
                    };
                    engine.model.generate(request, Some(&mut tell)).await
                }
                None => engine.model.generate(request, None).await,
            }
        };
        let span = spans::model_call(engine, run);
        let outcome = asked.instrument(span.clone()).await;
        spans::answered(&span, &outcome);
        outcome
    };
    match outcome {
        Ok(turn) => {
            let mut sequence = calls_so_far(&run.journal);
            let calls = turn
                .calls()
                .map(|call| {
                    sequence += 1;
                    Proposed {
                        id: ActionId::new(),
                        sequence,
                        call: call.clone(),
                        target: run.toolset.route(call),
                    }
                })
                .collect();
            run.push(Entry::ModelTurn { turn, calls });
        }
        Err(fault) => {
            tracing::warn!(
                decision_id = %run.record.id,
                kind = ?fault.kind,
                attempts = fault.attempts,
                detail = %fault.detail,
                "the model gave no usable answer"
            );
            run.fault_detail = Some(fault.detail.into());
            run.push(Entry::ModelFault {
                kind: fault.kind,
                usage: fault.usage,
            });
        }
    }
}

fn calls_so_far(journal: &[Entry]) -> u32 {
    let calls = journal.iter().map(|entry| match entry {
        Entry::ModelTurn { calls, .. } => calls.len(),
        _ => 0,
    });
    u32::try_from(calls.sum::<usize>()).unwrap_or(u32::MAX)
}

/// For every turn with calls, in order, the answers to its calls in the order of the calls.
fn responses(journal: &[Entry]) -> Vec<Vec<FunctionResponse<'_>>> {
    let turns = journal.iter().enumerate().filter_map(|(at, entry)| match entry {
        Entry::ModelTurn { calls, .. } if !calls.is_empty() => Some((at, calls)),
        _ => None,
    });
    turns
        .map(|(at, calls)| {
            calls
                .iter()
                .filter_map(|call| {
                    let result = journal[at + 1..].iter().find_map(|entry| match entry {
                        Entry::Result { call: id, result } if *id == call.id => Some(result),
                        _ => None,
                    })?;
                    Some(FunctionResponse {
                        id: call.call.id.as_deref(),
                        name: &call.call.name,
                        outcome: result.outcome.as_deref(),
                    })
                })
                .collect()
        })
        .collect()
}

/// History, message, then each turn with its answers; a notice stands after the answers, never among them.
fn contents<'a>(
    history: &'a [(Speaker, String)],
    journal: &'a [Entry],
    responses: &'a [Vec<FunctionResponse<'a>>],
) -> Vec<Content<'a>> {
    let mut contents = Vec::with_capacity(history.len() + 2 * responses.len() + 1);
    // A line without words is no part that Gemini takes.
    let said = history.iter().filter(|(_, text)| !text.trim().is_empty());
    contents.extend(said.map(|(speaker, text)| Content::Text(*speaker, text)));
    let mut responses = responses.iter();
    let mut notices: Vec<&str> = Vec::new();
    for entry in journal {
        match entry {
            Entry::User(text) => contents.push(Content::Text(Speaker::User, text)),
            Entry::ModelTurn { turn, calls } => {
                let verbatim: &RawValue = &turn.content;
                contents.extend(notices.drain(..).map(|text| Content::Text(Speaker::User, text)));
                contents.push(Content::Turn(verbatim));
                if !calls.is_empty()
                    && let Some(answers) = responses.next()
                {
                    contents.push(Content::Responses(answers));
                }
            }
            Entry::Notice(text) => notices.push(text),
            Entry::ModelFault { .. }
            | Entry::Judged { .. }
            | Entry::Settled { .. }
            | Entry::Started { .. }
            | Entry::Result { .. } => {}
        }
    }
    contents.extend(notices.into_iter().map(|text| Content::Text(Speaker::User, text)));
    contents
}

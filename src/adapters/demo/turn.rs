//! Writes a turn the way a provider would.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::domain::canonical;
use crate::domain::decision::Usage;
use crate::domain::journal::{FunctionCall, ModelTurn, Part, Served};
use crate::ports::model::{Content, ModelEvent, ModelRequest};

/// What a model does with its turn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Move {
    pub(super) text: String,
    pub(super) calls: Vec<(String, Value)>,
}

impl Move {
    pub(super) fn say(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            calls: Vec::new(),
        }
    }
    pub(super) fn call(name: impl Into<String>, arguments: Value) -> Self {
        Self {
            text: String::new(),
            calls: vec![(name.into(), arguments)],
        }
    }
}

/// Receives events while a turn arrives.
pub(super) type Events<'a> = Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>;

/// Makes the turn. Its text is sent to `events` first, piece by piece.
pub(super) fn make(chosen: Move, request: &ModelRequest<'_>, model: &str, events: Events<'_>) -> ModelTurn {
    if let Some(events) = events {
        for piece in chosen.text.split_inclusive(' ') {
            events(ModelEvent::Delta(piece));
        }
    }
    let mut content = Vec::new();
    let mut parts = Vec::new();
    if !chosen.text.is_empty() {
        content.push(json!({"text": chosen.text}));
        parts.push(Part::Text(chosen.text));
    }
    for (name, arguments) in chosen.calls {
        content.push(json!({"functionCall": {"name": name, "args": arguments}}));
        parts.push(Part::Call(FunctionCall {
            id: None,
            name,
            args: canonical::to_raw(&arguments),
        }));
    }
    let content = canonical::to_raw(&json!({"role": "model", "parts": content}));
    let usage = Usage {
        input_tokens: input(request),
        output_tokens: tokens(content.get()),
        ..Usage::default()
    };
    ModelTurn {
        content: Arc::from(content),
        parts,
        usage,
        served: Served {
            requested_model: Arc::from(request.settings.model.as_deref().unwrap_or(model)),
            ..Served::by(model)
        },
    }
}

/// A rough estimate of four bytes per token; nothing is tokenized here.
fn tokens(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}

fn input(request: &ModelRequest<'_>) -> u64 {
    let contents = request.contents.iter().map(|content| match content {
        Content::Text(_, text) => tokens(text),
        Content::Turn(turn, _) => tokens(turn.get()),
        Content::Responses(responses) => responses
            .iter()
            .map(|response| match response.outcome {
                Ok(data) => tokens(data.get()),
                Err(failure) => tokens(&failure.message),
            })
            .sum(),
    });
    let functions = request.functions.declarations.iter();
    let declared = functions.map(|function| tokens(&function.description) + tokens(function.parameters.get()));
    tokens(request.system) + declared.sum::<u64>() + contents.sum::<u64>()
}

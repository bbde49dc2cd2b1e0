//! The demo model. It implements the port `Model`, and so do the models of `gavel-testing` by [`misbehaving`].
//!
//! [`Demo`] is a small rule-based stand-in for trying gavel without an API key, for tests and for benchmarks. It is
//! deterministic and stateless: like a real model, it reads the whole conversation each time. [`conversation`] reads
//! the newest message and the answers so far, [`tasks`] chooses the next move, and [`turn`] writes it as a provider
//! would.
//!
//! It calls only functions that it is offered, and knows only the task tools, and in a planning session ([`planning`])
//! two that read a repository. Another tool it calls if the message gives its name and arguments. Its evaluation score
//! says nothing about Gemini.

mod misbehaving;
mod planning;
mod tasks;

use std::sync::Arc;

use regex::Regex;
use serde_json::{Value, json};

use crate::domain::canonical;
use crate::domain::decision::Usage;
use crate::domain::journal::{FunctionCall, ModelTurn, Part, Served, Speaker};
use crate::ports::BoxFuture;
use crate::ports::model::{CallMode, Content, FunctionResponse, Model, ModelEvent, ModelFault, ModelRequest};
pub use gavel_testing::Misbehaving;
use gavel_testing::Move;
pub use misbehaving::StandIn;

/// The model's name, in `GEMINI_MODEL` and in every reply.
pub const NAME: &str = "demo";

/// The rule-based stand-in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demo;

impl Model for Demo {
    fn generate<'a>(
        &'a self,
        request: ModelRequest<'a>,
        events: Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>,
    ) -> BoxFuture<'a, Result<ModelTurn, ModelFault>> {
        Box::pin(async move { Ok(make(answer(&request), &request, NAME, events)) })
    }

    fn default_model(&self) -> &str {
        NAME
    }
}

fn answer(request: &ModelRequest<'_>) -> Move {
    let declared = |name: &str| request.functions.declarations.iter().any(|known| known.name == name);
    if let Some(chosen) = planning::next(request, &declared) {
        return chosen;
    }
    let allowed = |name: &str| match request.mode {
        CallMode::Auto => true,
        CallMode::None => false,
        CallMode::Any(names) => names.iter().any(|known| known == name),
    };
    tasks::Turn {
        conversation: Conversation::read(request.contents),
        offered: &|name| declared(name) && allowed(name),
    }
    .next()
}

/// The stand-in with this name, for `gavel eval --model-kind` and tests: the demo model, or one that misbehaves. Models
/// with equal seeds answer equally.
pub fn by_name(name: &str, seed: u64) -> Option<Arc<dyn Model>> {
    if name == NAME {
        return Some(Arc::new(Demo));
    }
    let model = Misbehaving::named(name, seed)?;
    Some(Arc::new(StandIn(model)))
}

/// Compiles a pattern of this module.
fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| unreachable!("patterns are fixed and used in tests: {error}"))
}

/// The newest message, and what was done for it.
struct Conversation<'a> {
    message: &'a str,
    /// The answers to the calls of this message, in order.
    done: Vec<&'a FunctionResponse<'a>>,
    /// Turns of the model for this message.
    turns: usize,
}

impl<'a> Conversation<'a> {
    fn read(contents: &'a [Content<'a>]) -> Self {
        let newest = contents
            .iter()
            .rposition(|content| matches!(content, Content::Text(Speaker::User, _)));
        let mut conversation = Self {
            message: "",
            done: Vec::new(),
            turns: 0,
        };
        for content in &contents[newest.unwrap_or(0)..] {
            match content {
                Content::Text(Speaker::User, text) => conversation.message = without_header(text),
                Content::Text(..) => {}
                Content::Turn(..) => conversation.turns += 1,
                Content::Responses(responses) => conversation.done.extend(*responses),
            }
        }
        conversation
    }
}

/// Removes the header lines above the message (`Today is Friday, 2026-11-20 …`, a blank line).
fn without_header(text: &str) -> &str {
    let message = match text.split_once("\n\n") {
        Some((header, message)) if header.starts_with("Today is ") => message,
        _ => text,
    };
    message.trim()
}

fn say(text: impl Into<String>) -> Move {
    Move {
        text: text.into(),
        calls: Vec::new(),
    }
}

fn call(name: impl Into<String>, arguments: Value) -> Move {
    Move {
        text: String::new(),
        calls: vec![(name.into(), arguments)],
    }
}

/// Receives events while a turn arrives.
type Events<'a> = Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>;

/// Makes the turn. Its text is sent to `events` first, piece by piece.
fn make(chosen: Move, request: &ModelRequest<'_>, model: &str, events: Events<'_>) -> ModelTurn {
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

#[cfg(test)]
mod conversation_tests {
    use super::*;
    use crate::domain::canonical;
    use serde_json::json;

    #[test]
    fn the_message_is_read_apart_from_its_context() {
        let text = "Today is Friday, 2026-11-20 (time zone UTC).\nUnavailable right now: x. Say so.\n\nhi\n\nthere";
        let (turn, data) = (canonical::to_raw(&json!({})), canonical::to_raw(&json!({"ok": true})));
        let answers = ["x", "y"].map(|name| FunctionResponse {
            id: None,
            name,
            outcome: Ok(&data),
        });
        let contents = [
            Content::Text(Speaker::User, "before"),
            Content::Turn(&turn, None),
            Content::Text(Speaker::User, text),
            Content::Turn(&turn, None),
            Content::Responses(&answers),
        ];
        let conversation = Conversation::read(&contents);
        let done: Vec<_> = conversation.done.iter().map(|done| done.name).collect();
        assert_eq!(
            (conversation.message, conversation.turns, done.as_slice()),
            ("hi\n\nthere", 1, &["x", "y"][..])
        );
        let bare = [Content::Text(Speaker::User, " bare\n\nmessage ")];
        assert_eq!(Conversation::read(&bare).message, "bare\n\nmessage");
    }
}

//! The model: one request, a stream of parts, one final turn (DESIGN.md section 11).

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use serde_json::value::RawValue;

use super::BoxFuture;
use crate::domain::decision::Usage;
pub use crate::domain::definition::ModelSettings;
use crate::domain::journal::{CallFailure, FaultKind, ModelTurn, Speaker};

/// A model, real or demo.
pub trait Model: Send + Sync {
    /// Asks once. Retries, breaker and time limits are inside; the answer comes before `deadline`.
    ///
    /// With `events`, text and thoughts are delivered as they arrive; without, one unary request is made.
    fn generate<'a>(
        &'a self,
        request: ModelRequest<'a>,
        events: Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>,
    ) -> BoxFuture<'a, Result<ModelTurn, ModelFault>>;

    /// The model used when a definition names none; what replies and records call it.
    fn default_model(&self) -> &str;

    /// Who runs it, as OpenTelemetry names providers (`gen_ai.provider.name`); stand-ins are gavel's own.
    fn provider(&self) -> &'static str {
        "gavel"
    }
}

/// What happens while a turn arrives.
#[derive(Clone, Copy, Debug)]
pub enum ModelEvent<'a> {
    /// More words for the person.
    Delta(&'a str),
    /// More of the summary of the model's thinking; only where it was asked for. No part of the answer.
    Thought(&'a str),
    /// What was delivered so far, thoughts included, is void: the attempt broke and another begins.
    Reset,
}

/// Everything a model call is made of, in prompt order: system, tools, contents.
#[derive(Clone, Copy)]
pub struct ModelRequest<'a> {
    /// Model and sampling.
    pub settings: &'a ModelSettings,
    /// The constitution, or an agent's system prompt; byte-stable.
    pub system: &'a str,
    /// What the model may call; byte-stable over requests of one generation.
    pub functions: &'a Arc<Functions>,
    /// History, message, turns and results.
    pub contents: &'a [Content<'a>],
    /// Whether it may call.
    pub mode: CallMode<'a>,
    /// Is the model asked to summarize its thinking?
    pub thoughts: bool,
    /// When the answer must be there.
    pub deadline: Instant,
    /// The tenant and the user for whom it is; what the answer takes is counted for them.
    pub holder: (&'a str, &'a str),
}

/// May the model call functions in this turn?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMode<'a> {
    /// As it likes.
    Auto,
    /// Words only.
    None,
    /// It must call one of these.
    Any(&'a [&'a str]),
}

/// The functions offered, with room for an adapter's own encoding of them.
#[derive(Debug, Default)]
pub struct Functions {
    /// In the order they are shown.
    pub declarations: Vec<Declaration>,
    /// An adapter's encoding of `declarations`, made once and used for every request.
    pub encoded: OnceLock<Box<str>>,
}

/// One function as the model sees it.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// At most 64 of `[A-Za-z0-9_-]`, beginning with a letter or `_`.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments, already within what Gemini accepts; an object.
    pub parameters: Box<RawValue>,
}

/// One content of the conversation.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// Plain text of either side.
    Text(Speaker, &'a str),
    /// A turn of the model, echoed verbatim.
    Turn(&'a RawValue),
    /// The answers to all calls of the turn before, in their order, and nothing else.
    Responses(&'a [FunctionResponse<'a>]),
}

/// The answer to one function call.
#[derive(Clone, Copy, Debug)]
pub struct FunctionResponse<'a> {
    /// The provider's id, if it gave one.
    pub id: Option<&'a str>,
    /// The name the model used.
    pub name: &'a str,
    /// Data (untrusted) or failure.
    pub outcome: Result<&'a RawValue, &'a CallFailure>,
}

/// A model call that gave no usable turn.
#[derive(Clone, Debug)]
pub struct ModelFault {
    /// How it failed.
    pub kind: FaultKind,
    /// For operators: status, reason, attempt. Never the provider's raw message to clients, no secrets.
    pub detail: String,
    /// Tokens spent all the same.
    pub usage: Usage,
    /// Requests sent.
    pub attempts: u32,
}

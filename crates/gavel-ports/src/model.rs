//! The model: one request, a stream of parts, one final turn.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::BoxFuture;
use crate::domain::decision::Usage;
pub use crate::domain::definition::ModelSettings;
use crate::domain::journal::{CallFailure, FaultKind, ModelTurn, Served, Speaker};

/// A model, real or demo.
pub trait Model: Send + Sync {
    /// Sends one request. The implementation handles retries, circuit breaker and time limits, and answers before
    /// `deadline`.
    ///
    /// With `events`, text and thoughts are delivered as they arrive; without, one unary request is made.
    fn generate<'a>(
        &'a self,
        request: ModelRequest<'a>,
        events: Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>,
    ) -> BoxFuture<'a, Result<ModelTurn, ModelFault>>;

    /// The model used when a definition names none.
    fn default_model(&self) -> &str;

    /// The name that is asked with these settings, as records show it.
    fn requested<'a>(&'a self, settings: &'a ModelSettings) -> &'a str {
        settings.model.as_deref().unwrap_or_else(|| self.default_model())
    }

    /// The provider's name in OpenTelemetry (`gen_ai.provider.name`); stand-ins return gavel's own.
    fn provider(&self) -> &'static str {
        "gavel"
    }
}

/// What happens while a turn arrives.
#[derive(Clone, Copy, Debug)]
pub enum ModelEvent<'a> {
    /// More text for the user.
    Delta(&'a str),
    /// More of the summary of the model's thinking, only if it was requested. It is not part of the answer.
    Thought(&'a str),
    /// Everything delivered so far, thoughts included, is void: the attempt failed and another one starts.
    Reset,
}

/// All parts of a model call, in prompt order: system, tools, contents.
#[derive(Clone, Copy)]
pub struct ModelRequest<'a> {
    /// Model and sampling.
    pub settings: &'a ModelSettings,
    /// The constitution, or an agent's system prompt; byte-stable.
    pub system: &'a str,
    /// The functions that the model may call; byte-stable over requests of one generation.
    pub functions: &'a Arc<Functions>,
    /// History, message, turns and results.
    pub contents: &'a [Content<'a>],
    /// Whether the model may call functions.
    pub mode: &'a CallMode,
    /// Asks the model to summarize its thinking.
    pub thoughts: bool,
    /// When the answer must have arrived.
    pub deadline: Instant,
    /// The tenant and the user of the request. The size of the answer counts against their budget.
    pub holder: (&'a str, &'a str),
}

pub use crate::domain::journal::CallMode;

/// The functions offered, with room for an adapter's own encoding of them.
#[derive(Debug, Default)]
pub struct Functions {
    /// In the order they are shown.
    pub declarations: Vec<Declaration>,
    /// An adapter's encoding of `declarations`, made once and used for every request.
    pub encoded: OnceLock<Box<str>>,
}

/// One function as the model sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Declaration {
    /// At most 64 characters of `[A-Za-z0-9_-]`, the first one a letter or `_`.
    pub name: String,
    /// What the function does.
    pub description: String,
    /// JSON Schema of its arguments: an object, already within what Gemini accepts.
    pub parameters: Box<RawValue>,
}

impl Declaration {
    /// Our own declaration, from its JSON text.
    ///
    /// # Panics
    /// If the schema is not JSON.
    pub fn own(name: &str, description: &str, schema: &'static str) -> Self {
        let parameters = RawValue::from_string(schema.to_owned());
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: parameters.unwrap_or_else(|error| unreachable!("the schema of {name} is JSON: {error}")),
        }
    }
}

/// One content of the conversation.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// Plain text of the user or of the model.
    Text(Speaker, &'a str),
    /// A turn, echoed verbatim, and the model that made it, if that is known.
    Turn(&'a RawValue, Option<&'a str>),
    /// The responses to all calls of the previous turn, in the order of the calls, and nothing else.
    Responses(&'a [FunctionResponse<'a>]),
}

/// The response to one function call.
#[derive(Clone, Copy, Debug)]
pub struct FunctionResponse<'a> {
    /// The provider's id, if it sent one.
    pub id: Option<&'a str>,
    /// The name the model used.
    pub name: &'a str,
    /// Data (untrusted) or failure.
    pub outcome: Result<&'a RawValue, &'a CallFailure>,
}

/// A model call that returned no usable turn.
#[derive(Clone, Debug)]
pub struct ModelFault {
    /// How it failed.
    pub kind: FaultKind,
    /// For operators: status, reason, attempt. Never the provider's raw message, no secrets.
    pub detail: String,
    /// Tokens used nevertheless.
    pub usage: Usage,
    /// How the call was served.
    pub served: Box<Served>,
    /// The text of an answer that was cut.
    pub said: Option<String>,
}

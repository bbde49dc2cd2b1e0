//! What a model said in one turn, and why there was none.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::domain::decision::Usage;
use crate::domain::names::names;

/// A part of a model's turn, as far as gavel reads it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text for the user.
    Text(String),
    /// A summary of the model's thinking.
    Thought(String),
    /// A function call.
    Call(FunctionCall),
    /// Anything else; kept only in the verbatim content.
    Other,
}

/// A function call as the model wrote it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The provider's id, if it issued one. gavel returns it only in that case.
    pub id: Option<String>,
    /// The name that the model used.
    pub name: String,
    /// A JSON object; `{}` if the model sent none.
    pub args: Box<RawValue>,
}

/// One complete answer of a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelTurn {
    /// The provider's content object, which gavel sends back unchanged.
    pub content: Arc<RawValue>,
    /// The same content, parsed.
    pub parts: Vec<Part>,
    /// Tokens of this model call.
    pub usage: Usage,
    /// How it was served.
    pub served: Served,
}

/// How a model call was served: which model was asked and which answered, since a provider routes some names to other
/// models, and what it took. The engine measures the times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The name that was asked.
    pub requested_model: Arc<str>,
    /// The model that answered, as the provider names it; `None` if none did.
    pub model: Option<Arc<str>>,
    /// The tier that served, such as `standard`, if the provider names it.
    pub service_tier: Option<Arc<str>>,
    /// Why the answer ended, in the provider's word, such as `STOP`; `None` if it did not say.
    pub finish_reason: Option<Arc<str>>,
    /// Requests sent.
    pub attempts: u32,
    /// When the model was asked; microseconds since the epoch.
    pub started_at: i64,
    /// Time until its answer was complete, or it had failed; microseconds.
    pub duration_us: i64,
    /// Time until the first text of a streamed answer; microseconds.
    pub first_text_us: Option<i64>,
}

impl Served {
    /// A model that answered under its own name.
    pub fn by(model: &str) -> Self {
        let model = Arc::from(model);
        Self {
            requested_model: Arc::clone(&model),
            model: Some(model),
            attempts: 1,
            ..Self::default()
        }
    }
}

impl ModelTurn {
    /// The function calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &FunctionCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        })
    }

    /// The model that answered; if the provider did not name it, the one that was asked.
    pub fn model(&self) -> &str {
        self.served.model.as_deref().unwrap_or(&self.served.requested_model)
    }

    /// The text for the user, joined.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            if let Part::Text(piece) = part {
                text.push_str(piece);
            }
        }
        text
    }
}

names! {
    /// Why a model call returned no turn.
    FaultKind {
        /// Unreachable, or the provider returned an error, after retries.
        Unavailable = "unavailable",
        /// The provider does not accept the key or the token.
        Credentials = "credentials",
        /// The key or account lacks the permission.
        Permission = "permission",
        /// The provider has no model of this name.
        NoSuchModel = "no_such_model",
        /// The provider's quota is exhausted.
        Quota = "quota",
        /// The provider rejected the request as invalid.
        Rejected = "rejected",
        /// The model took too long.
        Timeout = "timeout",
        /// The answer was truncated, empty, invalid or unknown.
        Malformed = "malformed",
        /// The provider blocked the prompt or the answer.
        Blocked = "blocked",
    }
}

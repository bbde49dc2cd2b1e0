//! What a trigger gives an agent.

use serde_json::{Map, Value};

use super::AgentError;
use crate::domain::definition::Definition;
use crate::domain::text;
use crate::surfaces::chat::request::FieldError;

/// What an agent is given.
#[derive(Clone, Debug)]
pub enum Inputs {
    /// Its inputs by name.
    Named(Map<String, Value>),
    /// A text, for an agent that takes one.
    Text(String),
}

impl From<Map<String, Value>> for Inputs {
    fn from(inputs: Map<String, Value>) -> Self {
        Self::Named(inputs)
    }
}

impl Inputs {
    /// By name.
    ///
    /// # Errors
    /// It is a text, and the agent does not take one text.
    pub(super) fn named(self, definition: &Definition) -> Result<Map<String, Value>, AgentError> {
        let text = match self {
            Self::Named(inputs) => return Ok(inputs),
            Self::Text(text) => text,
        };
        if let Some(name) = definition.text_input() {
            return Ok(Map::from_iter([(name.to_owned(), Value::from(text))]));
        }
        let names: Vec<_> = definition.inputs.keys().map(String::as_str).collect();
        let allowed = match names.is_empty() {
            true => "no body, or {}".to_owned(),
            false => format!("a JSON object of its inputs: {}", names.join(", ")),
        };
        let detail = format!(
            "is a text, and {} takes more than one input, or none that is a text; allowed: {allowed}",
            definition.name
        );
        Err(AgentError::Invalid(vec![FieldError {
            pointer: String::new(),
            detail: text::capped(&detail, LONGEST_DETAIL).into_owned(),
        }]))
    }
}

/// Longest word about a body, in bytes: it may name hundreds of inputs.
const LONGEST_DETAIL: usize = 2 << 10;

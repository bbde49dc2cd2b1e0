//! The inputs in a request that triggers an agent.

use serde_json::{Map, Value};

use crate::api::problem::FieldError;
use crate::domain::definition::Definition;
use crate::domain::text;

/// The inputs of an agent.
#[derive(Clone, Debug)]
pub enum Inputs {
    /// Inputs by name.
    Named(Map<String, Value>),
    /// A text, for an agent with a single text input.
    Text(String),
}

impl Inputs {
    /// The inputs by name.
    ///
    /// # Errors
    /// The inputs are a text, and the agent has no single text input.
    pub(super) fn named(self, definition: &Definition) -> Result<Map<String, Value>, FieldError> {
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
            "is a text, but {} takes several inputs, or no text; allowed: {allowed}",
            definition.name
        );
        Err(FieldError::new("", text::capped(&detail, LONGEST_DETAIL)))
    }
}

/// Longest error message about a body, in bytes: it may name hundreds of inputs.
const LONGEST_DETAIL: usize = 2 << 10;

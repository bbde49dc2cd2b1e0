//! What a tool answers: one JSON object, good or bad.

use rmcp::model::CallToolResult;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::ToolError;

/// A finished answer, as it goes to the caller and as it is kept for a repeated call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) is_error: bool,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn of(body: &impl Serialize) -> Self {
        match serde_json::to_value(body) {
            Ok(body) => Self { is_error: false, body },
            Err(error) => {
                tracing::error!(%error, "an answer could not be written as JSON");
                ToolError::internal().into()
            }
        }
    }
}

impl From<ToolError> for Answer {
    fn from(error: ToolError) -> Self {
        Self {
            is_error: true,
            body: json!({ "error": error }),
        }
    }
}

impl From<Answer> for CallToolResult {
    fn from(answer: Answer) -> Self {
        if answer.is_error {
            CallToolResult::structured_error(answer.body)
        } else {
            CallToolResult::structured(answer.body)
        }
    }
}

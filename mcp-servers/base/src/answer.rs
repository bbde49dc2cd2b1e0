//! A tool's answer: one JSON object, for success or error.

use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::CLASS;
use crate::{Code, ToolError, meta};

/// A complete answer, as it is sent to the caller and stored for a repeated call.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Did the call fail?
    pub is_error: bool,
    /// The object.
    pub body: Value,
}

impl Answer {
    /// A successful answer.
    pub fn of(body: &impl Serialize) -> Self {
        match serde_json::to_value(body) {
            Ok(body) => Self { is_error: false, body },
            Err(error) => {
                tracing::error!(%error, "an answer could not be written as JSON");
                let words = "The server failed. Its log has the details.";
                ToolError::new(Code::Internal, words).into()
            }
        }
    }
}

impl Answer {
    /// The result whose text is one property of the object, for a tool whose answer is a text. An error's text is JSON.
    pub fn with_text_of(self, property: &str) -> CallToolResult {
        let text = self.body[property]
            .as_str()
            .filter(|_| !self.is_error)
            .map(str::to_owned);
        let mut result = CallToolResult::from(self);
        if let Some(text) = text {
            result.content = vec![ContentBlock::text(text)];
        }
        result
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
            let class = answer.body["error"].get(CLASS).cloned();
            let mut result = CallToolResult::structured_error(answer.body);
            if let Some(class) = class {
                let mut said = MetaObject::new();
                said.0.insert(meta::ERROR_CLASS.to_owned(), class);
                result.meta = Some(said);
            }
            result
        } else {
            CallToolResult::structured(answer.body)
        }
    }
}

//! A tool's answer: one JSON object, for success or error.

use std::marker::PhantomData;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Code, ToolError};

/// A complete answer, as it is sent to the caller and stored for a repeated call.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Did the call fail?
    pub is_error: bool,
    /// The object.
    pub body: Value,
    /// What is for the host alone.
    pub meta: JsonObject,
}

impl Answer {
    /// An answer that was kept.
    pub fn new(is_error: bool, body: Value) -> Self {
        let meta = JsonObject::new();
        Self { is_error, body, meta }
    }

    /// A successful answer.
    pub fn from_body(body: &impl Serialize) -> Self {
        match serde_json::to_value(body) {
            Ok(body) => Self::new(false, body),
            Err(error) => {
                tracing::error!(%error, "an answer could not be written as JSON");
                internal().into()
            }
        }
    }
}

impl From<ToolError> for Answer {
    fn from(error: ToolError) -> Self {
        Self::new(true, json!({ "error": error }))
    }
}

/// The error for a failure of the server itself.
pub fn internal() -> ToolError {
    ToolError::new(Code::Internal, "The server failed. Its log has the details.")
}

/// What carries out a tool returns: the object of a successful answer, or a whole answer.
pub trait Output {
    /// The object, for the schema.
    type Body: JsonSchema;

    /// The answer.
    fn into_answer(self) -> Answer;
}

impl<T: Serialize + JsonSchema> Output for T {
    type Body = T;

    fn into_answer(self) -> Answer {
        Answer::from_body(&self)
    }
}

/// A whole answer, whose object is a `T` if it is no error.
#[derive(Debug)]
pub struct Whole<T>(pub Answer, PhantomData<fn() -> T>);

impl<T: JsonSchema> Output for Whole<T> {
    type Body = T;

    fn into_answer(self) -> Answer {
        self.0
    }
}

impl<T> From<Answer> for Whole<T> {
    fn from(answer: Answer) -> Self {
        Self(answer, PhantomData)
    }
}

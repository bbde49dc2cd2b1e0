//! What the tests of the servers share: a tool's answer, and the schemas that answers match.

#![allow(dead_code, reason = "no server needs all of it")]

use std::collections::HashMap;

use rmcp::model::Tool;
use rmcp::{Peer, RoleClient};
use serde_json::Value;

/// A tool's answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) is_error: bool,
    pub(crate) body: Value,
}

impl Reply {
    pub(crate) fn ok(self) -> Value {
        assert!(!self.is_error, "an error: {}", self.body);
        self.body
    }

    pub(crate) fn error(&self) -> &Value {
        assert!(self.is_error, "not an error: {}", self.body);
        &self.body["error"]
    }

    pub(crate) fn code(&self) -> &str {
        self.error()["code"].as_str().expect("a code")
    }

    pub(crate) fn message(&self) -> &str {
        self.error()["message"].as_str().expect("a message")
    }
}

/// The schemas of the answers of all tools, by their names.
pub(crate) async fn output_schemas(client: &Peer<RoleClient>) -> HashMap<String, jsonschema::Validator> {
    let tools = client.list_all_tools().await.expect("tools/list");
    let schema = |tool: &Tool| {
        let schema = tool.output_schema.as_ref().expect("an output schema");
        jsonschema::validator_for(&Value::Object((**schema).clone())).expect("a JSON Schema")
    };
    tools.iter().map(|tool| (tool.name.to_string(), schema(tool))).collect()
}

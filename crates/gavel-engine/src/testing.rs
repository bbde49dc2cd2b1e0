//! Helpers for the engine's own tests.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::toolset::Toolset;
use crate::domain::decision::Usage;
use crate::domain::ids::ActionId;
use crate::domain::journal::{FunctionCall, ModelTurn, Part, Proposed, Served};
use crate::domain::schema::JsonSchema;
use crate::domain::tool::Tool;
use crate::ports::tools::Catalog;

pub fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("JSON")
}

pub fn tool_with(name: &str, schema: &str, change: impl FnOnce(&mut Tool)) -> Arc<Tool> {
    let mut tool = Tool {
        input: JsonSchema::compile(raw(schema)).expect("schema"),
        model_schema: raw(schema),
        digest: "0".into(),
        ..Tool::named("tasks", name)
    };
    change(&mut tool);
    Arc::new(tool)
}

pub fn tool_on(server: &str, name: &str) -> Arc<Tool> {
    tool_with(name, r#"{"type":"object"}"#, |tool| tool.server = server.into())
}

pub fn catalog_of(tools: impl IntoIterator<Item = Arc<Tool>>) -> Catalog {
    Catalog {
        generation: 1,
        tools: tools.into_iter().collect(),
        ..Catalog::default()
    }
}

pub fn function_call(name: &str, args: &str) -> FunctionCall {
    FunctionCall {
        id: None,
        name: name.to_owned(),
        args: raw(args),
    }
}

pub fn call_of(tool: &Arc<Tool>, args: &str) -> Proposed {
    Proposed::of(tool, raw(args))
}

/// A turn with the text `text` and the calls `calls`, routed through `toolset`.
pub fn turn_of(toolset: &Toolset, text: &str, calls: &[FunctionCall]) -> (ModelTurn, Vec<Proposed>) {
    let mut parts: Vec<_> = calls.iter().cloned().map(Part::Call).collect();
    if !text.is_empty() {
        parts.insert(0, Part::Text(text.to_owned()));
    }
    let proposed = calls
        .iter()
        .zip(1..)
        .map(|(call, sequence)| Proposed {
            id: ActionId::new(),
            sequence,
            call: call.clone(),
            target: toolset.route(call).expect("a verdict that is read in a moment"),
        })
        .collect();
    let turn = ModelTurn {
        content: Arc::from(raw("{}")),
        parts,
        usage: Usage::default(),
        served: Served::by("test"),
    };
    (turn, proposed)
}

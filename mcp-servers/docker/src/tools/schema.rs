//! Parts that the tools' schemas share.

use gavel_mcp_base::schema::{self, Behaviour};
use rmcp::model::Tool;
use serde_json::{Value, json};

const READS: Behaviour = Behaviour {
    read_only: true,
    destructive: false,
    idempotent: true,
    open_world: false,
};
/// It adds something; a second equal call without the first one's key adds another.
const CREATES: Behaviour = Behaviour {
    read_only: false,
    destructive: false,
    idempotent: false,
    open_world: true,
};
const REMOVES: Behaviour = Behaviour {
    read_only: false,
    destructive: true,
    idempotent: true,
    open_world: true,
};
/// It runs what it is given.
const RUNS: Behaviour = Behaviour {
    read_only: false,
    destructive: true,
    idempotent: false,
    open_world: true,
};

/// What a tool does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Reads,
    Creates,
    Removes,
    Runs,
}

/// A tool with arguments, of which some are required, and results, of which an answer has all.
pub(super) fn tool(
    name: &'static str,
    title: &str,
    description: &'static str,
    kind: Kind,
    (arguments, required): (Value, &[&str]),
    results: &[(&'static str, Value)],
) -> Tool {
    let behaviour = match kind {
        Kind::Reads => READS,
        Kind::Creates => CREATES,
        Kind::Removes => REMOVES,
        Kind::Runs => RUNS,
    };
    let names: Vec<_> = results.iter().map(|(name, _)| *name).collect();
    let output = schema::output(schema::properties(results.iter().cloned()), &names);
    let input = schema::input(arguments, required);
    let tool = schema::tool(name, title, description, input, output, behaviour);
    match behaviour.read_only {
        true => tool,
        // A session sees and changes its own containers alone.
        false => schema::with_settings(tool, json!({ "scope": {} })),
    }
}

pub(super) fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

pub(super) fn boolean(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

pub(super) fn whole_number(description: &str) -> Value {
    json!({ "type": "integer", "minimum": 1, "description": description })
}

pub(super) fn ids(description: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": description })
}

pub(super) fn container_id() -> Value {
    text("The id that createContainer returned.")
}

//! Parts that the tools' schemas share.

pub(super) use gavel_mcp_base::schema::with_settings as saying;
use gavel_mcp_base::schema::{self, Behaviour};
use rmcp::model::Tool;
use serde_json::{Map, Value, json};

const READS: Behaviour = Behaviour {
    read_only: true,
    destructive: false,
    idempotent: true,
    open_world: true,
};
/// It adds something; a second equal call without the first one's key adds another.
const CREATES: Behaviour = Behaviour {
    read_only: false,
    destructive: false,
    idempotent: false,
    open_world: true,
};
const UPDATES: Behaviour = Behaviour {
    read_only: false,
    destructive: false,
    idempotent: true,
    open_world: true,
};
const CLOSES: Behaviour = Behaviour {
    read_only: false,
    destructive: true,
    idempotent: true,
    open_world: true,
};

/// What a tool does to GitHub.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Reads,
    Creates,
    Updates,
    Closes,
}

/// A tool with arguments for a repository and others, of which some are required, and one result or several.
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
        Kind::Updates => UPDATES,
        Kind::Closes => CLOSES,
    };
    let names: Vec<_> = results.iter().map(|(name, _)| *name).collect();
    let output = schema::output(schema::properties(results.iter().cloned()), &names);
    let names_repository = arguments.get("owner").is_some() && arguments.get("repo").is_some();
    let input = schema::input(arguments, required);
    let tool = schema::tool(name, title, description, input, output, behaviour);
    match names_repository {
        true => saying(
            tool,
            json!({ "scope": { "owner": "session.owner", "repo": "session.repo" } }),
        ),
        false => tool,
    }
}

/// Arguments after `owner` and `repo`.
pub(super) fn of_repository(more: Value) -> Value {
    let mut all = json!({
        "owner": { "type": "string", "description": "The user or organization that owns the repository." },
        "repo": { "type": "string", "description": "The name of the repository, without its owner." }
    });
    if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
        all.extend(more);
    }
    all
}

pub(super) fn number(what: &str) -> Value {
    json!({ "type": "integer", "minimum": 1, "description": format!("The number of the {what}.") })
}

pub(super) fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

pub(super) fn names(description: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": description })
}

pub(super) fn choice(names: &[&str], description: &str) -> Value {
    json!({ "type": "string", "enum": names, "description": description })
}

pub(super) fn truncated(what: &str) -> Value {
    json!({ "type": "boolean", "description": what })
}

pub(super) fn closed() -> Value {
    json!({ "type": "boolean", "description": "Always true. It may have been closed before." })
}

/// An object, or null.
pub(super) fn nullable(mut object: Value, when: &str) -> Value {
    object["type"] = json!(["object", "null"]);
    object["description"] = when.into();
    object
}

/// An object that has all of these properties.
pub(super) fn object(properties: Value) -> Value {
    let required: Vec<_> = properties
        .as_object()
        .map(Map::keys)
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn string() -> Value {
    json!({ "type": "string" })
}

fn optional() -> Value {
    json!({ "type": ["string", "null"] })
}

pub(super) fn repository() -> Value {
    object(json!({
        "owner": string(),
        "name": string(),
        "fullName": string(),
        "description": optional(),
        "isPrivate": { "type": "boolean" },
        "isArchived": { "type": "boolean" },
        "defaultBranch": optional(),
        "htmlUrl": string(),
        "cloneUrl": optional(),
        "pushedAt": optional()
    }))
}

fn body() -> (Value, Value) {
    (
        json!({ "type": ["string", "null"], "description": "Markdown, at most 64 KiB." }),
        json!({ "type": "boolean", "description": "Whether the body is longer than what is shown." }),
    )
}

pub(super) fn listed_pull_request() -> Value {
    object(json!({
        "number": { "type": "integer" },
        "title": string(),
        "state": { "type": "string", "enum": ["open", "closed"] },
        "isMerged": { "type": "boolean" },
        "isDraft": { "type": "boolean" },
        "head": object(json!({ "ref": string(), "sha": string(), "label": optional() })),
        "base": object(json!({ "ref": string(), "sha": string() })),
        "author": optional(),
        "htmlUrl": string(),
        "createdAt": string(),
        "updatedAt": string()
    }))
}

pub(super) fn pull_request() -> Value {
    let mut schema = listed_pull_request();
    let (body, truncated) = body();
    schema["properties"]["body"] = body;
    schema["properties"]["bodyTruncated"] = truncated;
    if let Some(required) = schema["required"].as_array_mut() {
        required.extend(["body".into(), "bodyTruncated".into()]);
    }
    schema
}

pub(super) fn issue() -> Value {
    let (body, truncated) = body();
    object(json!({
        "number": { "type": "integer" },
        "title": string(),
        "body": body,
        "bodyTruncated": truncated,
        "state": { "type": "string", "enum": ["open", "closed"] },
        "stateReason": optional(),
        "labels": { "type": "array", "items": string() },
        "author": optional(),
        "comments": { "type": "integer" },
        "htmlUrl": string(),
        "createdAt": string(),
        "updatedAt": string()
    }))
}

//! The JSON Schema of a definition, for editors. It is generated from the spelling table, so it has every field and
//! every name.

use serde_json::{Map, Value, json};

use super::InputType;
use super::fields::{Field, GROUPS, Holds, OUTPUT, PROMPT, Row, TABLE};
use super::values::{MOST_ITEMS, PATTERN};

/// The JSON Schema of the JSON and the YAML form.
pub fn json_schema() -> Value {
    let mut schema = json_schema_of_front_matter();
    schema["anyOf"] = with_system_prompt();
    schema
}

/// The JSON Schema of Markdown's front matter, where the system prompt may be below it.
pub fn json_schema_of_front_matter() -> Value {
    let mut properties = Map::new();
    for row in TABLE {
        for name in row.flat {
            properties.insert((*name).to_owned(), property(row, name));
        }
    }
    for (group, others) in GROUPS {
        let schema = group_schema(group);
        for name in others.iter().chain([group]) {
            properties.insert((*name).to_owned(), schema.clone());
        }
    }
    let flow = |types: Value| {
        let under = |name: &str| json!({"properties": {name: {"enum": types}}, "required": [name]});
        json!({"anyOf": names(Field::FlowType).map(under).collect::<Vec<_>>()})
    };
    let one_of_names = |field: Field| Value::from_iter(names(field).map(|name| json!({"required": [name]})));
    let an_output: Vec<_> = group_names(OUTPUT).map(|name| json!({"required": [name]})).collect();
    let needs_output: Map<_, _> = names(Field::ProcessOutput)
        .map(|name| (name.to_owned(), json!({"anyOf": an_output})))
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An agent of gavel",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "required": ["name", "description"],
        "dependentSchemas": needs_output,
        "allOf": [
            {"if": {"anyOf": one_of_names(Field::Steps)}, "then": flow(json!(["sequential", "loop"]))},
            {"if": {"anyOf": one_of_names(Field::MaxIterations)}, "then": flow(json!(["loop"]))},
        ],
    })
}

/// Steps, or a system prompt under one of its names.
fn with_system_prompt() -> Value {
    let flat = names(Field::SystemPrompt).map(|name| json!({"required": [name]}));
    let inner = Field::SystemPrompt.row().grouped.map_or(&[][..], |(_, names)| names);
    let grouped = group_names(PROMPT).flat_map(|group| {
        inner
            .iter()
            .map(move |name| json!({"properties": {group: {"required": [name]}}, "required": [group]}))
    });
    let steps = names(Field::Steps).map(|name| json!({"required": [name]}));
    steps.chain(grouped).chain(flat).collect()
}

/// The names of a field at the top level.
fn names(field: Field) -> impl Iterator<Item = &'static str> {
    field.row().flat.iter().copied()
}

fn group_names(group: &str) -> impl Iterator<Item = &'static str> {
    let found = GROUPS.iter().filter(move |(name, _)| *name == group);
    found.flat_map(|(name, others)| std::iter::once(*name).chain(others.iter().copied()))
}

fn group_schema(group: &str) -> Value {
    let rows = TABLE.iter().filter_map(|row| {
        row.grouped
            .filter(|(name, _)| *name == group)
            .map(|(_, names)| (row, names))
    });
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (row, names) in rows {
        for name in names {
            let path = format!("{group}.{name}");
            properties.insert((*name).to_owned(), property(row, &path));
        }
        if group == OUTPUT {
            let one_of_them = names.iter().map(|name| json!({"required": [name]}));
            required.push(json!({"anyOf": one_of_them.collect::<Vec<_>>()}));
        }
    }
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["allOf"] = Value::Array(required);
    }
    schema
}

/// The schema of `row`, under the name at `path`.
fn property(row: &Row, path: &str) -> Value {
    let portable = row.field.portable();
    let (mut schema, _) = holds(row.holds);
    let about = if path == portable {
        row.about.to_owned()
    } else {
        format!("Another name of {portable}. {}", row.about)
    };
    schema["description"] = Value::from(about);
    schema
}

/// What a field holds: as a schema, and in words.
fn holds(holds: Holds) -> (Value, String) {
    let named = |words: &str, schema| (schema, words.to_owned());
    match holds {
        Holds::Text => named("text", text()),
        Holds::Name => named("a name: 1 to 64 letters, digits, `_`, `-`", name()),
        Holds::Choice(words) => {
            let listed: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
            (json!({"enum": words}), listed.join(", "))
        }
        Holds::Number(most) => (
            json!({"type": "number", "minimum": 0, "maximum": most}),
            format!("a number from 0 to {most}"),
        ),
        Holds::Whole(least) => (
            json!({"type": "integer", "minimum": least, "maximum": i32::MAX}),
            format!("a whole number from {least}"),
        ),
        Holds::Bool => named("`true`, `false`", json!({"type": "boolean"})),
        Holds::Tools => named(
            "a list of tools",
            json!({"type": "array", "items": {"type": "string", "pattern": "^[^\\s*]{1,128}$"}, "uniqueItems": true, "maxItems": MOST_ITEMS}),
        ),
        Holds::Seconds => named("seconds", seconds()),
        Holds::Minutes => named(
            "minutes",
            json!({"type": "number", "exclusiveMinimum": 0, "maximum": i32::MAX}),
        ),
        Holds::SubAgents => named(
            "a list of agents",
            json!({
                "type": "array",
                "uniqueItems": true,
                "maxItems": MOST_ITEMS,
                "items": {"anyOf": [name(), {
                    "type": "object",
                    "properties": {"agent": name(), "timeout": seconds()},
                    "required": ["agent"],
                    "additionalProperties": false,
                }]},
            }),
        ),
        Holds::Inputs => named(
            "a map",
            json!({
                "type": "object",
                "propertyNames": name(),
                "maxProperties": MOST_ITEMS,
                "additionalProperties": {
                    "type": "object",
                    "properties": {
                        "description": text(),
                        "type": {"enum": InputType::WORDS},
                        "required": {"type": "boolean"},
                    },
                    "required": ["description", "type"],
                    "additionalProperties": false,
                },
            }),
        ),
        Holds::Schema => named(
            "a JSON Schema or a name",
            json!({"anyOf": [name(), {"type": "object"}, {"type": "string", "pattern": "^\\s*\\{"}]}),
        ),
        Holds::Steps => named(
            "a list of steps",
            json!({
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_ITEMS,
                "items": {"anyOf": [name(), {
                    "type": "object",
                    "properties": {
                        "name": name(),
                        "agent": name(),
                        "input": {"type": "object", "additionalProperties": text()},
                        "timeout": seconds(),
                    },
                    "required": ["agent"],
                    "additionalProperties": false,
                }]},
            }),
        ),
    }
}

fn seconds() -> Value {
    json!({"anyOf": [
        {"type": "number", "minimum": 1, "maximum": i32::MAX},
        {"type": "string", "minLength": 2, "pattern": PATTERN},
    ]})
}

fn text() -> Value {
    json!({"type": "string", "pattern": "\\S"})
}

fn name() -> Value {
    json!({"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"})
}

/// Every field with its names, as a Markdown table.
pub fn reference() -> String {
    let mut text = "| field | other names | holds | what it is |\n| --- | --- | --- | --- |\n".to_owned();
    for row in TABLE {
        let cells = [
            format!("`{}`", row.field.portable()),
            other_names(row),
            holds(row.holds).1,
            row.about.to_owned(),
        ];
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

/// Names under the portable group name. Another table has the other names of groups.
fn other_names(row: &Row) -> String {
    let grouped = row.grouped.into_iter().flat_map(|(group, names)| {
        let others = names.iter().skip(1);
        others.map(move |name| format!("`{group}.{name}`"))
    });
    let flat = row.flat.iter().skip(usize::from(row.grouped.is_none()));
    let all: Vec<_> = grouped.chain(flat.map(|name| format!("`{name}`"))).collect();
    all.join(", ")
}

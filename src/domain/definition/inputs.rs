//! What goes into an agent and what comes out: `inputConfig` and `outputConfig`.

use std::collections::BTreeMap;

use super::fields::{Field, unknown_name_message};
use super::node::{Content, Node, quoted};
use super::values::{self, Values};
use super::{Input, InputType, Output, OutputSchema};

/// The one input of an agent without `inputConfig`.
pub(super) const QUERY: &str = "query";

/// `inputConfig`; without it one required string, `query`.
pub(super) fn inputs(values: &mut Values<'_>) -> BTreeMap<String, Input> {
    let Some(given) = values.fields.get(&Field::Inputs).and_then(|given| given.first()) else {
        let description = "What the agent is asked to do.".to_owned();
        return BTreeMap::from([(
            QUERY.to_owned(),
            Input {
                description,
                kind: InputType::String,
                required: true,
            },
        )]);
    };
    let (node, path) = (given.node, given.path.clone());
    let Content::Map(entries) = &node.content else {
        values.error(
            Some(node.line),
            &path,
            &node.found(),
            "a map from argument to {description, type, required}",
        );
        return BTreeMap::new();
    };
    let mut inputs = BTreeMap::new();
    for (key, node) in entries {
        let path = format!("{path}.{}", key.name);
        if !values::is_name(&key.name) {
            values.error(
                Some(key.line),
                &path,
                &quoted(&key.name),
                "1 to 64 letters, digits, `_` or `-`",
            );
        }
        if let Some(input) = input(values, &path, node) {
            inputs.insert(key.name.clone(), input);
        }
    }
    inputs
}

fn input(values: &mut Values<'_>, path: &str, node: &Node) -> Option<Input> {
    let Content::Map(entries) = &node.content else {
        values.error(
            Some(node.line),
            path,
            &node.found(),
            "a map of description, type and required",
        );
        return None;
    };
    let (mut description, mut kind, mut required) = (None, None, false);
    let types = InputType::NAMES.map(|(name, _)| name).join(", ");
    for (key, node) in entries {
        let path = format!("{path}.{}", key.name);
        let mut bad = |allowed: &str| values.error(Some(node.line), &path, &node.found(), allowed);
        match key.name.as_str() {
            "description" => match values::text(node) {
                Some(text) => description = Some(text),
                None => bad("text that is not blank"),
            },
            "type" => match values::choice(node, &InputType::NAMES) {
                Some(value) => kind = Some(value),
                None => bad(&types),
            },
            "required" => match node.content {
                Content::Bool(value) => required = value,
                _ => bad("true or false"),
            },
            other => {
                let allowed = unknown_name_message(other, &["description", "type", "required"]);
                values.error(Some(key.line), &path, "an unknown field", &allowed);
            }
        }
    }
    let given = |name: &str| entries.iter().any(|(key, _)| key.name == name);
    if !given("description") {
        values.error(
            Some(node.line),
            &format!("{path}.description"),
            "nothing",
            "what the argument is for",
        );
    }
    if !given("type") {
        values.error(Some(node.line), &format!("{path}.type"), "nothing", &types);
    }
    Some(Input {
        description: description?,
        kind: kind?,
        required,
    })
}

/// `outputConfig`, if any field of it is given.
pub(super) fn output(values: &mut Values<'_>) -> Option<Output> {
    let fields = [Field::OutputName, Field::OutputDescription, Field::OutputSchema];
    if fields.iter().all(|field| values.line(*field).is_none()) {
        return None;
    }
    let name = values.get(Field::OutputName, "1 to 64 letters, digits, `_` or `-`", |node| {
        values::text(node).filter(|text| values::is_name(text))
    });
    let description = values.text(Field::OutputDescription);
    let allowed = "a JSON Schema, or the name of a registered one (letters, digits, `_` or `-`)";
    let schema = values.get(Field::OutputSchema, allowed, |node| match &node.content {
        Content::Map(_) => Some(OutputSchema::Inline(node.to_json())),
        Content::Text(name) if values::is_name(name) => Some(OutputSchema::Named(name.clone())),
        _ => None,
    });
    for (field, allowed) in fields.into_iter().zip(["a name", "what the output is", allowed]) {
        if values.line(field).is_none() {
            values.missing(field, allowed);
        }
    }
    Some(Output {
        name: name?,
        description: description?,
        schema: schema?,
    })
}

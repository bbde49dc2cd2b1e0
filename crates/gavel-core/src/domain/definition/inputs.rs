//! The inputs and outputs of an agent: `inputConfig`, `outputConfig` and `processOutput`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::fields::{Field, INPUT, OUTPUT};
use super::values::{self, MOST_ITEMS, NAME, Part, SOME_TEXT, Values};
use super::{Input, InputType, Output, OutputSchema, schema};
use crate::domain::templates::{Template, malformed_at};
use crate::domain::text;
use gavel_reading::{At, Content, FLAG, Fields, Node, OneOf, Parser, Record, json, quoted, unknown_name_message};

/// The one input of an agent without `inputConfig`.
pub(super) const QUERY: &str = "query";

/// `inputConfig`; without it, one required string, `query`. `None` if it is given but not a map: then the inputs are
/// unknown.
pub(super) fn inputs(values: &mut Values<'_>) -> Option<BTreeMap<String, Input>> {
    let allowed = "a map from argument to {description, type, required}";
    let part = values.part(Field::Inputs, allowed, |content| matches!(content, Content::Map(_)));
    let Some(Part { path, node }) = part else {
        if values.line(Field::Inputs).is_some() || values.is_invalid(INPUT) {
            return None;
        }
        let description = "What the agent is asked to do.".to_owned();
        return Some(BTreeMap::from([(
            QUERY.to_owned(),
            Input {
                description,
                kind: InputType::String,
                required: true,
            },
        )]));
    };
    let Content::Map(entries) = &node.content else {
        return None;
    };
    let mut inputs = BTreeMap::new();
    for (key, node) in entries {
        // An invalid name may have the length of the definition, and every path below it contains it.
        let path = format!("{path}.{}", text::prefix(&key.name, 64));
        if !values::is_name(&key.name) {
            values.error(Some(key.line), &path, &quoted(&key.name), NAME);
        }
        // An invalid input keeps its name, so that references to it are not errors as well.
        let input = input(values, &path, node).unwrap_or(Input {
            description: String::new(),
            kind: InputType::String,
            required: false,
        });
        inputs.insert(key.name.clone(), input);
        values
            .places
            .insert(format!("{}.{}", Field::Inputs.portable(), key.name), path, key.line);
    }
    Some(inputs)
}

fn input(values: &Values<'_>, path: &str, node: &Node) -> Option<Input> {
    let at = At::root(&values.errors, values.file, node).named(path);
    let input = Record("a map of description, type and required", |fields: &Fields<'_>| {
        let description = fields.need_as("description", "what the argument is for", SOME_TEXT);
        let kind = fields.need("type", OneOf(&InputType::NAMES));
        let required = fields.take("required", FLAG).unwrap_or(false);
        Some(Input {
            description: description?,
            kind: kind?,
            required,
        })
    });
    input.parse(&at)
}

/// `outputConfig`, if any of its fields is given, and `processOutput`, the template of its text.
pub(super) fn output(values: &mut Values<'_>) -> (Option<Output>, Option<String>) {
    let (name, description, schema) = output_config(values);
    let template = process_output(values, name.as_deref(), schema.as_ref());
    let output = name
        .zip(description)
        .zip(schema)
        .map(|((name, description), schema)| Output {
            name,
            description,
            schema,
        });
    (output, template)
}

/// Its name, description and schema, each if valid.
fn output_config(values: &mut Values<'_>) -> (Option<String>, Option<String>, Option<OutputSchema>) {
    let fields = [Field::OutputName, Field::OutputDescription, Field::OutputSchema];
    if fields.iter().all(|field| values.line(*field).is_none()) {
        let empty = values.groups.iter().find(|given| given.name == OUTPUT && given.is_map);
        if let Some((line, path)) = empty.map(|given| (given.line, given.spelled.clone())) {
            let allowed = "outputName, description and schema; or no outputConfig: then plain text ends the run";
            values.error(Some(line), &path, "none of its fields", allowed);
        }
        return (None, None, None);
    }
    let name = values.get(Field::OutputName, NAME, |node| {
        values::text(node).filter(|text| values::is_name(text))
    });
    let description = values.text(Field::OutputDescription);
    let a_schema = "a JSON Schema, also as JSON text, or the name of a registered one (letters, digits, `_` or `-`)";
    let syntax = values
        .given(Field::OutputSchema)
        .and_then(|given| json_text(given.node)?.err());
    let allowed = match &syntax {
        Some(error) => format!("{a_schema}; this JSON text cannot be read: {error}"),
        None => a_schema.to_owned(),
    };
    let schema = values.get(Field::OutputSchema, &allowed, |node| match &node.content {
        Content::Map(_) => Some(OutputSchema::Inline(node.to_json())),
        Content::Text(name) if values::is_name(name) => Some(OutputSchema::Named(name.clone())),
        _ => Some(OutputSchema::Inline(json_text(node)?.ok()?.to_json())),
    });
    if let Some(OutputSchema::Named(name)) = &schema {
        values.names.schema = Some(name.clone());
    }
    if let (Some(OutputSchema::Inline(_)), Some(given)) = (&schema, values.fields.get(&Field::OutputSchema)) {
        let invalid = given.iter().find(|given| !given.is_null()).map(|given| {
            let read = json_text(given.node).and_then(Result::ok);
            schema::errors(read.as_ref().unwrap_or(given.node), values.file, &given.path)
        });
        for error in invalid.into_iter().flatten() {
            values.errors.get_mut().push(error);
        }
    }
    for (field, allowed) in fields.into_iter().zip(["a name", "what the output is", a_schema]) {
        if values.line(field).is_none() {
            values.missing(field, allowed);
        }
    }
    (name, description, schema)
}

/// `processOutput`: a template over the output and, if its schema is inline, over the schema's properties.
fn process_output(values: &mut Values<'_>, output: Option<&str>, schema: Option<&OutputSchema>) -> Option<String> {
    let text = values.text(Field::ProcessOutput)?;
    let line = values.line(Field::ProcessOutput);
    let field = values.spelled(Field::ProcessOutput);
    let (template, malformed) = Template::read(&text);
    let names_nothing = template.names().next().is_none();
    let found = match reads_as_function(&text, names_nothing) {
        true => Some("a function"),
        false if names_nothing && malformed.is_empty() => Some("a text without a placeholder"),
        false => None,
    };
    if let Some(found) = found.filter(|_| output.is_some() || values.line(Field::OutputName).is_some()) {
        values.error_with(line, &field, found, || template_form(output, schema));
        return Some(text);
    }
    for at in malformed {
        values.error_within(line, &field, (&text, at), || malformed_at(&text, at));
    }
    match output {
        Some(output) => {
            values.names.process_output = Some((output.to_owned(), text.clone()));
            if let Some(OutputSchema::Inline(schema)) = schema {
                for name in unknown_in_output(&template, output, schema) {
                    let found = format!("the placeholder ${{{name}}}");
                    values.error_with(line, &field, &found, || known_in_output(name, output, schema));
                }
            }
        }
        None if values.groups.iter().all(|given| given.name != OUTPUT) => {
            let allowed = "an outputConfig with it: without one the output is plain text, as the agent wrote it";
            values.error(line, &field, "no outputConfig", allowed);
        }
        None => {}
    }
    Some(text)
}

/// Whether the text begins like a JavaScript function. A bare name before the arrow may also be part of a template's
/// text.
fn reads_as_function(text: &str, names_nothing: bool) -> bool {
    let text = text.trim_start();
    let head = text.split_once("=>").map(|(head, _)| head.trim());
    let is_word = |head: &str| !head.is_empty() && head.chars().all(|c| c.is_alphanumeric() || c == '_');
    text.starts_with("function")
        || text.starts_with("async ")
        || head.is_some_and(|head| (head.starts_with('(') && head.ends_with(')')) || (names_nothing && is_word(head)))
}

/// An example of `processOutput`, with the names of this output.
fn template_form(output: Option<&str>, schema: Option<&OutputSchema>) -> String {
    let output = output.unwrap_or("report");
    let property = match schema {
        Some(OutputSchema::Inline(schema)) => schema::properties(schema).next(),
        Some(OutputSchema::Named(_)) | None => None,
    };
    let property = property.map_or_else(
        || "`${NAME}` for its property NAME".to_owned(),
        |name| format!("`${{{name}}}` for its property"),
    );
    format!(
        "a template, since a definition is data: text with `${{{output}}}` for the whole output, or {property}; without \
         processOutput the final text is the output as JSON"
    )
}

/// Parses a schema that is given as JSON text, with all of it on the line of the text. `Err` if it is invalid, `None`
/// for any other value.
fn json_text(node: &Node) -> Option<Result<Node, String>> {
    let Content::Text(text) = &node.content else {
        return None;
    };
    if !text.trim_start().starts_with('{') {
        return None;
    }
    Some(match json::parse(text) {
        Err(error) => Err(error.message),
        Ok((read, twice)) => match twice.first() {
            Some(key) => Err(format!("the key {} a second time", quoted(&key.name))),
            None => Ok(read.on_line(node.line)),
        },
    })
}

/// The placeholders of `processOutput` that name neither the output nor one of its properties, each once.
pub(super) fn unknown_in_output<'t>(template: &'t Template, output: &str, schema: &Value) -> BTreeSet<&'t str> {
    let known: BTreeSet<&str> = schema::properties(schema).chain([output]).collect();
    template.names().filter(|name| !known.contains(name)).collect()
}

/// What is allowed instead of such a placeholder.
pub(super) fn known_in_output(name: &str, output: &str, schema: &Value) -> String {
    // A schema may have too many properties to compare with all of them.
    let properties = schema::properties(schema).take(MOST_ITEMS);
    let known: Vec<&str> = std::iter::once(output).chain(properties).collect();
    format!("the output or a property of it: {}", unknown_name_message(name, &known))
}

/// The name of an input's type.
pub(super) fn type_name(kind: InputType) -> &'static str {
    let found = InputType::NAMES.iter().find(|(_, known)| *known == kind);
    found.map_or_else(|| unreachable!("every type has a name"), |(name, _)| name)
}

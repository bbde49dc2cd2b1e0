//! The inputs and outputs of an agent: `inputConfig`, `outputConfig` and `processOutput`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use gavel_reading::{
    At, Content, FLAG, Fields, Node, OneOf, Parser, ReadError, Record, json, quoted, unknown_name_message,
};
use serde_json::Value;

use super::fields::{Field, INPUT, OUTPUT};
use super::values::{self, MOST_ITEMS, NAME, Part, SOME_TEXT, Values, lines_of};
use super::{Input, InputType, Output, OutputSchema, Prompt};
use crate::domain::schema::{JsonSchema, SchemaError};
use crate::domain::templates::{Template, malformed_at};
use crate::domain::{canonical, nesting, text};

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
            schema_errors(read.as_ref().unwrap_or(given.node), values.file, &given.path)
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
        Some(OutputSchema::Inline(schema)) => properties(schema).next(),
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
    let known: BTreeSet<&str> = properties(schema).chain([output]).collect();
    template.names().filter(|name| !known.contains(name)).collect()
}

/// What is allowed instead of such a placeholder.
pub(super) fn known_in_output(name: &str, output: &str, schema: &Value) -> String {
    // A schema may have too many properties to compare with all of them.
    let properties = properties(schema).take(MOST_ITEMS);
    let known: Vec<&str> = std::iter::once(output).chain(properties).collect();
    format!("the output or a property of it: {}", unknown_name_message(name, &known))
}

/// The most levels of a schema, with room for the levels of a definition around it in every form.
const MAX_LEVELS: usize = nesting::MAX_LEVELS - 6;

/// The largest schema, in bytes of JSON. No larger one is sent to a model.
const LARGEST: usize = 128 * 1024;

/// The most errors that are listed for one schema.
const MOST_ERRORS: usize = 8;

/// The longest message of the validator, in characters: it quotes what it found.
const LONGEST: usize = 300;

/// The allowed values of `type`.
const TYPES: &str = "array, boolean, integer, null, number, object, string, or a list of these";

/// The errors in a schema; `path` is the field that contains it. A remote `$ref` is not fetched.
pub(super) fn schema_errors(node: &Node, file: &str, path: &str) -> Vec<ReadError> {
    let schema = node.to_json();
    let error = |pointer: &str, found: String, allowed: &str| ReadError {
        file: file.to_owned(),
        line: Some(node.at(pointer).line).filter(|line| *line > 0),
        field: format!("{path}{}", pointer.replace('/', ".")),
        found,
        allowed: allowed.to_owned(),
    };
    let text = canonical::to_raw(&schema);
    if !nesting::within(text.get().as_bytes(), MAX_LEVELS) {
        let allowed = format!("at most {MAX_LEVELS} levels");
        return vec![error("", "more levels".to_owned(), &allowed)];
    }
    if text.get().len() > LARGEST {
        let found = format!("{} bytes", text.get().len());
        return vec![error("", found, &format!("at most {LARGEST} bytes"))];
    }
    let meta = match jsonschema::meta::validator_for(&schema) {
        Ok(meta) => meta,
        Err(_) => {
            let found = "a $schema that gavel does not know".to_owned();
            let allowed = "https://json-schema.org/draft/2020-12/schema, an earlier draft, or no $schema";
            return vec![error("/$schema", found, allowed)];
        }
    };
    let invalid: Vec<_> = meta
        .iter_errors(&schema)
        .take(MOST_ERRORS)
        .map(|invalid| {
            let pointer = invalid.instance_path().to_string();
            let allowed = if pointer.ends_with("/type") {
                TYPES.to_owned()
            } else {
                format!("what JSON Schema allows there: {}", clipped(&invalid.to_string()))
            };
            error(&pointer, node.at(&pointer).found(), &allowed)
        })
        .collect();
    if !invalid.is_empty() {
        return invalid;
    }
    match JsonSchema::compile(text) {
        Ok(_) => Vec::new(),
        Err(SchemaError::Invalid(message)) => vec![error(
            "",
            clipped(&message),
            "a self-contained schema in which each $ref points to a part of it",
        )],
        Err(SchemaError::TooCostly { place, what, limit }) => {
            vec![error(&place, what, &format!("at most {limit}"))]
        }
    }
}

/// The names of a schema's properties.
pub(super) fn properties(schema: &Value) -> impl Iterator<Item = &str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(|map| map.keys().map(String::as_str))
}

fn clipped(text: &str) -> String {
    let mut shown: String = text.chars().take(LONGEST).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// The most placeholders and literal `${` in a text. Each is searched for in the file.
const MOST_MARKS: usize = 10_000;

/// Checks the placeholders of both texts: each must name an input. `inputs` is `None` if they are invalid and already
/// have errors. `persona` is what to write if the system prompt is missing.
pub(super) fn prompt(
    values: &mut Values<'_>,
    inputs: Option<&BTreeMap<String, Input>>,
    persona: &str,
) -> Option<Prompt> {
    let query = values.text(Field::Query);
    let system_prompt = values.text(Field::SystemPrompt);
    if values.line(Field::SystemPrompt).is_none() {
        values.missing(Field::SystemPrompt, persona);
    }
    let query = match query {
        Some(query) => query,
        None if values.line(Field::Query).is_some() => return None,
        None if inputs.is_none_or(|inputs| inputs.contains_key(QUERY)) => "${query}".to_owned(),
        None => {
            values.missing(Field::Query, "a text that names the inputs as ${input}");
            return None;
        }
    };
    let system_prompt = system_prompt?;
    for (field, text) in [(Field::Query, &query), (Field::SystemPrompt, &system_prompt)] {
        let marks = memchr::memmem::find_iter(text.as_bytes(), "${").count();
        if marks > MOST_MARKS {
            let line = values.line(field);
            let path = values.spelled(field);
            values.error(
                line,
                &path,
                &format!("{marks} times `${{`"),
                &format!("at most {MOST_MARKS} times"),
            );
            return None;
        }
    }
    for (field, text) in [(Field::Query, &query), (Field::SystemPrompt, &system_prompt)] {
        let (template, malformed) = Template::read(text);
        let line = values.line(field);
        for at in malformed {
            let path = values.spelled(field);
            values.error_within(line, &path, (text, at), || malformed_at(text, at));
        }
        if let Some(inputs) = inputs {
            unknown_placeholders(values, inputs, field, text, &template);
        }
    }
    Some(Prompt { query, system_prompt })
}

/// Reports each placeholder that is not an input, once for each line.
fn unknown_placeholders(
    values: &mut Values<'_>,
    inputs: &BTreeMap<String, Input>,
    field: Field,
    text: &str,
    template: &Template,
) {
    let (first, spelled) = (values.line(field), values.spelled(field));
    let mut lines = lines_of(values.text, first.unwrap_or_default(), text);
    let mut reported = HashSet::new();
    for (name, at) in template.places().filter(|(name, _)| !inputs.contains_key(*name)) {
        // Searches from one to the next, so that the text is scanned once.
        let line = first
            .and_then(|_| lines.find(|(mark, _)| *mark == at))
            .map(|(_, line)| line);
        if !reported.insert((name, line)) {
            continue;
        }
        let allowed = || {
            let known: Vec<_> = inputs.keys().map(String::as_str).collect();
            let mut allowed = format!("an input: {}", unknown_name_message(name, &known));
            if !allowed.ends_with('?') {
                allowed.push_str("; or `$${` for a literal `${`");
            }
            allowed
        };
        let found = format!("the placeholder ${{{name}}}");
        values.error_with(line, &spelled, &found, allowed);
    }
}

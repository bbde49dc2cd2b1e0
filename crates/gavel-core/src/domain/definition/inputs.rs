//! The inputs and outputs of an agent: `inputConfig`, `outputConfig` and `processOutput`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use gavel_reading::{At, Content, FLAG, Fields, Node, OneOf, Parser, Record, With, json, quoted, unknown_name_message};
use serde_json::Value;

use super::fields::{Field, INPUT, OUTPUT};
use super::values::{self, AGENT, MOST_ITEMS, NAME, SOME_TEXT, Values, lines_of};
use super::{Input, InputType, Output, OutputSchema, Prompt};
use crate::domain::schema::{JsonSchema, SchemaError};
use crate::domain::templates::{Template, malformed_at};
use crate::domain::{canonical, nesting, text};

/// The one input of an agent without `inputConfig`.
pub(super) const QUERY: &str = "query";

/// `inputConfig`; without it, one required string, `query`. `None` if it is given but not a map: then the inputs are
/// unknown.
pub(super) fn inputs(values: &mut Values<'_>) -> Option<BTreeMap<String, Input>> {
    let Some(at) = values.given(Field::Inputs).cloned() else {
        let query = Input {
            description: "What the agent is asked to do.".to_owned(),
            kind: InputType::String,
            required: true,
        };
        return (!values.is_invalid(INPUT)).then(|| BTreeMap::from([(QUERY.to_owned(), query)]));
    };
    let Content::Map(entries) = &at.node.content else {
        at.invalid("a map from argument to {description, type, required}");
        return None;
    };
    if entries.len() > MOST_ITEMS {
        at.error(format!("{} of them", entries.len()), format!("at most {MOST_ITEMS}"));
        return None;
    }
    let mut inputs = BTreeMap::new();
    for (key, node) in entries {
        // An invalid name may have the length of the definition, and every path below it contains it.
        let path = format!("{}.{}", at.path, text::prefix(&key.name, 64));
        let place = at.holding(node).named(path);
        let of_key = place.clone().on_line(key.line);
        if !values::is_name(&key.name) {
            of_key.error(quoted(&key.name), NAME);
        }
        // An invalid input keeps its name, so that references to it are not errors as well.
        let input = INPUT_MAP.parse(&place).unwrap_or(Input {
            description: String::new(),
            kind: InputType::String,
            required: false,
        });
        inputs.insert(key.name.clone(), input);
        values
            .places
            .insert(format!("{}.{}", Field::Inputs.portable(), key.name), &of_key);
    }
    Some(inputs)
}

const INPUT_MAP: Record<fn(&Fields<'_>) -> Option<Input>> =
    Record("a map of description, type and required", |fields| {
        let description = fields.need_as("description", "what the argument is for", SOME_TEXT);
        let kind = fields.need("type", OneOf(InputType::NAMES));
        let required = fields.take("required", FLAG).unwrap_or(false);
        Some(Input {
            description: description?,
            kind: kind?,
            required,
        })
    });

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
    if fields.iter().all(|field| !values.has(*field)) {
        if let Some((_, group)) = values.groups.iter().find(|(name, _)| *name == OUTPUT)
            && !values.is_invalid(OUTPUT)
        {
            let allowed = "outputName, description and schema; or no outputConfig: then plain text ends the run";
            group.error("none of its fields", allowed);
        }
        return (None, None, None);
    }
    let name = values.need(Field::OutputName, "a name", AGENT);
    let description = values.need(Field::OutputDescription, "what the output is", SOME_TEXT);
    let schema = values.need(Field::OutputSchema, A_SCHEMA, With(A_SCHEMA, output_schema));
    if let Some(OutputSchema::Named(name)) = &schema {
        values.names.schema = Some(name.clone());
    }
    if let (Some(OutputSchema::Inline(_)), Some(at)) = (&schema, values.given(Field::OutputSchema)) {
        let read = json_text(at.node).and_then(Result::ok);
        schema_errors(&at.holding(read.as_ref().unwrap_or(at.node)));
    }
    (name, description, schema)
}

const A_SCHEMA: &str =
    "a JSON Schema, also as JSON text, or the name of a registered one (letters, digits, `_` or `-`)";

fn output_schema(at: &At<'_>) -> Option<OutputSchema> {
    let read = match &at.node.content {
        Content::Map(_) => return Some(OutputSchema::Inline(at.node.to_json())),
        Content::Text(name) if values::is_name(name) => return Some(OutputSchema::Named(name.clone())),
        _ => json_text(at.node),
    };
    match read {
        Some(Ok(read)) => return Some(OutputSchema::Inline(read.to_json())),
        Some(Err(error)) => at.invalid(format!("{A_SCHEMA}; this JSON text cannot be read: {error}")),
        None => at.invalid(A_SCHEMA),
    }
    None
}

/// `processOutput`: a template over the output and, if its schema is inline, over the schema's properties.
fn process_output(values: &mut Values<'_>, output: Option<&str>, schema: Option<&OutputSchema>) -> Option<String> {
    let text = values.text(Field::ProcessOutput)?;
    let place = values.place(Field::ProcessOutput);
    let (template, malformed) = Template::read(&text);
    let names_nothing = template.names().next().is_none();
    let found = match reads_as_function(&text, names_nothing) {
        true => Some("a function"),
        false if names_nothing && malformed.is_empty() => Some("a text without a placeholder"),
        false => None,
    };
    if let Some(found) = found.filter(|_| values.has(Field::OutputName)) {
        place.error(found, template_form(output, schema));
        return Some(text);
    }
    for at in malformed {
        values.error_within(&place, (&text, at), || malformed_at(&text, at));
    }
    match output {
        Some(output) => {
            values.names.process_output = Some((output.to_owned(), text.clone()));
            if let Some(OutputSchema::Inline(schema)) = schema {
                for name in unknown_in_output(&template, output, schema) {
                    let found = format!("the placeholder ${{{name}}}");
                    place.report(|| (place.line, found, known_in_output(name, output, schema)));
                }
            }
        }
        None if values.groups.iter().all(|(name, _)| *name != OUTPUT) => {
            let allowed = "an outputConfig with it: without one the output is plain text, as the agent wrote it";
            place.error("no outputConfig", allowed);
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

/// The longest message of the validator, in bytes: it quotes what it found.
const LONGEST: usize = 300;

/// The allowed values of `type`.
const TYPES: &str = "array, boolean, integer, null, number, object, string, or a list of these";

/// Reports the errors in a schema. A remote `$ref` is not fetched.
pub(super) fn schema_errors(at: &At<'_>) {
    let schema = at.node.to_json();
    let error = |pointer: &str, found: String, allowed: &str| {
        let part = at.holding(at.node.at(pointer));
        part.named(format!("{}{}", at.path, pointer.replace('/', ".")))
            .error(found, allowed);
    };
    let text = canonical::to_raw(&schema);
    if !nesting::within(text.get().as_bytes(), MAX_LEVELS) {
        return error("", "more levels".to_owned(), &format!("at most {MAX_LEVELS} levels"));
    }
    if text.get().len() > LARGEST {
        let found = format!("{} bytes", text.get().len());
        return error("", found, &format!("at most {LARGEST} bytes"));
    }
    let Ok(meta) = jsonschema::meta::validator_for(&schema) else {
        let found = "a $schema that gavel does not know".to_owned();
        let allowed = "https://json-schema.org/draft/2020-12/schema, an earlier draft, or no $schema";
        return error("/$schema", found, allowed);
    };
    let invalid: Vec<_> = meta.iter_errors(&schema).take(MOST_ERRORS).collect();
    for invalid in &invalid {
        let pointer = invalid.instance_path().to_string();
        let found = at.node.at(&pointer).found();
        match pointer.ends_with("/type") {
            true => error(&pointer, found, TYPES),
            false => {
                let words = invalid.to_string();
                error(
                    &pointer,
                    found,
                    &format!("what JSON Schema allows there: {}", text::capped(&words, LONGEST)),
                );
            }
        }
    }
    if !invalid.is_empty() {
        return;
    }
    match JsonSchema::compile(text) {
        Ok(_) => {}
        Err(SchemaError::Invalid(message)) => {
            let allowed = "a self-contained schema in which each $ref points to a part of it";
            error("", text::capped(&message, LONGEST).into_owned(), allowed);
        }
        Err(SchemaError::TooCostly { place, what, limit }) => error(&place, what, &format!("at most {limit}")),
    }
}

/// The names of a schema's properties.
pub(super) fn properties(schema: &Value) -> impl Iterator<Item = &str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(|map| map.keys().map(String::as_str))
}

/// The most placeholders and literal `${` in a text. Each is searched for in the file.
const MOST_MARKS: usize = 10_000;

/// Checks the placeholders of both texts: each must name an input. `inputs` is `None` if they are invalid and already
/// have errors. `persona` is what to write if the system prompt is missing.
pub(super) fn prompt(values: &Values<'_>, inputs: Option<&BTreeMap<String, Input>>, persona: &str) -> Option<Prompt> {
    let query = values.text(Field::Query);
    let system_prompt = values.need(Field::SystemPrompt, persona, SOME_TEXT);
    let query = match query {
        Some(query) => query,
        None if values.has(Field::Query) => return None,
        None if inputs.is_none_or(|inputs| inputs.contains_key(QUERY)) => "${query}".to_owned(),
        None => {
            values.missing(Field::Query, "a text that names the inputs as ${input}");
            return None;
        }
    };
    let system_prompt = system_prompt?;
    let texts = [(Field::Query, &query), (Field::SystemPrompt, &system_prompt)];
    let texts = texts.map(|(field, text)| (values.place(field), text));
    for (place, text) in &texts {
        let marks = memchr::memmem::find_iter(text.as_bytes(), "${").count();
        if marks > MOST_MARKS {
            place.error(format!("{marks} times `${{`"), format!("at most {MOST_MARKS} times"));
            return None;
        }
    }
    for (place, text) in &texts {
        let (template, malformed) = Template::read(text);
        for at in malformed {
            values.error_within(place, (text, at), || malformed_at(text, at));
        }
        if let Some(inputs) = inputs {
            unknown_placeholders(values, inputs, place, text, &template);
        }
    }
    Some(Prompt { query, system_prompt })
}

/// Reports each placeholder that is not an input, once for each line.
fn unknown_placeholders(
    values: &Values<'_>,
    inputs: &BTreeMap<String, Input>,
    place: &At<'_>,
    text: &str,
    template: &Template,
) {
    let mut lines = lines_of(values.text, place.line, text);
    let mut reported = HashSet::new();
    for (name, at) in template.places().filter(|(name, _)| !inputs.contains_key(*name)) {
        // Searches from one to the next, so that the text is scanned once.
        let line = lines.find(|(mark, _)| *mark == at).map(|(_, line)| line);
        let line = line.filter(|_| place.line > 0).unwrap_or_default();
        if !reported.insert((name, line)) {
            continue;
        }
        place.report(|| {
            let known: Vec<_> = inputs.keys().map(String::as_str).collect();
            let mut allowed = format!("an input: {}", unknown_name_message(name, &known));
            if !allowed.ends_with('?') {
                allowed.push_str("; or `$${` for a literal `${`");
            }
            (line, format!("the placeholder ${{{name}}}"), allowed)
        });
    }
}

//! From a tree of nodes to a definition, whatever form the tree came from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::error::DefinitionError;
use super::fields::{self, Field, unknown_name_message};
use super::model_settings::ModelSettings;
use super::node::{Content, Node, quoted};
use super::values::{self, Values};
use super::{Approval, Definition, Input, InputType, Output, OutputSchema, Prompt, RunLimits, canonical};
use crate::domain::templates::Template;

/// Lines of the fields that were given, for checks that come after.
pub(super) type Places = BTreeMap<Field, u64>;

/// The query of an agent without `inputConfig`, and the name of its one input.
const QUERY: &str = "query";

/// Reads a definition. `body` is the system prompt of a form that keeps it apart, with its line.
pub(super) fn read(root: &Node, body: Option<&Node>, file: &str) -> Result<(Definition, Places), Vec<DefinitionError>> {
    let mut errors = Vec::new();
    let entries = match &root.content {
        Content::Map(entries) => entries.as_slice(),
        Content::Null => &[],
        _ => {
            return Err(vec![DefinitionError {
                file: file.to_owned(),
                line: Some(root.line),
                field: "the definition".to_owned(),
                found: root.found(),
                allowed: "a map of fields".to_owned(),
            }]);
        }
    };
    let mut fields = fields::sort(entries, file, &mut errors);
    if let Some(node) = body {
        let given = fields::Given {
            path: "the text below the front matter".to_owned(),
            line: node.line,
            node,
        };
        fields.entry(Field::SystemPrompt).or_default().push(given);
    }
    let mut values = Values { file, fields, errors };
    let definition = definition(&mut values);
    match definition {
        Some(definition) if values.errors.is_empty() => {
            let places = values
                .fields
                .iter()
                .filter_map(|(field, given)| Some((*field, given.first()?.line)))
                .collect();
            Ok((definition, places))
        }
        _ => {
            values.errors.sort_by_key(|error| error.line);
            Err(values.errors)
        }
    }
}

fn definition(values: &mut Values<'_>) -> Option<Definition> {
    values.choice(Field::Kind, &[("local", ())]);
    let name = name(values);
    let display_name = values.text(Field::DisplayName);
    let description = values.text(Field::Description);
    if values.line(Field::Description).is_none() {
        values.missing(
            Field::Description,
            "what the agent does, for whoever decides to call it",
        );
    }
    let inputs = inputs(values);
    let output = output(values);
    let process_output = values.text(Field::ProcessOutput);
    let prompt = prompt(values, &inputs);
    let model = model(values);
    let tools = tools(values);
    let limits = limits(values);
    let approval = values.choice(Field::Approval, &Approval::NAMES).unwrap_or_default();
    let mut definition = Definition {
        name: name?,
        display_name,
        description: description?,
        inputs,
        output,
        process_output,
        prompt: prompt?,
        model,
        tools,
        limits,
        approval,
        hash: Arc::from(""),
    };
    definition.hash = canonical::hash(&definition);
    Some(definition)
}

fn name(values: &mut Values<'_>) -> Option<String> {
    let allowed = "1 to 64 letters, digits, `_` or `-`";
    if values.line(Field::Name).is_none() {
        values.missing(Field::Name, allowed);
    }
    values.get(Field::Name, allowed, |node| {
        values::text(node).filter(|text| is_name(text))
    })
}

/// What may name an agent, an input or an output.
fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

fn inputs(values: &mut Values<'_>) -> BTreeMap<String, Input> {
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
        if !is_name(&key.name) {
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

fn output(values: &mut Values<'_>) -> Option<Output> {
    let fields = [Field::OutputName, Field::OutputDescription, Field::OutputSchema];
    if fields.iter().all(|field| values.line(*field).is_none()) {
        return None;
    }
    let name = values.get(Field::OutputName, "1 to 64 letters, digits, `_` or `-`", |node| {
        values::text(node).filter(|text| is_name(text))
    });
    let description = values.text(Field::OutputDescription);
    let allowed = "a JSON Schema, or the name of a registered one (letters, digits, `_` or `-`)";
    let schema = values.get(Field::OutputSchema, allowed, |node| match &node.content {
        Content::Map(_) => Some(OutputSchema::Inline(node.to_json())),
        Content::Text(name) if is_name(name) => Some(OutputSchema::Named(name.clone())),
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

/// Checks the placeholders of both texts: each names an input, and each input is named.
fn prompt(values: &mut Values<'_>, inputs: &BTreeMap<String, Input>) -> Option<Prompt> {
    let query = values.text(Field::Query);
    let system_prompt = values.text(Field::SystemPrompt);
    if values.line(Field::SystemPrompt).is_none() {
        values.missing(Field::SystemPrompt, "the agent's persona and rules");
    }
    let query = match query {
        Some(query) => query,
        None if values.line(Field::Query).is_some() => return None,
        None if inputs.contains_key(QUERY) => "${query}".to_owned(),
        None => {
            values.missing(Field::Query, "a text that names the inputs as ${input}");
            return None;
        }
    };
    let system_prompt = system_prompt?;
    let mut named = Vec::new();
    for (field, text) in [(Field::Query, &query), (Field::SystemPrompt, &system_prompt)] {
        let line = values.line(field);
        match Template::parse(text) {
            Ok(template) => {
                for name in template.names() {
                    if !inputs.contains_key(name) {
                        let known: Vec<_> = inputs.keys().map(String::as_str).collect();
                        let allowed = format!("an input: {}", unknown_name_message(name, &known));
                        values.error(
                            line,
                            &field.portable(),
                            &format!("the placeholder ${{{name}}}"),
                            &allowed,
                        );
                    }
                    named.push(name.to_owned());
                }
            }
            Err(error) => values.error(line, &field.portable(), &error.found, &error.allowed),
        }
    }
    for input in inputs.keys().filter(|input| !named.contains(input)) {
        let line = values.line(Field::Query).or(values.line(Field::Inputs));
        let allowed = format!("every input named in the query or the system prompt, here ${{{input}}}");
        values.error(
            line,
            &Field::Query.portable(),
            &format!("no placeholder for the input `{input}`"),
            &allowed,
        );
    }
    Some(Prompt { query, system_prompt })
}

fn model(values: &mut Values<'_>) -> ModelSettings {
    ModelSettings {
        // Gemini CLI's word for "the configured one".
        model: values.text(Field::Model).filter(|model| model != "inherit"),
        temperature: values.float(Field::Temperature, 2.0),
        top_p: values.float(Field::TopP, 1.0),
        thinking_budget: values.whole(Field::ThinkingBudget, -1, i32::MAX),
        max_output_tokens: values.count(Field::MaxOutputTokens),
    }
}

fn tools(values: &mut Values<'_>) -> Vec<String> {
    let tools = values.get(Field::Tools, "a list of tool names, none of them twice", |node| {
        let Content::List(items) = &node.content else {
            return None;
        };
        let mut names: Vec<String> = Vec::new();
        for item in items {
            let name = values::text(item).filter(|name| name.len() <= 128 && !name.contains(char::is_whitespace))?;
            if names.contains(&name) {
                return None;
            }
            names.push(name);
        }
        Some(names)
    });
    tools.unwrap_or_default()
}

/// `max_time_minutes` and `deadline_seconds` are one limit in two units.
fn limits(values: &mut Values<'_>) -> RunLimits {
    let max_turns = values.count(Field::MaxTurns);
    let minutes = values
        .count(Field::MaxTimeMinutes)
        .map(|minutes| Duration::from_secs(u64::from(minutes) * 60));
    let seconds = values
        .count(Field::DeadlineSeconds)
        .map(|seconds| Duration::from_secs(u64::from(seconds)));
    if let (Some(minutes), Some(seconds)) = (minutes, seconds)
        && minutes != seconds
    {
        let found = format!(
            "{} s, while the limit in minutes is {} s",
            seconds.as_secs(),
            minutes.as_secs()
        );
        let line = values.line(Field::DeadlineSeconds);
        values.error(
            line,
            &Field::DeadlineSeconds.portable(),
            &found,
            "one value; both are the same limit",
        );
    }
    RunLimits {
        max_turns,
        max_time: seconds.or(minutes),
    }
}

//! What the model is told: `promptConfig`.

use std::collections::BTreeMap;

use super::fields::{Field, unknown_name_message};
use super::inputs::QUERY;
use super::values::Values;
use super::{Input, Prompt};
use crate::domain::templates::Template;

/// Checks the placeholders of both texts: each names an input, and each input is named.
pub(super) fn prompt(values: &mut Values<'_>, inputs: &BTreeMap<String, Input>) -> Option<Prompt> {
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
        let (template, errors) = Template::read(text);
        for error in errors {
            let line = line_of(values, field, text, error.at);
            values.error(line, &field.portable(), &error.found, &error.allowed);
        }
        let mut told: Vec<&str> = Vec::new();
        for name in template.names() {
            if !inputs.contains_key(name) && !told.contains(&name) {
                told.push(name);
                unknown_placeholder(values, inputs, field, text, name);
            }
            named.push(name.to_owned());
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

/// Tells of a placeholder that is no input, once a line.
fn unknown_placeholder(
    values: &mut Values<'_>,
    inputs: &BTreeMap<String, Input>,
    field: Field,
    text: &str,
    name: &str,
) {
    let known: Vec<_> = inputs.keys().map(String::as_str).collect();
    let mut allowed = format!("an input: {}", unknown_name_message(name, &known));
    if !allowed.ends_with('?') {
        allowed.push_str("; or `$${` where the text means `${`");
    }
    let found = format!("the placeholder ${{{name}}}");
    let places = text.match_indices(&found["the placeholder ".len()..]);
    let unescaped = places.filter(|(at, _)| !text[..*at].ends_with('$'));
    let mut lines: Vec<_> = unescaped.map(|(at, _)| line_of(values, field, text, at)).collect();
    lines.dedup();
    for line in lines {
        values.error(line, &field.portable(), &found, &allowed);
    }
}

/// The line of a place in a field's text, where a `${` is.
fn line_of(values: &Values<'_>, field: Field, text: &str, at: usize) -> Option<u64> {
    let given = values.fields.get(&field)?.first()?;
    Some(values.line_within(given.line, text, at))
}

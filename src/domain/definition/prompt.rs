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

//! What the model is told: `promptConfig`.

use std::collections::{BTreeMap, HashSet};

use super::fields::{Field, unknown_name_message};
use super::inputs::QUERY;
use super::values::{Values, lines_of};
use super::{Input, Prompt};
use crate::domain::templates::{Template, malformed_at};

/// Placeholders of a text, and `${` that stand for themselves. Each is looked for in the file.
const MOST_MARKS: usize = 10_000;

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
    for (field, text) in [(Field::Query, &query), (Field::SystemPrompt, &system_prompt)] {
        let marks = memchr::memmem::find_iter(text.as_bytes(), "${").count();
        if marks > MOST_MARKS {
            let line = values.line(field);
            values.error(
                line,
                &field.portable(),
                &format!("{marks} times `${{`"),
                &format!("at most {MOST_MARKS} times"),
            );
            return None;
        }
    }
    let mut named = HashSet::new();
    for (field, text) in [(Field::Query, &query), (Field::SystemPrompt, &system_prompt)] {
        let (template, malformed) = Template::read(text);
        let line = values.line(field);
        for at in malformed {
            values.error_within(line, &field.portable(), (text, at), || malformed_at(text, at));
        }
        unknown_placeholders(values, inputs, field, text, &template);
        named.extend(template.names().map(str::to_owned));
    }
    for input in inputs.keys().filter(|input| !named.contains(*input)) {
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

/// Tells of each placeholder that is no input, once a line.
fn unknown_placeholders(
    values: &mut Values<'_>,
    inputs: &BTreeMap<String, Input>,
    field: Field,
    text: &str,
    template: &Template,
) {
    let first = values.line(field);
    let mut lines = lines_of(values.text, first.unwrap_or_default(), text);
    let mut told = HashSet::new();
    for (name, at) in template.places().filter(|(name, _)| !inputs.contains_key(*name)) {
        // From one to the next, so that the text is gone through once.
        let line = first
            .and_then(|_| lines.find(|(mark, _)| *mark == at))
            .map(|(_, line)| line);
        if !told.insert((name, line)) {
            continue;
        }
        let allowed = || {
            let known: Vec<_> = inputs.keys().map(String::as_str).collect();
            let mut allowed = format!("an input: {}", unknown_name_message(name, &known));
            if !allowed.ends_with('?') {
                allowed.push_str("; or `$${` where the text means `${`");
            }
            allowed
        };
        let found = format!("the placeholder ${{{name}}}");
        values.error_with(line, &field.portable(), &found, allowed);
    }
}

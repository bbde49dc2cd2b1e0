//! The prompt of the model: `promptConfig`.

use std::collections::{BTreeMap, HashSet};

use super::fields::Field;
use super::inputs::QUERY;
use super::values::{Values, lines_of};
use super::{Input, Prompt};
use crate::domain::templates::{Template, malformed_at};
use gavel_reading::unknown_name_message;

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

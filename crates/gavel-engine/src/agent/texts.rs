//! The texts that are made of a run's definition: its system prompt, its task, and its final text.

use chrono_tz::Tz;
use serde_json::{Map, Value};

use super::{Round, Settings};
use crate::domain::definition::{Definition, Field};
use crate::domain::journal::{Completion, Entry, Verdict};
use crate::domain::templates::{MOST_RENDERED, RenderError, Template};
use crate::next::Ending;
use crate::strategy::Strategy;
use crate::{context, flow};

/// The first message to the model. The steps of a flow have one instead, and so has what a run reads first.
pub(super) fn task(
    definition: &Definition,
    strategy: &Strategy,
    settings: &Settings,
    input: &Map<String, Value>,
) -> Result<Option<String>, Ending> {
    let Some(prompt) = definition
        .prompt
        .as_ref()
        .filter(|_| matches!(strategy, Strategy::Turns | Strategy::React(_)))
    else {
        return Ok(None);
    };
    let words = rendered(Field::Query, &prompt.query, definition, input)?;
    with_round(words, settings.round.as_ref(), definition).map(Some)
}

/// The task as the first entry of a journal.
pub(super) fn to_message(task: &str, now_us: i64, zone: Option<Tz>) -> Entry {
    Entry::User(context::message(task, now_us, zone, &[]))
}

/// The task, followed by the text about the current round.
fn with_round(words: String, round: Option<&Round>, definition: &Definition) -> Result<String, Ending> {
    let Some(round) = round else { return Ok(words) };
    let words = words + &round_message(round);
    match words.len() {
        length if length > MOST_RENDERED => {
            let what = format!(
                "with the result of the previous round, {}",
                RenderError::TooLong(length)
            );
            Err(too_long(Field::Query, definition, &what))
        }
        _ => Ok(words),
    }
}

fn too_long(field: Field, definition: &Definition, what: &str) -> Ending {
    Ending::TooLong(format!(
        "{} of the agent {:?}: {what}",
        field.portable(),
        definition.name
    ))
}

/// The text about the current round, which follows the task.
fn round_message(round: &Round) -> String {
    let mut words = format!(
        "\n\nThis is round {} of at most {}. When nothing is left to improve, end with exit_loop.",
        round.number, round.of
    );
    if let Some(before) = &round.before {
        words.push_str("\nThe result of the previous round:\n<result>\n");
        words.push_str(before);
        words.push_str("\n</result>");
    }
    words
}

/// A text with its inputs inserted: strings unchanged, other values as JSON, absent optional inputs as nothing.
pub(super) fn rendered(
    field: Field,
    text: &str,
    definition: &Definition,
    input: &Map<String, Value>,
) -> Result<String, Ending> {
    let value = |name: &str| match input.get(name) {
        Some(value) => Some(flow::text(value)),
        None if definition.inputs.contains_key(name) => Some(String::new()),
        None => None,
    };
    // Checked when the definition was read: each placeholder is an input.
    let Ok(template) = Template::parse(text) else {
        return Ok(text.to_owned());
    };
    match template.render(value) {
        Ok(rendered) => Ok(rendered),
        Err(RenderError::Missing(_)) => Ok(text.to_owned()),
        Err(error) => Err(too_long(field, definition, &error.to_string())),
    }
}

/// The final text, if the definition formats the output (D-6).
///
/// # Errors
/// The text would be too long.
pub(super) fn formatted(definition: Option<&Definition>, ending: &Ending) -> Result<Option<String>, String> {
    let (Ending::Verdict(Verdict::Complete { output, .. }) | Ending::Flow(output)) = ending else {
        return Ok(None);
    };
    let (Some(definition), Completion::Output(json)) = (definition, output) else {
        return Ok(None);
    };
    let template = definition.process_output.as_deref().map(Template::parse);
    let (Some(Ok(template)), Ok(value)) = (template, serde_json::from_str::<Value>(json)) else {
        return Ok(None);
    };
    let whole = definition.output.as_ref().map(|output| output.name.as_str());
    let find = |name: &str| match value.get(name) {
        Some(property) => Some(flow::text(property)),
        None if Some(name) == whole => Some(flow::text(&value)),
        // An optional property.
        None => Some(String::new()),
    };
    match template.render(find) {
        Ok(text) => Ok(Some(text)),
        Err(RenderError::Missing(_)) => Ok(None),
        Err(error) => Err(format!(
            "{} of the agent {:?}: {error}",
            Field::ProcessOutput.portable(),
            definition.name
        )),
    }
}

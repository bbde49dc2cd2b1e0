//! From a tree of nodes to a definition, whatever form the tree came from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::error::DefinitionError;
use super::fields::{self, Field};
use super::inputs::{inputs, output};
use super::model_settings::ModelSettings;
use super::node::{Content, Node};
use super::prompt::prompt;
use super::values::{self, Values};
use super::{Approval, Definition, RunLimits, canonical};

/// Lines of the fields that were given, for checks that come after.
pub(super) type Places = BTreeMap<Field, u64>;

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
        values::text(node).filter(|text| values::is_name(text))
    })
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

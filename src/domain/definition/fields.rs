//! The spelling table: each field's names in each form, all of them accepted on reading.
//!
//! The first name is the portable one and the one written. The others are protobuf's (`snake_case`),
//! those of Gemini CLI's agent files (`temperature`, `max_turns`, `timeout_mins` at the top level) and
//! of agent execution (`max_steps`, `default_timeout`). One field given under two names must have
//! one value.

use std::collections::BTreeMap;

use super::error::DefinitionError;
use super::nearest::nearest;
use super::node::{Content, Key, Node};

/// A field of a definition, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Field {
    Name,
    DisplayName,
    Description,
    Kind,
    Inputs,
    OutputName,
    OutputDescription,
    OutputSchema,
    ProcessOutput,
    Query,
    SystemPrompt,
    Model,
    Temperature,
    TopP,
    ThinkingBudget,
    MaxOutputTokens,
    Tools,
    MaxTurns,
    MaxTimeMinutes,
    DeadlineSeconds,
    Approval,
}

const INPUT: &str = "inputConfig";
const OUTPUT: &str = "outputConfig";
const PROMPT: &str = "promptConfig";
const MODEL: &str = "modelConfig";
const TOOLS: &str = "toolConfig";
const RUN: &str = "runConfig";

/// Groups: portable name, other names.
const GROUPS: &[(&str, &[&str])] = &[
    (INPUT, &["input_config"]),
    (OUTPUT, &["output_config"]),
    (PROMPT, &["prompt_config"]),
    (MODEL, &["model_config"]),
    (TOOLS, &["tool_config"]),
    (RUN, &["run_config"]),
];

/// One row of the table.
struct Row {
    field: Field,
    /// The group it belongs to, and its names in there.
    grouped: Option<(&'static str, &'static [&'static str])>,
    /// Its names at the top level.
    flat: &'static [&'static str],
}

const fn flat(field: Field, flat: &'static [&'static str]) -> Row {
    Row {
        field,
        grouped: None,
        flat,
    }
}

const fn grouped(
    field: Field,
    group: &'static str,
    names: &'static [&'static str],
    flat: &'static [&'static str],
) -> Row {
    Row {
        field,
        grouped: Some((group, names)),
        flat,
    }
}

const TABLE: &[Row] = &[
    flat(Field::Name, &["name"]),
    flat(Field::DisplayName, &["displayName", "display_name"]),
    flat(Field::Description, &["description"]),
    flat(Field::Kind, &["kind"]),
    grouped(Field::Inputs, INPUT, &["inputs"], &[]),
    grouped(Field::OutputName, OUTPUT, &["outputName", "output_name"], &[]),
    grouped(Field::OutputDescription, OUTPUT, &["description"], &[]),
    grouped(Field::OutputSchema, OUTPUT, &["schema"], &[]),
    flat(Field::ProcessOutput, &["processOutput", "process_output"]),
    grouped(Field::Query, PROMPT, &["query"], &["query"]),
    grouped(
        Field::SystemPrompt,
        PROMPT,
        &["systemPrompt", "system_prompt"],
        &["systemPrompt", "system_prompt"],
    ),
    grouped(Field::Model, MODEL, &["model", "name"], &["model"]),
    grouped(
        Field::Temperature,
        MODEL,
        &["temp", "temperature"],
        &["temp", "temperature"],
    ),
    grouped(Field::TopP, MODEL, &["top_p", "topP"], &["top_p", "topP"]),
    grouped(
        Field::ThinkingBudget,
        MODEL,
        &["thinkingBudget", "thinking_budget"],
        &["thinkingBudget", "thinking_budget"],
    ),
    grouped(
        Field::MaxOutputTokens,
        MODEL,
        &["maxOutputTokens", "max_output_tokens"],
        &[],
    ),
    grouped(Field::Tools, TOOLS, &["tools"], &["tools"]),
    grouped(
        Field::MaxTurns,
        RUN,
        &["max_turns", "maxTurns", "max_steps", "iterations"],
        &["max_turns", "max_steps", "iterations"],
    ),
    grouped(
        Field::MaxTimeMinutes,
        RUN,
        &["max_time_minutes", "maxTimeMinutes", "default_timeout", "timeout_mins"],
        &["max_time_minutes", "default_timeout", "timeout_mins"],
    ),
    grouped(
        Field::DeadlineSeconds,
        RUN,
        &["deadline_seconds", "deadlineSeconds"],
        &["deadline_seconds"],
    ),
    flat(Field::Approval, &["approval"]),
];

impl Field {
    /// The portable spelling, with its group.
    pub(super) fn portable(self) -> String {
        match TABLE.iter().find(|row| row.field == self) {
            Some(Row {
                grouped: Some((group, names)),
                ..
            }) => format!("{group}.{}", names[0]),
            Some(row) => row.flat[0].to_owned(),
            None => unreachable!("every field has a row; a test sees to it"),
        }
    }
}

/// A field as the text gives it.
pub(super) struct Given<'a> {
    /// As it is spelled there, with its group.
    pub(super) path: String,
    /// The line of its key.
    pub(super) line: u64,
    pub(super) node: &'a Node,
}

/// Every given field under its meaning, each as often as it was given.
pub(super) type Fields<'a> = BTreeMap<Field, Vec<Given<'a>>>;

/// Sorts what a text gives by the table. Names that are not in it go to `errors`.
pub(super) fn sort<'a>(root: &'a [(Key, Node)], file: &str, errors: &mut Vec<DefinitionError>) -> Fields<'a> {
    let mut fields = Fields::new();
    for (key, node) in root {
        if let Some(group) = group_named(&key.name) {
            sort_group(group, key, node, file, errors, &mut fields);
        } else if let Some(row) = TABLE.iter().find(|row| row.flat.contains(&key.name.as_str())) {
            fields.entry(row.field).or_default().push(Given {
                path: key.name.clone(),
                line: key.line,
                node,
            });
        } else {
            let known = TABLE
                .iter()
                .flat_map(|row| row.flat)
                .chain(GROUPS.iter().map(|(name, _)| name));
            errors.push(unknown(key, key.name.clone(), known.copied().collect(), file));
        }
    }
    fields
}

fn group_named(name: &str) -> Option<&'static str> {
    GROUPS
        .iter()
        .find(|(group, others)| *group == name || others.contains(&name))
        .map(|(group, _)| *group)
}

fn sort_group<'a>(
    group: &'static str,
    group_key: &Key,
    node: &'a Node,
    file: &str,
    errors: &mut Vec<DefinitionError>,
    fields: &mut Fields<'a>,
) {
    let entries = match &node.content {
        Content::Map(entries) => entries,
        Content::Null => return,
        _ => {
            errors.push(DefinitionError {
                file: file.to_owned(),
                line: Some(node.line),
                field: group_key.name.clone(),
                found: node.found(),
                allowed: "a map".to_owned(),
            });
            return;
        }
    };
    let in_group = |row: &'static Row| row.grouped.filter(|(name, _)| *name == group).map(|(_, names)| names);
    for (key, node) in entries {
        let path = format!("{}.{}", group_key.name, key.name);
        let row = TABLE
            .iter()
            .find(|row| in_group(row).is_some_and(|names| names.contains(&key.name.as_str())));
        match row {
            Some(row) => fields.entry(row.field).or_default().push(Given {
                path,
                line: key.line,
                node,
            }),
            None => {
                let known = TABLE.iter().filter_map(in_group).flatten().copied().collect();
                errors.push(unknown(key, path, known, file));
            }
        }
    }
}

fn unknown(key: &Key, path: String, known: Vec<&str>, file: &str) -> DefinitionError {
    DefinitionError {
        file: file.to_owned(),
        line: Some(key.line),
        field: path,
        found: "an unknown field".to_owned(),
        allowed: unknown_name_message(&key.name, &known),
    }
}

/// What to say is allowed where `name` is not known: the nearest name, or all of them.
pub(crate) fn unknown_name_message(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => known.join(", "),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn no_name_means_two_fields() {
        let mut seen = std::collections::BTreeSet::new();
        for row in TABLE {
            for name in row.flat {
                assert!(seen.insert((*name).to_owned()), "{name}");
                assert!(group_named(name).is_none(), "{name}");
            }
            if let Some((group, names)) = row.grouped {
                assert!(group_named(group).is_some(), "{group}");
                for name in names {
                    assert!(seen.insert(format!("{group}.{name}")), "{group}.{name}");
                }
            }
        }
    }
}

//! The spelling table: all names of each field in each form, which parsing accepts, and its type.
//!
//! The first name is the portable one, which is written. The others are protobuf's (`snake_case`), those of Gemini
//! CLI's agent files (`temperature`, `max_turns`, `timeout_mins` at the top level) and of agent execution (`max_steps`,
//! `default_timeout`). A field that is given under two names must have one value. The JSON Schema of definitions and
//! the table in the documentation are generated from it.

use std::collections::BTreeMap;
use std::time::Duration;

use gavel_reading::{At, Content, Key, Node, nearest};

use super::canonical::Tree;
use super::flow::{Flow, FlowType};
use super::values::SECONDS;
use super::{Approval, Definition, OutputSchema, Provider, ThinkingLevel};

/// The type of a field, for its description. The reader implements the conversion.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holds {
    /// Text that is not blank.
    Text,
    /// 1 to 64 letters, digits, `_` or `-`.
    Name,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A number from 0 to this.
    Number(f32),
    /// A whole number from this.
    Whole(i32),
    /// True or false.
    Bool,
    /// A duration in seconds, or as a text with units.
    Seconds,
    /// A duration in minutes.
    Minutes,
    /// A list of tools.
    Tools,
    /// A list of agents.
    SubAgents,
    /// A map from argument to its description.
    Inputs,
    /// A JSON Schema, or the name of one.
    Schema,
    /// A list of steps.
    Steps,
}

pub(super) const INPUT: &str = "inputConfig";
pub(super) const OUTPUT: &str = "outputConfig";
pub(super) const PROMPT: &str = "promptConfig";
const MODEL: &str = "modelConfig";
const TOOLS: &str = "toolConfig";
const RUN: &str = "runConfig";

/// Groups: portable name, other names.
pub(super) const GROUPS: &[(&str, &[&str])] = &[
    (INPUT, &["input_config"]),
    (OUTPUT, &["output_config"]),
    (PROMPT, &["prompt_config"]),
    (MODEL, &["model_config"]),
    (TOOLS, &["tool_config"]),
    (RUN, &["run_config"]),
];

/// One row of the table.
pub(super) struct Row {
    pub(super) field: Field,
    /// Its group, and its names in the group.
    pub(super) grouped: Option<(&'static str, &'static [&'static str])>,
    /// Its names at the top level.
    pub(super) flat: &'static [&'static str],
    pub(super) holds: Holds,
    /// Its portable value in a definition; `None` if it is absent, or a default that is left out.
    pub(super) write: fn(&Definition) -> Option<Tree>,
    /// A one-sentence description for authors of definitions.
    pub(super) about: &'static str,
}

/// The table, in the order in which a definition is written. A line: the field, its group with its names there, its names
/// at the top level, what it holds, what is written of a definition, and what it is.
macro_rules! table {
    ($($field:ident: $grouped:expr, $flat:expr, $holds:expr, $write:expr, $about:expr;)+) => {
        /// A field of a definition, regardless of its spelling.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "each is the field of that name")]
        pub enum Field { $($field,)+ }

        /// A row for each field, in their order.
        pub(super) const TABLE: &[Row] = &[$(Row {
            field: Field::$field,
            grouped: $grouped,
            flat: $flat,
            holds: $holds,
            write: $write,
            about: $about,
        },)+];
    };
}

table! {
    SchemaOfFile: None, &["$schema"], Holds::Text,
        |_| None,
        "For editors: the JSON Schema of this file (`gavel agents schema`). No part of the definition.";
    Name: None, &["name"], Holds::Name,
        |one| Some((&one.name).into()),
        "Required. Unique; the name under which the agent is called as a tool. Not complete_task or exit_loop.";
    DisplayName: None, &["displayName", "display_name"], Holds::Text,
        |one| Tree::optional(&one.display_name),
        "The name for people.";
    Description: None, &["description"], Holds::Text,
        |one| Some((&one.description).into()),
        "Required. What the agent does: a parent agent reads it to decide on delegation.";
    Kind: None, &["kind"], Holds::Choice(&["local"]),
        |_| None,
        "Gemini CLI's marker for an agent that runs locally, as all agents of gavel do.";
    FlowType: None, &["flow_type", "flowType"], Holds::Choice(FlowType::WORDS),
        |one| (one.flow != Flow::Single).then(|| one.flow.as_str().into()),
        "How it works: once (default), its steps in order, or in a loop.";
    Inputs: Some((INPUT, &["inputs"])), &[], Holds::Inputs,
        |one| Some(Tree::Map(one.inputs.iter().map(|(name, input)| (name.clone(), input.into())).collect())),
        "Its arguments by name: description, type, required (default false). Absent: one required string, `query`.";
    Steps: None, &["steps"], Holds::Steps,
        |one| Tree::some(one.flow.steps()),
        "What a flow runs in order: names of agents, or maps of name, agent, input and timeout. Absent: the agent itself.";
    MaxIterations: None, &["max_iterations", "maxIterations"], Holds::Whole(1),
        |one| match one.flow {
            Flow::Loop { max_iterations, .. } => Some(u64::from(max_iterations).into()),
            Flow::Single | Flow::Sequential { .. } => None,
        },
        "The most iterations of a loop; default 3.";
    OutputName: Some((OUTPUT, &["outputName", "output_name"])), &[], Holds::Name,
        |one| Some((&one.output.as_ref()?.name).into()),
        "The argument of `complete_task` that carries the output. Without outputConfig plain text ends the run.";
    OutputDescription: Some((OUTPUT, &["description"])), &[], Holds::Text,
        |one| Some((&one.output.as_ref()?.description).into()),
        "What the output is.";
    OutputSchema: Some((OUTPUT, &["schema"])), &[], Holds::Schema,
        |one| Some(match &one.output.as_ref()?.schema {
            OutputSchema::Named(name) => name.into(),
            OutputSchema::Inline(schema) => schema.clone().into(),
        }),
        "The JSON Schema that the output conforms to, or the NAME of schemas/NAME.json.";
    ProcessOutput: None, &["processOutput", "process_output"], Holds::Text,
        |one| Tree::optional(&one.process_output),
        "Template of the final text: ${report} is the whole output if outputName is report, and ${summary} its property summary. Absent: JSON.";
    Query: Some((PROMPT, &["query"])), &["query"], Holds::Text,
        |one| Some((&one.prompt.as_ref()?.query).into()),
        "The first message to the model; ${INPUT} is replaced by an input. Absent: `${query}`.";
    SystemPrompt: Some((PROMPT, &["systemPrompt", "system_prompt"])), &["systemPrompt", "system_prompt"], Holds::Text,
        |one| Some((&one.prompt.as_ref()?.system_prompt).into()),
        "Required, unless there are steps. Persona and rules; in Markdown the text below the front matter.";
    Provider: Some((MODEL, &["provider"])), &[], Holds::Choice(Provider::WORDS),
        |one| Some(one.provider?.as_str().into()),
        "The Gemini Developer API or Vertex AI. Absent: the configured one.";
    Model: Some((MODEL, &["model", "name"])), &["model"], Holds::Text,
        |one| Tree::optional(&one.model.model),
        "The model's name. Absent, or `inherit`: the configured one.";
    Temperature: Some((MODEL, &["temp", "temperature"])), &["temp", "temperature"], Holds::Number(2.0),
        |one| Tree::optional(&one.model.temperature),
        "Sampling temperature. Absent: the model's default.";
    TopP: Some((MODEL, &["top_p", "topP"])), &["top_p", "topP"], Holds::Number(1.0),
        |one| Tree::optional(&one.model.top_p),
        "Nucleus sampling threshold. Absent: the model's default.";
    ThinkingBudget: Some((MODEL, &["thinkingBudget", "thinking_budget"])),
        &["thinkingBudget", "thinking_budget"], Holds::Whole(-1),
        |one| Tree::optional(&one.model.thinking_budget),
        "Tokens for thinking; -1: no limit. Not beside thinkingLevel.";
    ThinkingLevel: Some((MODEL, &["thinkingLevel", "thinking_level"])),
        &["thinkingLevel", "thinking_level"], Holds::Choice(ThinkingLevel::WORDS),
        |one| Tree::optional(&one.model.thinking_level),
        "How much the model thinks. A level that the model does not know becomes the nearest one. Absent: the configured \
         level.";
    IncludeThoughts: Some((MODEL, &["includeThoughts", "include_thoughts"])),
        &["includeThoughts", "include_thoughts"], Holds::Bool,
        |one| Tree::optional(&one.model.include_thoughts),
        "Whether the model summarizes its thinking: shown as it arrives, kept with the run, never part of the answer. Absent: true; for a chat, false.";
    MaxOutputTokens: Some((MODEL, &["maxOutputTokens", "max_output_tokens"])), &[], Holds::Whole(1),
        |one| Tree::optional(&one.model.max_output_tokens),
        "The most tokens of one answer, including thinking.";
    Tools: Some((TOOLS, &["tools"])), &["tools"], Holds::Tools,
        |one| one.calls_model().then(|| Tree::List(one.tools.iter().map(Tree::from).collect())),
        "The tools that it may use, and no others: TOOL, or SERVER__TOOL. A TOOL whose name contains `__` must be \
         given as SERVER__TOOL. With the name of an agent it may call that agent, as with sub_agents. Absent: none.";
    SubAgents: None, &["sub_agents", "subAgents"], Holds::SubAgents,
        |one| Tree::some(&one.sub_agents),
        "The agents that it may call as tools: names, or maps of agent and timeout (seconds), which replaces the agent's \
         own limit. Absent: none.";
    MaxTurns: Some((RUN, &["max_turns", "maxTurns", "max_steps", "maxSteps", "iterations"])),
        &["max_turns", "maxTurns", "max_steps", "maxSteps", "iterations"], Holds::Whole(1),
        |one| Tree::optional(&one.limits.max_turns),
        "The most model calls of a run, plus one for a summary. Absent: 50 as a sub-agent, else no limit.";
    MaxTokens: Some((RUN, &["max_tokens", "maxTokens"])), &["max_tokens"], Holds::Whole(1),
        |one| Tree::optional(&one.limits.max_tokens),
        "The most input and output tokens over all model calls of a run; for a flow, over its steps. Tokens of sub-agents do not count. Absent: no limit.";
    MaxTimeMinutes: Some((RUN, &["max_time_minutes", "maxTimeMinutes", "timeout_mins"])),
        &["max_time_minutes", "timeout_mins"], Holds::Minutes,
        |one| one.limits.max_time.and_then(minutes).map(Tree::from),
        "Time limit of a run in minutes, plus up to 30 s for a summary. A fraction is rounded to whole seconds.";
    DeadlineSeconds: Some((RUN, &["deadline_seconds", "deadlineSeconds", "default_timeout", "defaultTimeout"])),
        &["deadline_seconds", "default_timeout", "defaultTimeout"], Holds::Seconds,
        |one| one.limits.max_time.filter(|time| minutes(*time).is_none()).map(|time| time.as_secs().into()),
        "The same limit in seconds, or as a text such as 90s, 5m or 1h30m.";
    Approval: None, &["approval"], Holds::Choice(Approval::WORDS),
        |one| one.calls_model().then(|| one.approval.as_str().into()),
        "When a tool call requires approval: never, for tools that can change something (default), always.";
}

/// Whole minutes, the shorter way to write a time limit.
fn minutes(time: Duration) -> Option<u64> {
    time.as_secs().is_multiple_of(60).then_some(time.as_secs() / 60)
}

impl Field {
    pub(super) fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The portable name in its group, or at the top level.
    pub(super) fn name(self) -> &'static str {
        let row = self.row();
        row.grouped.map_or(row.flat, |(_, names)| names)[0]
    }

    /// The portable spelling, with its group.
    pub fn portable(self) -> String {
        self.row().spellings().remove(0)
    }
}

impl Row {
    /// Every spelling, the portable one first.
    pub(super) fn spellings(&self) -> Vec<String> {
        let grouped = self.grouped.into_iter().flat_map(|(group, names)| {
            let groups = GROUPS
                .iter()
                .filter(move |(name, _)| *name == group)
                .flat_map(|(name, others)| std::iter::once(name).chain(*others));
            groups.flat_map(move |group| names.iter().map(move |name| format!("{group}.{name}")))
        });
        grouped.chain(self.flat.iter().map(|name| (*name).to_owned())).collect()
    }
}

// Sorts the keys of a definition by field, and reports unknown ones.

/// The given fields. An explicit null counts as absent.
pub(super) type Fields<'a> = BTreeMap<Field, At<'a>>;

/// Sorts the entries of `whole` by the table: fields, and groups that are not null, by their portable names. Reports
/// unknown names.
pub(super) fn sort<'a>(whole: &At<'a>, entries: &'a [(Key, Node)]) -> (Fields<'a>, Vec<(&'static str, At<'a>)>) {
    let (mut fields, mut groups) = (Fields::new(), Vec::new());
    for (key, node) in entries {
        let at = whole.entry(key, node);
        if let Some(group) = group_named(&key.name) {
            if !node.is_null() {
                sort_group(group, &at, &mut fields);
                groups.push((group, at));
            }
        } else if let Some(row) = TABLE.iter().find(|row| row.flat.contains(&key.name.as_str())) {
            insert(&mut fields, row.field, at);
        } else {
            at.report(|| unknown_at_the_top(key));
        }
    }
    (fields, groups)
}

/// Adds a field. One that is given under several names must have one value.
pub(super) fn insert<'a>(fields: &mut Fields<'a>, field: Field, at: At<'a>) {
    match fields.get(&field).filter(|first| !first.node.is_null()) {
        Some(first) if !at.node.is_null() && !is_same(field, at.node, first.node) => {
            let found = format!("{}, while line {} says {}", at.found(), first.line, first.found());
            let allowed = format!("one value; `{}` and `{}` are the same field", at.path, first.path);
            at.error(found, allowed);
        }
        Some(_) => {}
        None => drop(fields.insert(field, at)),
    }
}

/// Whether both say the same: `300` seconds are `5m`.
fn is_same(field: Field, one: &Node, other: &Node) -> bool {
    let seconds = |node| (SECONDS.read)(node).filter(|_| matches!(field.row().holds, Holds::Seconds));
    one.to_json() == other.to_json() || seconds(one).is_some_and(|time| seconds(other) == Some(time))
}

fn group_named(name: &str) -> Option<&'static str> {
    GROUPS
        .iter()
        .find(|(group, others)| *group == name || others.contains(&name))
        .map(|(group, _)| *group)
}

fn sort_group<'a>(group: &'static str, at: &At<'a>, fields: &mut Fields<'a>) {
    let Content::Map(entries) = &at.node.content else {
        return at.invalid("a map");
    };
    let in_group = |row: &'static Row| row.grouped.filter(|(name, _)| *name == group).map(|(_, names)| names);
    for (key, node) in entries {
        let at = at.entry(key, node);
        let has_name = |names: &[&str]| names.contains(&key.name.as_str());
        match TABLE.iter().find(|row| in_group(row).is_some_and(has_name)) {
            Some(row) => insert(fields, row.field, at),
            None => at.report(|| {
                let known = TABLE.iter().filter_map(in_group).flatten().copied().collect();
                unknown(key, known)
            }),
        }
    }
}

/// Fields of other programs' agents that gavel does not support. Ignoring one would change the agent.
const NOT_SUPPORTED: &[(&[&str], &str)] = &[
    (
        &["mcpServers", "mcp_servers"],
        "nothing: an agent has no servers of its own; name them in the mcp.json of gavel, and list their tools here",
    ),
    (&["color", "icon", "emoji"], "nothing: leave it out; gavel shows none"),
    (
        &["author", "category", "license", "metadata", "tags", "version"],
        "nothing: leave it out, or write it as a comment (`# …`)",
    ),
    (
        &["permissionMode", "permission_mode"],
        "`approval`: never, side_effects or always; it says when a tool call requires approval",
    ),
    (
        &["allowedTools", "allowed-tools", "allowed_tools"],
        "`tools`, a list of the names of tools",
    ),
    (
        &[
            "disallowedTools",
            "disallowed-tools",
            "disallowed_tools",
            "excludeTools",
        ],
        "nothing: an agent may use the tools that `tools` lists and no others",
    ),
    (
        &[
            "hooks",
            "skills",
            "memory",
            "background",
            "isolation",
            "effort",
            "initialPrompt",
        ],
        "nothing: gavel has no such thing for an agent; leave it out",
    ),
    (
        &["policy"],
        "nothing: an agent has no policy of its own; `approval` says when a tool call requires approval",
    ),
    (
        &["agent_card_url", "agent_card_json", "auth"],
        "nothing: agents of other services (kind: remote) cannot be called",
    ),
];

/// The error for an unknown name at the top level.
fn unknown_at_the_top(key: &Key) -> (u64, String, String) {
    let has_name = |names: &[&str]| names.contains(&key.name.as_str());
    if let Some((_, why)) = NOT_SUPPORTED.iter().find(|(names, _)| has_name(names)) {
        let found = "a field that gavel does not support".to_owned();
        return (key.line, found, (*why).to_owned());
    }
    let in_group = TABLE
        .iter()
        .find_map(|row| row.grouped.filter(|(_, names)| has_name(names)));
    if let Some((group, names)) = in_group {
        let (_, found, _) = unknown(key, Vec::new());
        return (key.line, found, format!("did you mean `{group}.{}`?", names[0]));
    }
    let known = TABLE
        .iter()
        .flat_map(|row| row.flat)
        .chain(GROUPS.iter().map(|(name, _)| name));
    unknown(key, known.copied().collect())
}

/// The error for an unknown name, given the known names.
fn unknown(key: &Key, known: Vec<&str>) -> (u64, String, String) {
    // Lists all of them: they come from the table, and the author of a definition may not have it at hand.
    let allowed = nearest_of(&key.name, &known).unwrap_or_else(|| known.join(", "));
    (key.line, "an unknown field".to_owned(), allowed)
}

fn nearest_of(name: &str, known: &[&str]) -> Option<String> {
    let near = nearest(name, known.iter().copied())?;
    Some(format!("did you mean `{near}`?"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::group_named;
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

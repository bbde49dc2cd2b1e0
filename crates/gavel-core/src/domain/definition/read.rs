//! Converts a tree of nodes of any form into a definition.

use std::cell::RefCell;
use std::sync::Arc;

use gavel_reading::{At, Content, Key, Node, OneOf, Parser, ReadError, Scalar, With, quoted};

use super::ModelSettings;
use super::fields::{self, Field};
use super::flow::{flow, only_for_models};
use super::inputs::{inputs, output, prompt};
use super::values::{self, AGENT, BODY, MINUTES, NAME, Named, Places, SECONDS, SOME_TEXT, Values};
use super::{Approval, Definition, Flow, Provider, RunLimits, SubAgent, canonical};

/// Reserved names: the functions that end an agent.
const TAKEN: [&str; 2] = ["complete_task", "exit_loop"];

/// What was read of a text.
#[derive(Debug)]
pub(super) struct Read {
    /// Its name, if valid: other definitions may refer to it.
    pub(super) name: Option<String>,
    /// Its references, as far as they could be read.
    pub(super) names: Named,
    pub(super) places: Places,
    /// The definition, or every error.
    pub(super) definition: Result<Definition, Vec<ReadError>>,
}

impl Read {
    /// A text that is not a definition at all, with a single error.
    pub(super) fn refused(file: &str, line: Option<u64>, field: &str, found: String, allowed: &str) -> Self {
        let error = ReadError {
            file: file.to_owned(),
            line,
            field: field.to_owned(),
            found,
            allowed: allowed.to_owned(),
        };
        Self {
            name: None,
            names: Named::default(),
            places: Places::default(),
            definition: Err(vec![error.clipped()]),
        }
    }
}

/// The source of a definition.
pub(super) struct Text<'a> {
    /// The name in errors.
    pub(super) file: &'a str,
    /// The whole text; empty for a form without lines.
    pub(super) text: &'a str,
    /// Duplicate keys, in the order of the text. The first value counts.
    pub(super) twice: Vec<Key>,
}

impl<'a> Text<'a> {
    /// The source of a form without lines.
    pub(super) fn without_lines(file: &'a str) -> Self {
        Self {
            file,
            text: "",
            twice: Vec::new(),
        }
    }
}

/// Reads a definition. `body` is the system prompt, with its line, of a form that keeps it apart from the fields.
pub(super) fn read(root: &Node, body: Option<&Node>, text: Text<'_>) -> Read {
    let Text { file, text, twice } = text;
    let errors = RefCell::default();
    let whole = At::root(&errors, file, root);
    whole.given_twice(&twice);
    let entries = match &root.content {
        Content::Map(entries) => entries.as_slice(),
        Content::Null => &[],
        _ => {
            let (line, found) = (Some(root.line), root.found());
            return Read::refused(file, line, "the definition", found, "a map of fields");
        }
    };
    let (mut fields, groups) = fields::sort(&whole, entries);
    if let Some(node) = body {
        fields::insert(&mut fields, Field::SystemPrompt, whole.holding(node).named(BODY));
    }
    let mut values = Values {
        whole,
        text,
        fields,
        groups,
        errors: &errors,
        places: Places::default(),
        names: Named::default(),
    };
    let name = name(&values);
    let definition = definition(&mut values, name.clone());
    let mut places = values.places;
    for (field, at) in values.fields.iter().filter(|(_, at)| !at.node.is_null()) {
        places.insert(field.portable(), at);
    }
    let errors = errors.take();
    Read {
        name,
        names: values.names,
        places,
        definition: match definition {
            Some(definition) if errors.is_empty() => Ok(definition),
            _ => Err(errors.into_vec(file)),
        },
    }
}

fn definition(values: &mut Values<'_>, name: Option<String>) -> Option<Definition> {
    values.text(Field::SchemaOfFile);
    values.take(Field::Kind, OneOf(&[("local", ())]));
    let display_name = values.text(Field::DisplayName);
    let needed = "what the agent does, so that a caller can decide to use it";
    let description = values.need(Field::Description, needed, SOME_TEXT);
    let before = values.errors.borrow().count();
    let inputs = inputs(values);
    values.names.inputs = inputs.clone().filter(|_| values.errors.borrow().count() == before);
    let flow = flow(values, inputs.as_ref());
    // Steps without a flow type are already an error, so a missing prompt is not reported in addition.
    let steps_given = values.has(Field::Steps);
    let has_steps = steps_given && !matches!(flow, Flow::Single);
    if has_steps {
        only_for_models(values);
    }
    let (output, process_output) = output(values);
    // Outer `Option`: whether it is valid. Inner: whether there is one.
    let prompt = if has_steps || (steps_given && !values.has(Field::SystemPrompt)) {
        Some(None)
    } else {
        let persona = match flow {
            Flow::Single => "the agent's persona and rules",
            Flow::Sequential { .. } | Flow::Loop { .. } => "the agent's persona and rules; or `steps`",
        };
        prompt(values, inputs.as_ref(), persona).map(Some)
    };
    let model = model(values);
    let provider = values.take(Field::Provider, OneOf(Provider::NAMES));
    let tools = tools(values);
    let sub_agents = sub_agents(values, &tools);
    let limits = limits(values);
    let approval = values.take(Field::Approval, OneOf(Approval::NAMES)).unwrap_or_default();
    let mut definition = Definition {
        name: name?,
        display_name,
        description: description?,
        inputs: inputs?,
        output,
        process_output,
        flow,
        prompt: prompt?,
        model,
        provider,
        tools,
        sub_agents,
        limits,
        approval,
        hash: Arc::from(""),
    };
    definition.hash = canonical::hash(&definition);
    Some(definition)
}

fn name(values: &Values<'_>) -> Option<String> {
    let name = |at: &At<'_>| match (AGENT.read)(at.node) {
        Some(name) if TAKEN.contains(&name.as_str()) => {
            at.invalid("another name: it is reserved for a function that ends an agent");
            None
        }
        Some(name) => Some(name),
        None => {
            at.invalid(match at.node.text().and_then(near_name) {
                Some(near) => format!("{NAME}, such as `{near}`"),
                None => NAME.to_owned(),
            });
            None
        }
    };
    values.need(Field::Name, NAME, With(NAME, name))
}

/// A valid name similar to an invalid one: its words, joined by `-`.
fn near_name(text: &str) -> Option<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let name = words.join("-").to_ascii_lowercase();
    values::is_name(&name).then_some(name)
}

fn model(values: &Values<'_>) -> ModelSettings {
    let mut model = ModelSettings::read(values);
    if let (Some(budget), Some(level)) = (model.thinking_budget, model.thinking_level) {
        let found = format!("{:?} beside a thinkingBudget of {budget}", level.as_str());
        values.place(Field::ThinkingLevel).error(found, "one of the two");
    }
    // Gemini CLI's name for the configured model.
    model.model = model.model.filter(|model| model != "inherit");
    model
}

/// `max_time_minutes` and `deadline_seconds` are one limit in two units.
fn limits(values: &Values<'_>) -> RunLimits {
    let mut limits = RunLimits::read(values);
    if let Some(minutes) = values.take(Field::MaxTimeMinutes, MINUTES) {
        let time = *limits.max_time.get_or_insert(minutes);
        if time != minutes {
            let (seconds, minutes) = (time.as_secs(), minutes.as_secs());
            let found = format!("{seconds} s, while the limit in minutes is {minutes} s");
            let place = values.place(Field::DeadlineSeconds);
            place.error(found, "one value; both are the same limit");
        }
    }
    limits
}

// The tools and the sub-agents of a definition.

const TOOL: Scalar<String> = Scalar {
    allowed: "the name of one tool: up to 128 characters without spaces or `*`, since the list names every tool",
    read: |node| {
        let is_of_name = |c: char| !c.is_whitespace() && !c.is_control() && c != '*';
        (SOME_TEXT.read)(node).filter(|name| name.len() <= 128 && name.chars().all(is_of_name))
    },
};

fn tools(values: &mut Values<'_>) -> Vec<String> {
    let written = values.given(Field::Tools).and_then(|at| at.node.text()).map(as_list);
    let allowed = written.unwrap_or_else(|| format!("a list, each item {}", TOOL.allowed));
    let mut tools: Vec<String> = Vec::new();
    for (n, at) in values.items(Field::Tools, &allowed).iter().enumerate() {
        let Some(name) = TOOL.parse(at) else { continue };
        if tools.contains(&name) {
            at.error(format!("{} a second time", quoted(&name)), "each name once");
            continue;
        }
        let path = format!("{}[{n}]", Field::Tools.portable());
        values.names.tools.push((path, name.clone()));
        tools.push(name);
    }
    tools
}

/// The list to write for tools that are given as one text, as in Claude Code.
fn as_list(text: &str) -> String {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let (bundled, others): (Vec<_>, Vec<_>) = names
        .map(|name| (name, bundled(name)))
        .partition(|(name, bundled)| bundled.is_some() || well_known_tool(name).is_none());
    let mut tools: Vec<&str> = bundled.iter().map(|(name, bundled)| bundled.unwrap_or(name)).collect();
    tools.dedup();
    let mut allowed = format!("a list, here [{}]", tools.join(", "));
    if !others.is_empty() {
        let others: Vec<_> = others.into_iter().map(|(name, _)| name).collect();
        allowed.push_str(&format!("; no bundled server does what {} does", others.join(", ")));
    }
    allowed
}

fn sub_agents(values: &mut Values<'_>, tools: &[String]) -> Vec<SubAgent> {
    let allowed = "a list of agents: names, or maps of agent and timeout";
    let mut sub_agents: Vec<SubAgent> = Vec::new();
    for (n, at) in values.items(Field::SubAgents, allowed).iter().enumerate() {
        let Some(sub_agent) = sub_agent(at) else { continue };
        let name = quoted(&sub_agent.agent);
        if sub_agents.iter().any(|other| other.agent == sub_agent.agent) {
            at.error(format!("{name} a second time"), "each agent once");
            continue;
        }
        if tools.contains(&sub_agent.agent) {
            let allowed = "each name in one of the two: an agent that `tools` names is called as a tool too";
            at.error(format!("{name}, which `tools` names too"), allowed);
        }
        let path = format!("{}[{n}]", Field::SubAgents.portable());
        values.names.agents.push((path, sub_agent.agent.clone()));
        sub_agents.push(sub_agent);
    }
    sub_agents
}

/// A name, or a map of agent and timeout.
fn sub_agent(at: &At<'_>) -> Option<SubAgent> {
    if !matches!(at.node.content, Content::Map(_)) {
        let agent = Scalar {
            allowed: "the name of an agent, or a map of agent and timeout",
            read: AGENT.read,
        };
        return agent.parse(at).map(|agent| SubAgent { agent, timeout: None });
    }
    at.record(|fields| {
        let agent = fields.need_as("agent", "the name of an agent", AGENT);
        let timeout = fields.take("timeout", SECONDS);
        Some(SubAgent { agent: agent?, timeout })
    })
}

/// Their names, and the equivalent tool of the bundled server `files`.
const FILES: &[(&str, &[&str])] = &[
    ("ls", &["ls", "LS", "list_directory", "list_dir"]),
    (
        "read_file",
        &["read_file", "Read", "ReadFile", "read_many_files", "NotebookRead"],
    ),
    ("glob", &["glob", "Glob", "FindFiles"]),
    (
        "grep",
        &["grep", "Grep", "grep_search", "search_file_content", "ripgrep"],
    ),
];

/// Their names for tools that call other agents.
const AGENTS: &[&str] = &["Task", "Agent", "delegate_to_agent"];

/// Their names for tools without an equivalent in a bundled server.
const OTHERS: &[&str] = &[
    "Bash",
    "BashOutput",
    "KillShell",
    "Write",
    "write_file",
    "Edit",
    "MultiEdit",
    "NotebookEdit",
    "replace",
    "WebFetch",
    "WebSearch",
    "save_memory",
    "TodoWrite",
    "TodoRead",
    "write_todos",
    "ask_user",
    "AskUserQuestion",
    "ExitPlanMode",
    "Skill",
    "SlashCommand",
    "activate_skill",
];

/// The bundled tool for a well-known name. `Bash(git log:*)` is a name with a condition.
pub(super) fn bundled(name: &str) -> Option<&'static str> {
    let name = without_condition(name);
    let found = FILES.iter().find(|(_, names)| names.contains(&name));
    found.map(|(tool, _)| *tool)
}

/// What to write in gavel for a tool of Gemini CLI or Claude Code that has another name here or none, as the text of
/// what is allowed.
pub fn well_known_tool(name: &str) -> Option<String> {
    if let Some(tool) = bundled(name) {
        if tool == name {
            return None;
        }
        return Some(format!(
            "`{tool}`, a tool of the bundled server files, which needs FILES_ROOT"
        ));
    }
    let name = without_condition(name);
    if AGENTS.contains(&name) {
        return Some("`sub_agents`, with the names of the agents that it may call".to_owned());
    }
    OTHERS.contains(&name).then(|| {
        format!("the name of a tool that a server in mcp.json offers: no bundled server does what {name} does")
    })
}

fn without_condition(name: &str) -> &str {
    name.split_once('(').map_or(name, |(name, _)| name).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_means_one_thing() {
        let mut all: Vec<&str> = FILES.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        all.extend(AGENTS.iter().chain(OTHERS));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(bundled("Grep"), Some("grep"));
        for own in ["add_task", "grep", "read_file"] {
            assert_eq!(well_known_tool(own), None, "{own}");
        }
        assert!(well_known_tool("Bash(git log:*)").is_some_and(|said| said.ends_with("what Bash does")));
    }
}

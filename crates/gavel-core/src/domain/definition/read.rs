//! Converts a tree of nodes of any form into a definition.

use std::cell::RefCell;
use std::sync::Arc;

use gavel_reading::{At, Content, Errors, Key, Node, Parser, ReadError, Scalar, quoted};

use super::ModelSettings;
use super::fields::{self, Field};
use super::flow::{flow, only_for_models};
use super::inputs::{inputs, output, prompt};
use super::values::{self, AGENT, BODY, Named, Part, Places, TIMEOUT, Values};
use super::{Approval, Definition, Flow, Provider, RunLimits, SubAgent, canonical};

/// Reserved names: the functions that end an agent.
const TAKEN: [&str; 2] = ["complete_task", "exit_loop"];

/// A definition with its locations, or all errors.
pub(super) type Result = std::result::Result<(Definition, Places), Refused>;

/// An invalid definition.
#[derive(Debug)]
pub(super) struct Refused {
    /// Its name, if valid: other definitions may refer to it.
    pub(super) name: Option<String>,
    pub(super) errors: Vec<ReadError>,
    /// Its references, as far as they could be read.
    pub(super) names: Box<Named>,
    pub(super) places: Places,
}

impl Refused {
    /// A text that is not a definition at all, with a single error.
    pub(super) fn whole(file: &str, line: Option<u64>, field: &str, found: String, allowed: &str) -> Self {
        let error = ReadError {
            file: file.to_owned(),
            line,
            field: field.to_owned(),
            found,
            allowed: allowed.to_owned(),
        };
        Self {
            name: None,
            errors: vec![error.clipped()],
            names: Box::default(),
            places: Places::default(),
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
pub(super) fn read(root: &Node, body: Option<&Node>, text: Text<'_>) -> Result {
    let Text { file, text, twice } = text;
    let mut errors = Errors::default();
    for key in &twice {
        errors.add(|| given_twice(key, file));
    }
    let entries = match &root.content {
        Content::Map(entries) => entries.as_slice(),
        Content::Null => &[],
        _ => {
            let (line, found) = (Some(root.line), root.found());
            return Err(Refused::whole(file, line, "the definition", found, "a map of fields"));
        }
    };
    let (mut fields, groups) = fields::sort(entries, file, &mut errors);
    if let Some(node) = body {
        let given = fields::Given {
            path: BODY.to_owned(),
            line: node.line,
            node,
        };
        fields.entry(Field::SystemPrompt).or_default().push(given);
    }
    let mut values = Values {
        file,
        text,
        fields,
        groups,
        errors: RefCell::new(errors),
        places: Places::default(),
        names: Named::default(),
    };
    let name = name(&mut values);
    let definition = definition(&mut values, name.clone());
    let mut places = values.places;
    for (field, given) in &values.fields {
        for given in given.iter().filter(|given| !given.is_null()).take(1) {
            places.insert(field.portable(), given.path.clone(), given.line);
        }
    }
    match definition {
        Some(definition) if values.errors.borrow().is_empty() => Ok((definition, places)),
        _ => Err(Refused {
            name,
            errors: values.errors.into_inner().into_vec(file),
            names: Box::new(values.names),
            places,
        }),
    }
}

/// The error for a duplicate key; the key's name is its path.
pub(super) fn given_twice(key: &Key, file: &str) -> ReadError {
    ReadError {
        file: file.to_owned(),
        line: Some(key.line),
        field: key.name.clone(),
        found: "the key a second time".to_owned(),
        allowed: "each key once".to_owned(),
    }
}

fn definition(values: &mut Values<'_>, name: Option<String>) -> Option<Definition> {
    values.text(Field::SchemaOfFile);
    values.choice(Field::Kind, &[("local", ())]);
    let display_name = values.text(Field::DisplayName);
    let description = values.text(Field::Description);
    if values.line(Field::Description).is_none() {
        values.missing(
            Field::Description,
            "what the agent does, so that a caller can decide to use it",
        );
    }
    let before = values.errors.borrow().count();
    let inputs = inputs(values);
    values.names.inputs = inputs.clone().filter(|_| values.errors.borrow().count() == before);
    let flow = flow(values, inputs.as_ref());
    // Steps without a flow type are already an error, so a missing prompt is not reported in addition.
    let steps_given = values.line(Field::Steps).is_some();
    let has_steps = steps_given && !matches!(flow, Flow::Single);
    if has_steps {
        only_for_models(values);
    }
    let (output, process_output) = output(values);
    // Outer `Option`: whether it is valid. Inner: whether there is one.
    let prompt = if has_steps || (steps_given && values.line(Field::SystemPrompt).is_none()) {
        Some(None)
    } else {
        let persona = match flow {
            Flow::Single => "the agent's persona and rules",
            Flow::Sequential { .. } | Flow::Loop { .. } => "the agent's persona and rules; or `steps`",
        };
        prompt(values, inputs.as_ref(), persona).map(Some)
    };
    let model = model(values);
    let provider = values.choice(Field::Provider, &Provider::NAMES);
    let tools = tools(values);
    let sub_agents = sub_agents(values, &tools);
    let limits = limits(values);
    let approval = values.choice(Field::Approval, &Approval::NAMES).unwrap_or_default();
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

fn name(values: &mut Values<'_>) -> Option<String> {
    if values.line(Field::Name).is_none() {
        values.missing(Field::Name, values::NAME);
    }
    let near = values.given(Field::Name).and_then(|given| match &given.node.content {
        Content::Text(text) => near_name(text),
        _ => None,
    });
    let allowed = match near {
        Some(near) => format!("{}, such as `{near}`", values::NAME),
        None => values::NAME.to_owned(),
    };
    let name = values.get(Field::Name, &allowed, |node| {
        values::text(node).filter(|text| values::is_name(text))
    })?;
    if TAKEN.contains(&name.as_str()) {
        let line = values.line(Field::Name);
        let allowed = "another name: it is reserved for a function that ends an agent";
        values.error(line, "name", &format!("{name:?}"), allowed);
        return None;
    }
    Some(name)
}

/// A valid name similar to an invalid one: its words, joined by `-`.
fn near_name(text: &str) -> Option<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let name = words.join("-").to_ascii_lowercase();
    values::is_name(&name).then_some(name)
}

fn model(values: &mut Values<'_>) -> ModelSettings {
    let mut model = ModelSettings::read(values);
    let place = values
        .given(Field::ThinkingLevel)
        .map(|given| (given.line, given.path.clone()));
    if let (Some((line, path)), Some(budget), Some(level)) = (place, model.thinking_budget, model.thinking_level) {
        let found = format!("{:?} beside a thinkingBudget of {budget}", level.as_str());
        values.error(Some(line), &path, &found, "one of the two");
    }
    // Gemini CLI's name for the configured model.
    model.model = model.model.filter(|model| model != "inherit");
    model
}

/// `max_time_minutes` and `deadline_seconds` are one limit in two units.
fn limits(values: &mut Values<'_>) -> RunLimits {
    let max_turns = values.count(Field::MaxTurns);
    let minutes = values.minutes(Field::MaxTimeMinutes);
    let seconds = values.seconds(Field::DeadlineSeconds);
    if let (Some(minutes), Some(seconds)) = (minutes, seconds)
        && minutes != seconds
    {
        let found = format!(
            "{} s, while the limit in minutes is {} s",
            seconds.as_secs(),
            minutes.as_secs()
        );
        let place = values
            .given(Field::DeadlineSeconds)
            .map(|given| (given.line, given.path.clone()));
        if let Some((line, path)) = place {
            values.error(Some(line), &path, &found, "one value; both are the same limit");
        }
    }
    RunLimits {
        max_turns,
        max_tokens: values.count(Field::MaxTokens),
        max_time: seconds.or(minutes),
    }
}

// The tools and the sub-agents of a definition.

fn tools(values: &mut Values<'_>) -> Vec<String> {
    let item = "the name of one tool: up to 128 characters without spaces or `*`, since the list names every tool";
    let written = values.given(Field::Tools).and_then(|given| match &given.node.content {
        Content::Text(text) => Some(as_list(text)),
        _ => None,
    });
    let names = values.names(Field::Tools, item, written, |name| {
        name.len() <= 128 && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '*')
    });
    for (n, name) in &names {
        let path = format!("{}[{n}]", Field::Tools.portable());
        values.names.tools.push((path, name.clone()));
    }
    names.into_iter().map(|(_, name)| name).collect()
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
    let Some(Part { path, node }) =
        values.part(Field::SubAgents, allowed, |content| matches!(content, Content::List(_)))
    else {
        return Vec::new();
    };
    let Content::List(items) = &node.content else {
        return Vec::new();
    };
    let mut sub_agents: Vec<SubAgent> = Vec::new();
    for (n, node) in items.iter().enumerate() {
        let (path, portable) = (format!("{path}[{n}]"), format!("{}[{n}]", Field::SubAgents.portable()));
        values.places.insert(portable.clone(), path.clone(), node.line);
        let Some(sub_agent) = sub_agent(values, &path, node) else {
            continue;
        };
        let name = quoted(&sub_agent.agent);
        if sub_agents.iter().any(|other| other.agent == sub_agent.agent) {
            values.error(
                Some(node.line),
                &path,
                &format!("{name} a second time"),
                "each agent once",
            );
            continue;
        }
        if tools.contains(&sub_agent.agent) {
            let allowed = "each name in one of the two: an agent that `tools` names is called as a tool too";
            values.error(
                Some(node.line),
                &path,
                &format!("{name}, which `tools` names too"),
                allowed,
            );
        }
        values.names.agents.push((portable, sub_agent.agent.clone()));
        sub_agents.push(sub_agent);
    }
    sub_agents
}

/// A name, or a map of agent and timeout.
fn sub_agent(values: &Values<'_>, path: &str, node: &Node) -> Option<SubAgent> {
    let at = At::root(&values.errors, values.file, node).named(path);
    if !matches!(node.content, Content::Map(_)) {
        let agent = Scalar {
            allowed: "the name of an agent, or a map of agent and timeout",
            read: AGENT.read,
        };
        return agent.parse(&at).map(|agent| SubAgent { agent, timeout: None });
    }
    at.record(|fields| {
        let agent = fields.need_as("agent", "the name of an agent", AGENT);
        let timeout = fields.take("timeout", TIMEOUT);
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

//! From a tree of nodes to a definition, whatever form the tree came from.

use std::sync::Arc;
use std::time::Duration;

use super::error::{DefinitionError, Mistakes};
use super::fields::{self, Field};
use super::flow::{flow, only_for_models};
use super::inputs::{inputs, output};
use super::model_settings::ModelSettings;
use super::node::{Content, Key, Node};
use super::prompt::prompt;
use super::values::{self, Named, Places, Values};
use super::{Approval, Definition, Flow, Provider, RunLimits, canonical};

/// What the system prompt is called where a form keeps it apart.
pub(super) const BODY: &str = "the text below the front matter";

/// The function by which an agent hands in its output.
const TAKEN: [&str; 2] = ["complete_task", "exit_loop"];

/// A definition with its places, or every error.
pub(super) type Result = std::result::Result<(Definition, Places), Refused>;

/// A definition that is wrong.
#[derive(Debug)]
pub(super) struct Refused {
    /// What it calls itself, if that is fit for a name: others may speak of it.
    pub(super) name: Option<String>,
    pub(super) errors: Vec<DefinitionError>,
    /// What it names all the same, and where.
    pub(super) names: Box<Named>,
    pub(super) places: Places,
}

impl Refused {
    /// What is no definition at all, for one reason.
    pub(super) fn whole(file: &str, line: Option<u64>, field: &str, found: String, allowed: &str) -> Self {
        let error = DefinitionError {
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

/// What a definition is read from.
pub(super) struct Text<'a> {
    /// As errors name it.
    pub(super) file: &'a str,
    /// All of it; empty for a form without lines.
    pub(super) text: &'a str,
    /// Keys that are given a second time, in the text's order. What they say first counts.
    pub(super) twice: Vec<Key>,
}

impl<'a> Text<'a> {
    /// Of a form without lines.
    pub(super) fn without_lines(file: &'a str) -> Self {
        Self {
            file,
            text: "",
            twice: Vec::new(),
        }
    }
}

/// Reads a definition. `body` is the system prompt of a form that keeps it apart, with its line.
pub(super) fn read(root: &Node, body: Option<&Node>, text: Text<'_>) -> Result {
    let Text { file, text, twice } = text;
    let mut errors = Mistakes::default();
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
    let mut fields = fields::sort(entries, file, &mut errors);
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
        errors,
        places: Places::default(),
        names: Named::default(),
    };
    let name = name(&mut values);
    let definition = definition(&mut values, name.clone());
    let mut places = values.places;
    for (field, given) in &values.fields {
        for given in given.iter().take(1) {
            places.insert(field.portable(), given.path.clone(), given.line);
        }
    }
    match definition {
        Some(definition) if values.errors.is_empty() => Ok((definition, places)),
        _ => Err(Refused {
            name,
            errors: values.errors.into_vec(file),
            names: Box::new(values.names),
            places,
        }),
    }
}

/// A key that its map has already, under its path.
pub(super) fn given_twice(key: &Key, file: &str) -> DefinitionError {
    DefinitionError {
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
            "what the agent does, for whoever decides to call it",
        );
    }
    let before = values.errors.count();
    let inputs = inputs(values);
    values.names.inputs = (values.errors.count() == before).then(|| inputs.clone());
    let flow = flow(values, &inputs);
    let has_steps = match flow {
        Flow::Single => false,
        Flow::Sequential { .. } => true,
        Flow::Loop { .. } => values.line(Field::Steps).is_some(),
    };
    if has_steps {
        only_for_models(values);
    }
    let (output, process_output) = output(values);
    // Outer: is it right; inner: is there one.
    let prompt = if has_steps {
        Some(None)
    } else {
        prompt(values, &inputs).map(Some)
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
        inputs,
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
    let name = values.get(Field::Name, values::NAME, |node| {
        values::text(node).filter(|text| values::is_name(text))
    })?;
    if TAKEN.contains(&name.as_str()) {
        let line = values.line(Field::Name);
        let allowed = "another name: a function by which agents end has this one";
        values.error(line, "name", &format!("{name:?}"), allowed);
        return None;
    }
    Some(name)
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
    let item = "the name of one tool: up to 128 characters without spaces or `*`, since a grant names every tool";
    let names = values.names(Field::Tools, item, |name| {
        name.len() <= 128 && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '*')
    });
    for (n, name) in &names {
        let path = format!("{}[{n}]", Field::Tools.portable());
        values.names.tools.push((path, name.clone()));
    }
    names.into_iter().map(|(_, name)| name).collect()
}

fn sub_agents(values: &mut Values<'_>, tools: &[String]) -> Vec<String> {
    let names = values.names(Field::SubAgents, "the name of an agent", values::is_name);
    for (_, name) in names.iter().filter(|(_, name)| tools.contains(name)) {
        let line = values.line(Field::SubAgents);
        let allowed = "names that are no tool's: both would be called by the one name";
        let found = format!("{name:?}, which is granted as a tool too");
        values.error(line, &Field::SubAgents.portable(), &found, allowed);
    }
    for (n, name) in &names {
        let path = format!("{}[{n}]", Field::SubAgents.portable());
        values.names.agents.push((path, name.clone()));
    }
    names.into_iter().map(|(_, name)| name).collect()
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
        max_tokens: values.count(Field::MaxTokens),
        max_time: seconds.or(minutes),
    }
}

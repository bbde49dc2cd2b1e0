//! Definitions that belong together: one directory, read and checked as a whole.
//!
//! This checks what a single definition cannot: names are unique, schemas, sub-agents and the agents of steps exist,
//! calls have no cycle, a step provides the required inputs of its agent, and limits can work. Pure: the caller loads
//! the directory and passes in its texts.

mod directory;
mod limits;
mod links;
mod schemas;
mod steps;
mod warnings;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use self::directory::{Directory, read};
use self::schemas::{output_schema, template_of_output, unknown_schema};
use self::warnings::{gemini_cli, other_model, unknown_level, unused_inputs};
use super::fields::Field;
use super::values::Places;
use super::{Definition, Flow, Form};
use gavel_reading::unknown_name_message;
use gavel_reading::{Errors, ReadError};

/// The text of a definition.
#[derive(Clone, Debug)]
pub struct Source {
    /// The name in errors.
    pub file: String,
    /// The form.
    pub form: Form,
    /// The content.
    pub bytes: Vec<u8>,
}

/// The text of a registered schema, `schemas/NAME.json`.
#[derive(Clone, Debug)]
pub struct SchemaSource {
    /// NAME.
    pub name: String,
    /// The name in errors.
    pub file: String,
    /// The content.
    pub bytes: Vec<u8>,
}

/// A valid agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The definition.
    pub definition: Arc<Definition>,
    /// The file.
    pub file: String,
    /// The form of the file.
    pub form: Form,
    /// The schema of its output, inline or registered.
    pub output_schema: Option<Arc<Value>>,
}

/// Agents by name.
pub type Agents = BTreeMap<String, Agent>;

/// The agent of this name, if it can answer the messages of a thread: its only required input is `query`, and it works
/// alone, within the few rounds of a message (R-7; threads do not plan over several agents).
///
/// # Errors
/// Why it cannot, as text.
pub fn answerer<'a>(agents: &'a Agents, name: &str) -> Result<&'a Agent, String> {
    let Some(agent) = agents.get(name) else {
        let known: Vec<_> = agents.keys().map(String::as_str).collect();
        let known = match known.is_empty() {
            true => "none".to_owned(),
            false => unknown_name_message(name, &known),
        };
        return Err(format!("there is no valid agent {name:?}; allowed: {known}"));
    };
    let definition = &agent.definition;
    let works_alone = match &definition.flow {
        Flow::Single => true,
        Flow::Sequential { steps } => steps.is_empty(),
        Flow::Loop { .. } => false,
    };
    if !works_alone || !definition.calls(|name| agents.contains_key(name)).is_empty() {
        return Err(format!(
            "the agent {name} delegates to other agents, but a single agent must answer messages; use an agent without steps, loops \
             and sub-agents"
        ));
    }
    let message = Map::from_iter([("query".to_owned(), Value::from("a message"))]);
    match definition.check_arguments(message) {
        Ok(_) => Ok(agent),
        Err(errors) => {
            let reported: Vec<_> = errors.iter().map(ToString::to_string).collect();
            Err(format!(
                "the agent {name} gets only a query here, but {}",
                reported.join("; ")
            ))
        }
    }
}

/// A name in the `tools` of a definition, valid or not, with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedTool {
    /// TOOL, SERVER__TOOL, or the name of an agent.
    pub name: String,
    /// Whether it is the name of an agent.
    pub is_agent: bool,
    /// The file.
    pub file: String,
    /// The line, if the form has lines.
    pub line: Option<u64>,
    /// The field as spelled in the file.
    pub field: String,
}

/// The result of checking definitions together.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// The tools that they list. Whether a server offers them is not checked here.
    pub tools: Vec<GrantedTool>,
    /// The valid agents, including everything that they refer to. An invalid agent also invalidates the agents that
    /// need it.
    pub agents: Agents,
    /// All errors, by file and line.
    pub errors: Vec<ReadError>,
    /// Warnings, which reject no agent, by file and line.
    pub warnings: Vec<ReadError>,
}

/// The locations of the parts of one file.
struct Place {
    file: String,
    places: Places,
}

impl Place {
    /// A tool at a portable path.
    fn granted(&self, (path, name): (String, String), directory: &Directory) -> GrantedTool {
        GrantedTool {
            is_agent: directory.is_agent(&name),
            name,
            file: self.file.clone(),
            line: self.places.line(&path),
            field: self.places.spelled(&path),
        }
    }

    /// An error at a portable path.
    fn error(&self, path: &str, found: String, allowed: String) -> ReadError {
        ReadError {
            file: self.file.clone(),
            line: self.places.line(path),
            field: self.places.spelled(path),
            found,
            allowed,
        }
    }
}

/// Parses and checks definitions together with their registered schemas.
#[must_use]
pub fn check(sources: &[Source], schemas: &[SchemaSource]) -> Checked {
    let mut checked = Checked::default();
    let directory = read(sources, schemas, &mut checked.errors);
    for agent in directory.agents.values() {
        let mut errors = Errors::default();
        let output_schema = output_schema(agent, &directory, &mut errors);
        let called = links::called(&agent.definition, &directory);
        let tools = agent.definition.tools.iter().enumerate();
        let tools = tools.map(|(n, name)| (format!("{}[{n}]", Field::Tools.portable()), name.clone()));
        checked
            .tools
            .extend(tools.map(|tool| agent.place.granted(tool, &directory)));
        links::check(&called, &agent.definition.name, &agent.place, &directory, &mut errors);
        let definition = &agent.definition;
        let unused = steps::check(
            &definition.flow,
            &definition.inputs,
            &agent.place,
            &directory,
            &mut errors,
        );
        checked.warnings.extend(unused);
        unused_inputs(agent, &mut checked.warnings);
        limits::check(agent, &directory, &mut checked.warnings);
        gemini_cli(agent, &mut checked.warnings);
        other_model(agent, &mut checked.warnings);
        unknown_level(agent, &mut checked.warnings);
        if errors.is_empty() {
            let right = Agent {
                definition: agent.definition.clone(),
                file: agent.place.file.clone(),
                form: agent.form,
                output_schema,
            };
            checked.agents.insert(agent.definition.name.clone(), right);
        }
        checked.errors.extend(errors.into_vec(&agent.place.file));
    }
    for broken in &directory.broken {
        let tools = broken.names.tools.iter().cloned();
        checked
            .tools
            .extend(tools.map(|tool| broken.place.granted(tool, &directory)));
        let own = broken.name.as_deref().unwrap_or_default();
        let called: Vec<_> = broken
            .names
            .agents
            .iter()
            .map(|(path, name)| (path.clone(), name.as_str()))
            .collect();
        let mut errors = Errors::default();
        links::check(&called, own, &broken.place, &directory, &mut errors);
        if let Some(name) = &broken.names.schema {
            // An invalid registered schema already has an error.
            let error = unknown_schema(name, &broken.place, &directory);
            if let Some(error) = error.filter(|_| !directory.broken_schemas.contains_key(name)) {
                errors.push(error);
            }
            if let (Some((output, template)), Some(schema)) = (&broken.names.process_output, directory.schema(name)) {
                template_of_output(template, output, schema, &broken.place, &mut errors);
            }
        }
        if let Some(inputs) = &broken.names.inputs {
            let unused = steps::check(&broken.names.flow, inputs, &broken.place, &directory, &mut errors);
            checked.warnings.extend(unused);
        }
        checked.errors.extend(errors.into_vec(&broken.place.file));
    }
    links::cycles(&directory, &mut checked.errors, &mut checked.agents);
    links::drop_those_without_all(&directory, &mut checked.agents);
    for list in [&mut checked.errors, &mut checked.warnings] {
        list.sort_by(|a, b| (&a.file, a.is_rest(), a.line).cmp(&(&b.file, b.is_rest(), b.line)));
    }
    checked
}

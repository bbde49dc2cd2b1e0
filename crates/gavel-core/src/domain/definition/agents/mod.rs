//! Definitions that belong together: one directory, read and checked as a whole.
//!
//! This checks what a single definition cannot: names are unique, schemas, sub-agents and the agents of steps exist,
//! calls have no cycle, a step provides the required inputs of its agent, and limits can work. Pure: the caller loads
//! the directory and passes in its texts.

mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use gavel_reading::{Errors, ReadError, json, quoted, read_file, unknown_name_message};
use serde_json::{Map, Value};
use steps::called;

use super::fields::Field;
use super::inputs::{known_in_output, schema_errors, unknown_in_output};
use super::read::Read;
use super::values::{self, Named, Places};
use super::{Definition, Flow, Form, Input, OutputSchema, form};
use crate::domain::family::Family;
use crate::domain::templates::Template;

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
pub fn check(sources: &[Source], schemas: &[SchemaSource]) -> Checked {
    let mut checked = Checked::default();
    let directory = read(sources, schemas, &mut checked.errors);
    for entry in &directory.entries {
        let (names, place) = (&entry.names, &entry.place);
        let mut errors = Errors::default();
        let tools = names.tools.iter().cloned();
        checked.tools.extend(tools.map(|tool| place.granted(tool, &directory)));
        steps::check_calls(entry, &directory, &mut errors);
        if let Some(name) = &names.schema {
            // An invalid registered schema already has an error.
            let is_known = entry.definition.is_none() && directory.broken_schemas.contains_key(name);
            if let Some(error) = unknown_schema(name, place, &directory).filter(|_| !is_known) {
                errors.push(error);
            }
            if let (Some((output, template)), Some(schema)) = (&names.process_output, directory.schema(name)) {
                template_of_output(template, output, schema, place, &mut errors);
            }
        }
        if let Some(inputs) = &names.inputs {
            let unused = steps::check(&names.flow, inputs, place, &directory, &mut errors);
            checked.warnings.extend(unused);
        }
        if let Some(definition) = &entry.definition {
            unused_inputs(definition, place, &mut checked.warnings);
            check_limits(entry, definition, &directory, &mut checked.warnings);
            gemini_cli(place, &mut checked.warnings);
            other_model(definition, place, &mut checked.warnings);
            unknown_level(definition, place, &mut checked.warnings);
            if errors.is_empty() {
                let right = Agent {
                    definition: definition.clone(),
                    file: place.file.clone(),
                    form: entry.form,
                    output_schema: output_schema(definition, &directory),
                };
                checked.agents.insert(definition.name.clone(), right);
            }
        }
        checked.errors.extend(errors.into_vec(&place.file));
    }
    steps::cycles(&directory, &mut checked.errors, &mut checked.agents);
    steps::drop_those_without_all(&directory, &mut checked.agents);
    for list in [&mut checked.errors, &mut checked.warnings] {
        list.sort_by(|a, b| (&a.file, a.is_rest(), a.line).cmp(&(&b.file, b.is_rest(), b.line)));
    }
    checked
}

// Warnings about limits that cannot have the effect they suggest. They reject no agent.

/// The most steps of one run, over all its resumes.
const MOST_STEPS: u32 = 500;

/// Checks one agent's limits, and those of the agents that it calls.
fn check_limits(entry: &Entry, definition: &Definition, directory: &Directory, warnings: &mut Vec<ReadError>) {
    let place = &entry.place;
    let turns = Field::MaxTurns.portable();
    match definition.limits.max_turns {
        Some(most) if most > MOST_STEPS => {
            let allowed = format!("at most {MOST_STEPS}: a run ends there over all its resumes");
            warnings.push(place.error(&turns, most.to_string(), allowed));
        }
        Some(1) if !definition.tools.is_empty() || !definition.sub_agents.is_empty() => {
            let found = "1, so the model never sees the result of a tool".to_owned();
            warnings.push(place.error(&turns, found, "2 or more for an agent with tools".to_owned()));
        }
        _ => {}
    }
    let (thinking, most) = (definition.model.thinking_budget, definition.model.max_output_tokens);
    if let (Some(thinking), Some(most)) = (thinking, most)
        && u32::try_from(thinking).is_ok_and(|thinking| thinking >= most)
    {
        let found = format!("{thinking}, which leaves nothing of {most} output tokens for an answer");
        let allowed = "less than maxOutputTokens, which counts thinking too".to_owned();
        warnings.push(place.error(&Field::ThinkingBudget.portable(), found, allowed));
    }
    let Some(whole) = definition.limits.max_time else {
        return;
    };
    let steps = definition
        .flow
        .steps()
        .iter()
        .map(|step| (step.agent.as_str(), step.timeout));
    let given: Vec<_> = definition
        .sub_agents
        .iter()
        .map(|sub_agent| (sub_agent.agent.as_str(), sub_agent.timeout))
        .chain(steps)
        .collect();
    for (path, name) in called(&entry.names, directory) {
        let own = || directory.valid(name)?.limits.max_time;
        let given = given
            .iter()
            .find(|(agent, _)| *agent == name)
            .and_then(|(_, timeout)| *timeout);
        let part = given.or_else(own);
        if let Some(part) = part.filter(|part| *part > whole) {
            let found = format!(
                "{name} with {} s, in an agent with {} s",
                part.as_secs(),
                whole.as_secs()
            );
            let allowed = "no more time than its caller has: it is stopped together with its caller".to_owned();
            warnings.push(place.error(path, found, allowed));
        }
    }
}

// The schema of an agent's output.

/// The schema of an agent's output.
fn output_schema(definition: &Definition, directory: &Directory) -> Option<Arc<Value>> {
    match &definition.output.as_ref()?.schema {
        OutputSchema::Inline(schema) => Some(Arc::new(schema.clone())),
        OutputSchema::Named(name) => directory.schemas.get(name).cloned(),
    }
}

/// Each placeholder of `processOutput` must name the output or one of its properties.
fn template_of_output(template: &str, output: &str, schema: &Value, place: &Place, errors: &mut Errors) {
    let (template, _) = Template::read(template);
    let path = Field::ProcessOutput.portable();
    for name in unknown_in_output(&template, output, schema) {
        let found = format!("the placeholder ${{{name}}}");
        errors.add(|| place.error(&path, found, known_in_output(name, output, schema)));
    }
}

/// The error for a registered schema that does not exist or is invalid.
fn unknown_schema(name: &str, place: &Place, directory: &Directory) -> Option<ReadError> {
    if directory.schemas.contains_key(name) {
        return None;
    }
    let known: Vec<_> = directory.schemas.keys().map(String::as_str).collect();
    let (found, allowed) = if directory.broken_schemas.contains_key(name) {
        (
            format!("{}, which is invalid", quoted(name)),
            "a valid schema".to_owned(),
        )
    } else if known.is_empty() {
        let allowed = format!("a JSON Schema, or the name of one: write it to schemas/{name}.json");
        (quoted(name), allowed)
    } else {
        (
            quoted(name),
            format!("a registered schema: {}", unknown_name_message(name, &known)),
        )
    };
    Some(place.error(&Field::OutputSchema.portable(), found, allowed))
}

/// Warns about an input that neither prompt uses, so that it never reaches the model.
fn unused_inputs(definition: &Definition, place: &Place, warnings: &mut Vec<ReadError>) {
    let Some(prompt) = &definition.prompt else { return };
    let templates = [&prompt.query, &prompt.system_prompt].map(|text| Template::read(text).0);
    let named: BTreeSet<&str> = templates.iter().flat_map(Template::names).collect();
    for input in definition.inputs.keys().filter(|input| !named.contains(input.as_str())) {
        let path = format!("{}.{input}", Field::Inputs.portable());
        let path = match place.places.has(&path) {
            true => path,
            false => Field::Query.portable(),
        };
        let found = format!(
            "the input {}, which no prompt names, so no model reads it",
            quoted(input)
        );
        let allowed = format!("${{{input}}} in the query or the system prompt");
        warnings.push(place.error(&path, found, allowed));
    }
}

/// Warns about a model that is not Google's.
fn other_model(definition: &Definition, place: &Place, warnings: &mut Vec<ReadError>) {
    const OTHERS: [&str; 7] = ["claude", "sonnet", "opus", "haiku", "gpt", "o3", "o4"];
    let model = definition.model.model.as_deref();
    if let Some(model) = model.filter(|model| OTHERS.iter().any(|other| model.to_ascii_lowercase().starts_with(other)))
    {
        let found = format!("{}, which is not a Google model", quoted(model));
        let allowed = "a model of Gemini, or no model: the configured one".to_owned();
        warnings.push(place.error(&Field::Model.portable(), found, allowed));
    }
}

/// Warns about a level that the definition's own model does not know.
fn unknown_level(definition: &Definition, place: &Place, warnings: &mut Vec<ReadError>) {
    let settings = &definition.model;
    let (Some(model), Some(level)) = (&settings.model, settings.thinking_level) else {
        return;
    };
    if let Some(allowed) = Family::of(model).lacks(level) {
        let found = format!(
            "{}, which {} does not know, so the nearest level is sent",
            quoted(level.as_str()),
            quoted(model)
        );
        warnings.push(place.error(&Field::ThinkingLevel.portable(), found, allowed));
    }
}

/// Warns if an agent file of Gemini CLI means something else in gavel.
fn gemini_cli(place: &Place, warnings: &mut Vec<ReadError>) {
    let is_theirs = place.file.replace('\\', "/").contains(".gemini/agents/");
    if is_theirs && !place.places.has(&Field::Tools.portable()) {
        let found = "nothing, which allows every tool in Gemini CLI and none here".to_owned();
        let allowed = "the list of tools that it may use".to_owned();
        warnings.push(place.error(&Field::Tools.portable(), found, allowed));
    }
}

/// A definition, or what could be read of an invalid one.
struct Entry {
    /// Its name, if it could be read.
    name: Option<String>,
    names: Named,
    place: Place,
    /// If it is valid by itself.
    definition: Option<Arc<Definition>>,
    form: Form,
}

/// Everything that was read, for the checks.
#[derive(Default)]
struct Directory {
    /// The valid definitions, by name, and then the invalid ones: other definitions may refer to them, and their own
    /// references are checked.
    entries: Vec<Entry>,
    /// Their indexes; of several with the same name, the first.
    by_name: BTreeMap<String, usize>,
    /// The likely names of those without a name: their file names. Errors never suggest them.
    likely_names: BTreeSet<String>,
    schemas: BTreeMap<String, Arc<Value>>,
    /// Registered schemas that are invalid, if they are JSON.
    broken_schemas: BTreeMap<String, Option<Value>>,
}

impl Directory {
    fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(*self.by_name.get(name)?)
    }

    /// A definition that is valid by itself.
    fn valid(&self, name: &str) -> Option<&Definition> {
        self.entry(name)?.definition.as_deref()
    }

    /// The inputs of an agent, valid or not, if known.
    fn takes(&self, name: &str) -> Option<&BTreeMap<String, Input>> {
        self.entry(name)?.names.inputs.as_ref()
    }

    /// Whether a name in `tools` is that of an agent with a readable name, valid or not.
    fn is_agent(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Whether an agent exists, valid or not.
    fn has(&self, name: &str) -> bool {
        self.is_agent(name) || self.likely_names.contains(name)
    }

    /// A registered schema, valid or not.
    fn schema(&self, name: &str) -> Option<&Value> {
        let right = self.schemas.get(name).map(|schema| &**schema);
        right.or_else(|| self.broken_schemas.get(name)?.as_ref())
    }
}

fn read(sources: &[Source], schemas: &[SchemaSource], errors: &mut Vec<ReadError>) -> Directory {
    let mut directory = Directory::default();
    for source in schemas {
        match named_schema(source) {
            Ok(schema) => {
                directory.schemas.insert(source.name.clone(), Arc::new(schema));
            }
            Err((invalid, schema)) => {
                errors.extend(invalid);
                directory.broken_schemas.insert(source.name.clone(), schema);
            }
        }
    }
    for source in sources {
        let read = form::read(&source.bytes, source.form, &source.file);
        let file = source.file.clone();
        let place = Place {
            file,
            places: read.places,
        };
        let definition = match read.definition {
            Ok(definition) => Some(Arc::new(definition)),
            Err(invalid) => {
                errors.extend(invalid);
                if read.name.is_none() {
                    directory.likely_names.extend(stem(&source.file));
                }
                None
            }
        };
        let is_other = |other: &&Entry| other.definition.is_some() && other.name == read.name;
        if let (Some(_), Some(other)) = (&definition, directory.entries.iter().find(is_other)) {
            let path = Field::Name.portable();
            let named = match other.place.places.line(&path) {
                Some(line) => format!("{}:{line}", other.place.file),
                None => other.place.file.clone(),
            };
            let name = quoted(read.name.as_deref().unwrap_or_default());
            let found = format!("{name}, as {named} is named");
            errors.push(place.error(&path, found, "a name that no other agent has".to_owned()));
            continue;
        }
        directory.entries.push(Entry {
            name: read.name,
            names: read.names,
            place,
            definition,
            form: source.form,
        });
    }
    let entries = &mut directory.entries;
    entries.sort_by_cached_key(|entry| match &entry.definition {
        Some(definition) => (false, definition.name.clone()),
        None => (true, String::new()),
    });
    for (at, entry) in entries.iter().enumerate() {
        if let Some(name) = &entry.name {
            directory.by_name.entry(name.clone()).or_insert(at);
        }
    }
    directory
}

/// The file name without its extension: the likely name of a definition that cannot be read at all.
fn stem(file: &str) -> Option<String> {
    Some(Path::new(file).file_stem()?.to_str()?.to_owned())
}

/// Parses a registered schema, which is named by its file. An invalid one is returned if it is JSON.
fn named_schema(source: &SchemaSource) -> Result<Value, (Vec<ReadError>, Option<Value>)> {
    let fail = |found: String, allowed: &str| {
        let refused = Read::refused(&source.file, None, "the schema", found, allowed);
        Err((refused.definition.err().unwrap_or_default(), None))
    };
    if !values::is_name(&source.name) {
        return fail(format!("a file of the name {}", quoted(&source.name)), values::NAME);
    }
    if source.bytes.len() > form::MAX_BYTES {
        return fail(format!("{} bytes", source.bytes.len()), "at most 1 MiB");
    }
    let Ok(text) = std::str::from_utf8(&source.bytes) else {
        return fail("bytes that are not UTF-8".to_owned(), "JSON in UTF-8");
    };
    let parsed = json::parse(text.trim_start_matches('\u{feff}'));
    let schema = parsed.as_ref().ok().map(|(node, _)| node.to_json());
    let checked = read_file(&source.file, "JSON", parsed, |at| {
        schema_errors(&at.clone().named("the schema"));
        Some(at.node.to_json())
    });
    checked.map_err(|errors| (errors, schema))
}

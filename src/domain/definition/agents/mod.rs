//! Definitions that belong together: one directory, read and checked as a whole.
//!
//! This checks what a single definition cannot: names are unique, schemas, sub-agents and the agents of steps exist,
//! calls have no cycle, a step provides the required inputs of its agent, and limits can work. Pure: the caller loads
//! the directory and passes in its texts.

mod limits;
mod links;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::{DefinitionError, DefinitionErrors};
use super::fields::Field;
use super::inputs::{known_in_output, unknown_in_output};
use super::node::quoted;
use super::read::{Refused, given_twice};
use super::unknown::unknown_name_message;
use super::values::{Named, Places};
use super::{Definition, Flow, Form, Input, OutputSchema, form, json, schema, values};
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
        return Err(format!("there is no agent {name} that is valid; allowed: {known}"));
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
            let told: Vec<_> = errors.iter().map(ToString::to_string).collect();
            Err(format!(
                "the agent {name} gets only a query here, but {}",
                told.join("; ")
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
    /// The tools that they grant. Whether a server offers them is not checked here.
    pub tools: Vec<GrantedTool>,
    /// The valid agents, including everything that they refer to. An invalid agent also invalidates the agents that
    /// need it.
    pub agents: Agents,
    /// All errors, by file and line.
    pub errors: Vec<DefinitionError>,
    /// Warnings, which reject no agent, by file and line.
    pub warnings: Vec<DefinitionError>,
}

/// The locations of the parts of one file.
struct Place {
    file: String,
    places: Places,
}

impl Place {
    /// A tool at a portable path.
    fn granted(&self, (path, name): (String, String), folder: &Folder) -> GrantedTool {
        GrantedTool {
            is_agent: folder.is_agent(&name),
            name,
            file: self.file.clone(),
            line: self.places.line(&path),
            field: self.places.spelled(&path),
        }
    }

    /// An error at a portable path.
    fn error(&self, path: &str, found: String, allowed: String) -> DefinitionError {
        DefinitionError {
            file: self.file.clone(),
            line: self.places.line(path),
            field: self.places.spelled(path),
            found,
            allowed,
        }
    }
}

/// A definition that is valid by itself.
struct Read {
    definition: Arc<Definition>,
    place: Place,
    form: Form,
}

/// An invalid definition, with the references that could be read.
struct Broken {
    /// Its name, if it could be read.
    name: Option<String>,
    names: Named,
    place: Place,
}

/// Everything that was read, for the checks.
struct Folder {
    agents: BTreeMap<String, Read>,
    /// Invalid definitions: other definitions may refer to them, and their own references are checked.
    broken: Vec<Broken>,
    /// Their names, with their indexes in `broken`; of several with the same name, the first.
    broken_names: BTreeMap<String, usize>,
    /// The likely names of those without a name: their file names. Errors never suggest them.
    likely_names: BTreeSet<String>,
    schemas: BTreeMap<String, Arc<Value>>,
    /// Registered schemas that are invalid, if they are JSON.
    broken_schemas: BTreeMap<String, Option<Value>>,
}

impl Folder {
    /// The inputs of an agent, valid or not, if known.
    fn takes(&self, name: &str) -> Option<&BTreeMap<String, Input>> {
        match self.agents.get(name) {
            Some(agent) => Some(&agent.definition.inputs),
            None => self.broken[*self.broken_names.get(name)?].names.inputs.as_ref(),
        }
    }

    /// Whether a name in `tools` is that of an agent with a readable name, valid or not.
    fn is_agent(&self, name: &str) -> bool {
        self.agents.contains_key(name) || self.broken_names.contains_key(name)
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

/// Parses and checks definitions together with their registered schemas.
#[must_use]
pub fn check(sources: &[Source], schemas: &[SchemaSource]) -> Checked {
    let mut checked = Checked::default();
    let folder = read(sources, schemas, &mut checked.errors);
    for agent in folder.agents.values() {
        let mut errors = DefinitionErrors::default();
        let output_schema = output_schema(agent, &folder, &mut errors);
        let called = links::called(&agent.definition, &folder);
        let tools = agent.definition.tools.iter().enumerate();
        let tools = tools.map(|(n, name)| (format!("{}[{n}]", Field::Tools.portable()), name.clone()));
        checked
            .tools
            .extend(tools.map(|tool| agent.place.granted(tool, &folder)));
        links::check(&called, &agent.definition.name, &agent.place, &folder, &mut errors);
        let definition = &agent.definition;
        let unused = steps::check(&definition.flow, &definition.inputs, &agent.place, &folder, &mut errors);
        checked.warnings.extend(unused);
        unnamed_inputs(agent, &mut checked.warnings);
        limits::check(agent, &folder, &mut checked.warnings);
        gemini_cli(agent, &mut checked.warnings);
        other_model(agent, &mut checked.warnings);
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
    for broken in &folder.broken {
        let tools = broken.names.tools.iter().cloned();
        checked
            .tools
            .extend(tools.map(|tool| broken.place.granted(tool, &folder)));
        let own = broken.name.as_deref().unwrap_or_default();
        let called: Vec<_> = broken
            .names
            .agents
            .iter()
            .map(|(path, name)| (path.clone(), name.as_str()))
            .collect();
        let mut errors = DefinitionErrors::default();
        links::check(&called, own, &broken.place, &folder, &mut errors);
        if let Some(name) = &broken.names.schema {
            // An invalid registered schema already has an error.
            let error = unknown_schema(name, &broken.place, &folder);
            if let Some(error) = error.filter(|_| !folder.broken_schemas.contains_key(name)) {
                errors.push(error);
            }
            if let (Some((output, template)), Some(schema)) = (&broken.names.process_output, folder.schema(name)) {
                template_of_output(template, output, schema, &broken.place, &mut errors);
            }
        }
        if let Some(inputs) = &broken.names.inputs {
            let unused = steps::check(&broken.names.flow, inputs, &broken.place, &folder, &mut errors);
            checked.warnings.extend(unused);
        }
        checked.errors.extend(errors.into_vec(&broken.place.file));
    }
    links::cycles(&folder, &mut checked.errors, &mut checked.agents);
    links::drop_those_without_all(&folder, &mut checked.agents);
    for list in [&mut checked.errors, &mut checked.warnings] {
        list.sort_by(|a, b| (&a.file, a.is_rest(), a.line).cmp(&(&b.file, b.is_rest(), b.line)));
    }
    checked
}

fn read(sources: &[Source], schemas: &[SchemaSource], errors: &mut Vec<DefinitionError>) -> Folder {
    let mut folder = Folder {
        agents: BTreeMap::new(),
        broken: Vec::new(),
        broken_names: BTreeMap::new(),
        likely_names: BTreeSet::new(),
        schemas: BTreeMap::new(),
        broken_schemas: BTreeMap::new(),
    };
    for source in schemas {
        match named_schema(source) {
            Ok(schema) => {
                folder.schemas.insert(source.name.clone(), Arc::new(schema));
            }
            Err((wrong, schema)) => {
                errors.extend(wrong);
                folder.broken_schemas.insert(source.name.clone(), schema);
            }
        }
    }
    for source in sources {
        let (definition, places) = match form::read(&source.bytes, source.form, &source.file) {
            Ok(read) => read,
            Err(refused) => {
                errors.extend(refused.errors);
                let file = source.file.clone();
                match &refused.name {
                    Some(name) => {
                        let place = folder.broken.len();
                        folder.broken_names.entry(name.clone()).or_insert(place);
                    }
                    None => folder.likely_names.extend(stem(&file)),
                }
                folder.broken.push(Broken {
                    name: refused.name,
                    names: *refused.names,
                    place: Place {
                        file,
                        places: refused.places,
                    },
                });
                continue;
            }
        };
        let name = definition.name.clone();
        let place = Place {
            file: source.file.clone(),
            places,
        };
        let read = Read {
            definition: Arc::new(definition),
            place,
            form: source.form,
        };
        if let Some(other) = folder.agents.get(&name) {
            let path = Field::Name.portable();
            let place = match other.place.places.line(&path) {
                Some(line) => format!("{}:{line}", other.place.file),
                None => other.place.file.clone(),
            };
            let found = format!("{}, as {place} is named", quoted(&name));
            errors.push(
                read.place
                    .error(&path, found, "a name that no other agent has".to_owned()),
            );
        } else {
            folder.agents.insert(name, read);
        }
    }
    folder
}

/// The file name without its extension: the likely name of a definition that cannot be read at all.
fn stem(file: &str) -> Option<String> {
    Some(Path::new(file).file_stem()?.to_str()?.to_owned())
}

/// Parses a registered schema, which is named by its file. An invalid one is returned if it is JSON.
fn named_schema(source: &SchemaSource) -> Result<Value, (Vec<DefinitionError>, Option<Value>)> {
    let fail = |line, found: String, allowed: &str| {
        let refused = Refused::whole(&source.file, line, "the schema", found, allowed);
        Err((refused.errors, None))
    };
    if !values::is_name(&source.name) {
        return fail(
            None,
            format!("a file of the name {}", quoted(&source.name)),
            values::NAME,
        );
    }
    if source.bytes.len() > form::MAX_BYTES {
        return fail(None, format!("{} bytes", source.bytes.len()), "at most 1 MiB");
    }
    let Ok(text) = std::str::from_utf8(&source.bytes) else {
        return fail(None, "bytes that are not UTF-8".to_owned(), "JSON in UTF-8");
    };
    let (node, twice) = match json::parse(text.trim_start_matches('\u{feff}')) {
        Ok(node) => node,
        Err(error) => {
            let (found, allowed) = error.describe("JSON");
            return fail(error.line, found, allowed);
        }
    };
    let mut errors = DefinitionErrors::default();
    for key in &twice {
        errors.add(|| given_twice(key, &source.file));
    }
    for error in schema::errors(&node, &source.file, "the schema") {
        errors.push(error);
    }
    if errors.is_empty() {
        Ok(node.to_json())
    } else {
        Err((errors.into_vec(&source.file), Some(node.to_json())))
    }
}

/// The schema of an agent's output. Also checks what `processOutput` refers to in it.
fn output_schema(agent: &Read, folder: &Folder, errors: &mut DefinitionErrors) -> Option<Arc<Value>> {
    let output = agent.definition.output.as_ref()?;
    let name = match &output.schema {
        OutputSchema::Inline(schema) => return Some(Arc::new(schema.clone())),
        OutputSchema::Named(name) => name,
    };
    if let Some(error) = unknown_schema(name, &agent.place, folder) {
        errors.push(error);
    }
    if let (Some(template), Some(schema)) = (&agent.definition.process_output, folder.schema(name)) {
        template_of_output(template, &output.name, schema, &agent.place, errors);
    }
    folder.schemas.get(name).cloned()
}

/// Each placeholder of `processOutput` must name the output or one of its properties.
fn template_of_output(template: &str, output: &str, schema: &Value, place: &Place, errors: &mut DefinitionErrors) {
    let (template, _) = Template::read(template);
    let path = Field::ProcessOutput.portable();
    for name in unknown_in_output(&template, output, schema) {
        let found = format!("the placeholder ${{{name}}}");
        errors.add(|| place.error(&path, found, known_in_output(name, output, schema)));
    }
}

/// The error for a registered schema that does not exist or is invalid.
fn unknown_schema(name: &str, place: &Place, folder: &Folder) -> Option<DefinitionError> {
    if folder.schemas.contains_key(name) {
        return None;
    }
    let known: Vec<_> = folder.schemas.keys().map(String::as_str).collect();
    let (found, allowed) = if folder.broken_schemas.contains_key(name) {
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
fn unnamed_inputs(agent: &Read, warnings: &mut Vec<DefinitionError>) {
    let Some(prompt) = &agent.definition.prompt else { return };
    let templates = [&prompt.query, &prompt.system_prompt].map(|text| Template::read(text).0);
    let named: BTreeSet<&str> = templates.iter().flat_map(Template::names).collect();
    for input in agent
        .definition
        .inputs
        .keys()
        .filter(|input| !named.contains(input.as_str()))
    {
        let path = format!("{}.{input}", Field::Inputs.portable());
        let path = match agent.place.places.has(&path) {
            true => path,
            false => Field::Query.portable(),
        };
        let found = format!(
            "the input {}, which no prompt names, so no model reads it",
            quoted(input)
        );
        let allowed = format!("${{{input}}} in the query or the system prompt");
        warnings.push(agent.place.error(&path, found, allowed));
    }
}

/// Warns about a model that is not Google's.
fn other_model(agent: &Read, warnings: &mut Vec<DefinitionError>) {
    const OTHERS: [&str; 7] = ["claude", "sonnet", "opus", "haiku", "gpt", "o3", "o4"];
    let model = agent.definition.model.model.as_deref();
    if let Some(model) = model.filter(|model| OTHERS.iter().any(|other| model.to_ascii_lowercase().starts_with(other)))
    {
        let found = format!("{}, which is not a Google model", quoted(model));
        let allowed = "a model of Gemini, or no model: the configured one".to_owned();
        warnings.push(agent.place.error(&Field::Model.portable(), found, allowed));
    }
}

/// Warns if an agent file of Gemini CLI means something else in gavel.
fn gemini_cli(agent: &Read, warnings: &mut Vec<DefinitionError>) {
    let is_theirs = agent.place.file.replace('\\', "/").contains(".gemini/agents/");
    if is_theirs && !agent.place.places.has(&Field::Tools.portable()) {
        let found = "nothing, which grants every tool in Gemini CLI and none here".to_owned();
        let allowed = "the list of tools that it is granted".to_owned();
        warnings.push(agent.place.error(&Field::Tools.portable(), found, allowed));
    }
}

//! Definitions that belong together: one folder, read and checked as a whole.
//!
//! What one definition cannot know of itself is checked here: that names are unique, that schemas, sub-agents and the agents
//! of steps exist and lead nowhere back, that a step gives its agent what that needs, and that limits can work. Pure:
//! whoever loads a folder hands in its texts.

mod limits;
mod links;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::error::{DefinitionError, Mistakes};
use super::fields::{Field, unknown_name_message};
use super::inputs::{known_in_output, unknown_in_output};
use super::node::quoted;
use super::read::Refused;
use super::values::{Named, Places};
use super::{Definition, Form, OutputSchema, form, json, schema, values};
use crate::domain::templates::Template;

/// The text of a definition.
#[derive(Clone, Debug)]
pub struct Source {
    /// As errors name it.
    pub file: String,
    /// How it is written.
    pub form: Form,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// The text of a registered schema, `schemas/NAME.json`.
#[derive(Clone, Debug)]
pub struct SchemaSource {
    /// NAME.
    pub name: String,
    /// As errors name it.
    pub file: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// An agent that is right.
#[derive(Clone, Debug)]
pub struct Agent {
    /// What it is.
    pub definition: Arc<Definition>,
    /// Where it stands.
    pub file: String,
    /// How it is written there.
    pub form: Form,
    /// The schema of its output, wherever that stands.
    pub output_schema: Option<Arc<Value>>,
}

/// Agents by name.
pub type Agents = BTreeMap<String, Agent>;

/// A tool that a definition grants, right or wrong, and where it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedTool {
    /// TOOL, or SERVER__TOOL.
    pub name: String,
    /// The file.
    pub file: String,
    /// The line, where the form has lines.
    pub line: Option<u64>,
    /// The field, as it is spelled there.
    pub field: String,
}

/// What came of checking definitions together.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// The tools they grant. Whether a server offers them nobody here knows.
    pub tools: Vec<GrantedTool>,
    /// Those that are right, also beside what they are linked to. A wrong one takes those with it that need it.
    pub agents: Agents,
    /// Every mistake, by file and line.
    pub errors: Vec<DefinitionError>,
    /// What is odd and stops nothing, by file and line.
    pub warnings: Vec<DefinitionError>,
}

/// Where the parts of one file stand.
struct Place {
    file: String,
    places: Places,
}

impl Place {
    /// A tool at a portable path.
    fn granted(&self, (path, name): (String, String)) -> GrantedTool {
        GrantedTool {
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

/// A definition that is right in itself.
struct Read {
    definition: Arc<Definition>,
    place: Place,
    form: Form,
}

/// A definition that is wrong, with what it names all the same.
struct Broken {
    name: Option<String>,
    names: Named,
    place: Place,
}

/// All that was read, for the checks.
struct Folder {
    agents: BTreeMap<String, Read>,
    /// What is wrong: not unknown to others, and what it names itself is looked for.
    broken: Vec<Broken>,
    /// What those are called.
    broken_names: BTreeSet<String>,
    schemas: BTreeMap<String, Arc<Value>>,
    /// Names of schemas that are there and wrong.
    broken_schemas: BTreeSet<String>,
}

/// Reads and checks definitions together with the schemas they may name.
#[must_use]
pub fn check(sources: &[Source], schemas: &[SchemaSource]) -> Checked {
    let mut checked = Checked::default();
    let folder = read(sources, schemas, &mut checked.errors);
    for agent in folder.agents.values() {
        let mut errors = Mistakes::default();
        let output_schema = output_schema(agent, &folder, &mut errors);
        let called = links::called(&agent.definition);
        let tools = agent.definition.tools.iter().enumerate();
        let tools = tools.map(|(n, name)| (format!("{}[{n}]", Field::Tools.portable()), name.clone()));
        checked.tools.extend(tools.map(|tool| agent.place.granted(tool)));
        links::check(&called, &agent.definition.name, &agent.place, &folder, &mut errors);
        steps::check(agent, &folder, &mut errors);
        limits::check(agent, &folder, &mut checked.warnings);
        gemini_cli(agent, &mut checked.warnings);
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
        checked.tools.extend(tools.map(|tool| broken.place.granted(tool)));
        let own = broken.name.as_deref().unwrap_or_default();
        let called: Vec<_> = broken
            .names
            .agents
            .iter()
            .map(|(path, name)| (path.clone(), name.as_str()))
            .collect();
        let mut errors = Mistakes::default();
        links::check(&called, own, &broken.place, &folder, &mut errors);
        if let Some(name) = &broken.names.schema {
            // One that is there and wrong has been told of.
            let error = unknown_schema(name, &broken.place, &folder);
            if let Some(error) = error.filter(|_| !folder.broken_schemas.contains(name)) {
                errors.push(error);
            }
        }
        checked.errors.extend(errors.into_vec(&broken.place.file));
    }
    links::cycles(&folder, &mut checked.errors, &mut checked.agents);
    links::drop_those_without_all(&mut checked.agents);
    for list in [&mut checked.errors, &mut checked.warnings] {
        list.sort_by(|a, b| (&a.file, a.is_rest(), a.line).cmp(&(&b.file, b.is_rest(), b.line)));
    }
    checked
}

fn read(sources: &[Source], schemas: &[SchemaSource], errors: &mut Vec<DefinitionError>) -> Folder {
    let mut folder = Folder {
        agents: BTreeMap::new(),
        broken: Vec::new(),
        broken_names: BTreeSet::new(),
        schemas: BTreeMap::new(),
        broken_schemas: BTreeSet::new(),
    };
    for source in schemas {
        match named_schema(source) {
            Ok(schema) => {
                folder.schemas.insert(source.name.clone(), Arc::new(schema));
            }
            Err(wrong) => {
                errors.extend(wrong);
                folder.broken_schemas.insert(source.name.clone());
            }
        }
    }
    for source in sources {
        let (definition, places) = match form::read(&source.bytes, source.form, &source.file) {
            Ok(read) => read,
            Err(refused) => {
                errors.extend(refused.errors);
                let file = source.file.clone();
                let name = refused.name.or_else(|| stem(&file));
                folder.broken_names.extend(name.clone());
                folder.broken.push(Broken {
                    name,
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

/// The file's name without its ending: what a definition that cannot be read at all is most likely called.
fn stem(file: &str) -> Option<String> {
    Some(Path::new(file).file_stem()?.to_str()?.to_owned())
}

/// A registered schema: its file's name is its name.
fn named_schema(source: &SchemaSource) -> Result<Value, Vec<DefinitionError>> {
    let fail = |line, found: String, allowed: &str| {
        Err(Refused::whole(&source.file, line, "the schema", found, allowed).errors)
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
        return fail(None, "bytes that are no UTF-8".to_owned(), "JSON in UTF-8");
    };
    let node = match json::parse(text.trim_start_matches('\u{feff}')) {
        Ok(node) => node,
        Err(error) => return fail(error.line, format!("text that is not JSON ({})", error.message), "JSON"),
    };
    let errors = schema::errors(&node, &source.file, "the schema");
    if errors.is_empty() {
        Ok(node.to_json())
    } else {
        Err(errors)
    }
}

/// The schema of an agent's output, and what `processOutput` names of it.
fn output_schema(agent: &Read, folder: &Folder, errors: &mut Mistakes) -> Option<Arc<Value>> {
    let output = agent.definition.output.as_ref()?;
    let name = match &output.schema {
        OutputSchema::Inline(schema) => return Some(Arc::new(schema.clone())),
        OutputSchema::Named(name) => name,
    };
    let Some(schema) = folder.schemas.get(name) else {
        if let Some(error) = unknown_schema(name, &agent.place, folder) {
            errors.push(error);
        }
        return None;
    };
    let path = Field::ProcessOutput.portable();
    let template = agent.definition.process_output.as_deref().map(Template::parse);
    if let Some(Ok(template)) = &template {
        for name in unknown_in_output(template, output, schema) {
            let found = format!("the placeholder ${{{name}}}");
            errors.add(|| agent.place.error(&path, found, known_in_output(name, output, schema)));
        }
    }
    Some(schema.clone())
}

/// That a registered schema is not there, or is wrong.
fn unknown_schema(name: &str, place: &Place, folder: &Folder) -> Option<DefinitionError> {
    if folder.schemas.contains_key(name) {
        return None;
    }
    let known: Vec<_> = folder.schemas.keys().map(String::as_str).collect();
    let (found, allowed) = if folder.broken_schemas.contains(name) {
        (
            format!("{}, which is wrong", quoted(name)),
            "a schema that is right".to_owned(),
        )
    } else if known.is_empty() {
        let allowed = format!("a JSON Schema, or the name of one: write it to schemas/{name}.json");
        (quoted(name), allowed)
    } else {
        (
            quoted(name),
            format!("a schema that is there: {}", unknown_name_message(name, &known)),
        )
    };
    Some(place.error(&Field::OutputSchema.portable(), found, allowed))
}

/// What Gemini CLI's own agents mean and gavel's do not.
fn gemini_cli(agent: &Read, warnings: &mut Vec<DefinitionError>) {
    let is_theirs = agent.place.file.replace('\\', "/").contains(".gemini/agents/");
    if is_theirs && !agent.place.places.has(&Field::Tools.portable()) {
        let found = "nothing, which grants every tool in Gemini CLI and none here".to_owned();
        let allowed = "the list of tools that it is granted".to_owned();
        warnings.push(agent.place.error(&Field::Tools.portable(), found, allowed));
    }
}

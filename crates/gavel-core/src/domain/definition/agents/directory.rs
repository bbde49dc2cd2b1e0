//! Reads the files of one directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::{Place, SchemaSource, Source};
use crate::domain::definition::fields::Field;
use crate::domain::definition::read::{Refused, given_twice};
use crate::domain::definition::values::{self, Named};
use crate::domain::definition::{Definition, Form, Input, form, schema};
use gavel_reading::json;
use gavel_reading::quoted;
use gavel_reading::{Errors, ReadError};

/// A definition that is valid by itself.
pub(super) struct Read {
    pub(super) definition: Arc<Definition>,
    pub(super) place: Place,
    pub(super) form: Form,
}

/// An invalid definition, with the references that could be read.
pub(super) struct Broken {
    /// Its name, if it could be read.
    pub(super) name: Option<String>,
    pub(super) names: Named,
    pub(super) place: Place,
}

/// Everything that was read, for the checks.
pub(super) struct Directory {
    pub(super) agents: BTreeMap<String, Read>,
    /// Invalid definitions: other definitions may refer to them, and their own references are checked.
    pub(super) broken: Vec<Broken>,
    /// Their names, with their indexes in `broken`; of several with the same name, the first.
    pub(super) broken_names: BTreeMap<String, usize>,
    /// The likely names of those without a name: their file names. Errors never suggest them.
    likely_names: BTreeSet<String>,
    pub(super) schemas: BTreeMap<String, Arc<Value>>,
    /// Registered schemas that are invalid, if they are JSON.
    pub(super) broken_schemas: BTreeMap<String, Option<Value>>,
}

impl Directory {
    /// The inputs of an agent, valid or not, if known.
    pub(super) fn takes(&self, name: &str) -> Option<&BTreeMap<String, Input>> {
        match self.agents.get(name) {
            Some(agent) => Some(&agent.definition.inputs),
            None => self.broken[*self.broken_names.get(name)?].names.inputs.as_ref(),
        }
    }

    /// Whether a name in `tools` is that of an agent with a readable name, valid or not.
    pub(super) fn is_agent(&self, name: &str) -> bool {
        self.agents.contains_key(name) || self.broken_names.contains_key(name)
    }

    /// Whether an agent exists, valid or not.
    pub(super) fn has(&self, name: &str) -> bool {
        self.is_agent(name) || self.likely_names.contains(name)
    }

    /// A registered schema, valid or not.
    pub(super) fn schema(&self, name: &str) -> Option<&Value> {
        let right = self.schemas.get(name).map(|schema| &**schema);
        right.or_else(|| self.broken_schemas.get(name)?.as_ref())
    }
}

pub(super) fn read(sources: &[Source], schemas: &[SchemaSource], errors: &mut Vec<ReadError>) -> Directory {
    let mut directory = Directory {
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
                directory.schemas.insert(source.name.clone(), Arc::new(schema));
            }
            Err((invalid, schema)) => {
                errors.extend(invalid);
                directory.broken_schemas.insert(source.name.clone(), schema);
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
                        let place = directory.broken.len();
                        directory.broken_names.entry(name.clone()).or_insert(place);
                    }
                    None => directory.likely_names.extend(stem(&file)),
                }
                directory.broken.push(Broken {
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
        if let Some(other) = directory.agents.get(&name) {
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
            directory.agents.insert(name, read);
        }
    }
    directory
}

/// The file name without its extension: the likely name of a definition that cannot be read at all.
pub(super) fn stem(file: &str) -> Option<String> {
    Some(Path::new(file).file_stem()?.to_str()?.to_owned())
}

/// Parses a registered schema, which is named by its file. An invalid one is returned if it is JSON.
pub(super) fn named_schema(source: &SchemaSource) -> Result<Value, (Vec<ReadError>, Option<Value>)> {
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
    let mut errors = Errors::default();
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

//! The schema of an agent's output.

use std::sync::Arc;

use serde_json::Value;

use super::super::OutputSchema;
use super::super::fields::Field;
use super::super::inputs::{known_in_output, unknown_in_output};
use super::Place;
use super::directory::{Directory, Read};
use crate::domain::templates::Template;
use gavel_reading::quoted;
use gavel_reading::unknown_name_message;
use gavel_reading::{Errors, ReadError};

/// The schema of an agent's output. Also checks what `processOutput` refers to in it.
pub(super) fn output_schema(agent: &Read, directory: &Directory, errors: &mut Errors) -> Option<Arc<Value>> {
    let output = agent.definition.output.as_ref()?;
    let name = match &output.schema {
        OutputSchema::Inline(schema) => return Some(Arc::new(schema.clone())),
        OutputSchema::Named(name) => name,
    };
    if let Some(error) = unknown_schema(name, &agent.place, directory) {
        errors.push(error);
    }
    if let (Some(template), Some(schema)) = (&agent.definition.process_output, directory.schema(name)) {
        template_of_output(template, &output.name, schema, &agent.place, errors);
    }
    directory.schemas.get(name).cloned()
}

/// Each placeholder of `processOutput` must name the output or one of its properties.
pub(super) fn template_of_output(template: &str, output: &str, schema: &Value, place: &Place, errors: &mut Errors) {
    let (template, _) = Template::read(template);
    let path = Field::ProcessOutput.portable();
    for name in unknown_in_output(&template, output, schema) {
        let found = format!("the placeholder ${{{name}}}");
        errors.add(|| place.error(&path, found, known_in_output(name, output, schema)));
    }
}

/// The error for a registered schema that does not exist or is invalid.
pub(super) fn unknown_schema(name: &str, place: &Place, directory: &Directory) -> Option<ReadError> {
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

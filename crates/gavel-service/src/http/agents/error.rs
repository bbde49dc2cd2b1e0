//! The problems of definitions and triggers.

use crate::api::problem::FieldError;
use crate::domain::definition::ReadError;
use crate::http::error::{Code, Error, ProblemParts};
use crate::surfaces::agents::TriggerError;
use crate::surfaces::definitions::PutError;

impl From<TriggerError> for Error {
    fn from(error: TriggerError) -> Self {
        match error {
            TriggerError::InvalidDefinition(errors) => invalid_definition(errors),
            TriggerError::Run(error) => error.into(),
        }
    }
}

impl From<PutError> for Error {
    fn from(error: PutError) -> Self {
        let parts = match error {
            PutError::Store(failure) => return failure.into(),
            PutError::InvalidDefinition(errors) => return invalid_definition(errors),
            PutError::MissingRole(role) => {
                ProblemParts::new(Code::Forbidden, format!("This requires the role {role}."))
            }
            PutError::FromFile => {
                let detail = "The agent comes from a file; edit that file, and gavel reloads it automatically.";
                ProblemParts::new(Code::ReadOnly, detail)
            }
            PutError::VersionConflict(current) => ProblemParts::new(
                Code::VersionConflict,
                format!("The current version is {current}; 0 means that there is none."),
            ),
            PutError::TooManyAgents(most) => ProblemParts::new(
                Code::TooManyAgents,
                format!(
                    "The project has {most} agents created through the API, the most it may have; put the agent into another project."
                ),
            ),
            PutError::Overloaded => ProblemParts::overloaded(),
        };
        parts.into()
    }
}

fn invalid_definition(errors: Vec<ReadError>) -> Error {
    let detail = "The definition is invalid; errors names every error.";
    let places = errors.into_iter().map(definition_error).collect();
    ProblemParts::new(Code::InvalidDefinition, detail).places(places).into()
}

/// Reports an error or a warning of a definition, with its field, and its line if known.
pub(super) fn definition_error(error: ReadError) -> FieldError {
    let place = match (error.file.as_str(), error.line) {
        ("body", None) => String::new(),
        ("body", Some(line)) => format!("line {line}: "),
        (file, None) => format!("{file}: "),
        (file, Some(line)) => format!("{file}, line {line}: "),
    };
    // The body does not contain the definitions of other agents.
    let pointer = if error.file == "body" {
        pointer(&error.field)
    } else {
        String::new()
    };
    let field = if pointer.is_empty() {
        format!("{}: ", error.field)
    } else {
        String::new()
    };
    FieldError {
        pointer,
        detail: format!("{place}{field}found {}; allowed: {}", error.found, error.allowed),
    }
}

/// A field's path as a JSON pointer into the definition: `tools[0]` is `/tools/0`. Empty for text that is not a field,
/// such as "front matter".
fn pointer(field: &str) -> String {
    if field.contains(' ') {
        return String::new();
    }
    let parts = field.split(['.', '[']).map(|part| part.trim_end_matches(']'));
    parts.map(|part| format!("/{part}")).collect()
}

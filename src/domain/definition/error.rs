//! What is wrong with a definition, and where.

use std::fmt;

/// One error of a definition: enough to put it right without opening the documentation.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DefinitionError {
    /// The file, as it was named to the reader.
    pub file: String,
    /// The line, from 1; absent when the form has no lines.
    pub line: Option<u64>,
    /// The field as it is spelled in the file; for one that is missing, its first spelling.
    pub field: String,
    /// What was found.
    pub found: String,
    /// What is allowed.
    pub allowed: String,
}

impl fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}: found {}; allowed: {}", self.field, self.found, self.allowed)
    }
}

impl std::error::Error for DefinitionError {}

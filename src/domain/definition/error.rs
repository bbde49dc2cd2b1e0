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

/// Mistakes of one definition that are told; of others only how many there are.
pub(crate) const MOST_TOLD: usize = 100;

/// The field of those that are not told.
const REST: &str = "the definition";

/// Longest texts of a mistake, in bytes: what they quote may be as long as the definition.
const LONGEST_FIELD: usize = 200;
const LONGEST_FOUND: usize = 500;
const LONGEST_ALLOWED: usize = 800;

impl DefinitionError {
    /// No longer than it may be.
    pub(super) fn clipped(mut self) -> Self {
        let texts = [
            (&mut self.field, LONGEST_FIELD),
            (&mut self.found, LONGEST_FOUND),
            (&mut self.allowed, LONGEST_ALLOWED),
        ];
        for (text, most) in texts {
            if text.len() > most {
                text.truncate(text.floor_char_boundary(most));
                text.push('…');
            }
        }
        self
    }

    /// Is it that there are more?
    pub(super) fn is_rest(&self) -> bool {
        self.line.is_none() && self.field == REST && self.found.ends_with(" more mistakes")
    }

    /// That there are `more` of one definition than are told.
    fn more(file: &str, more: usize) -> Self {
        Self {
            file: file.to_owned(),
            line: None,
            field: REST.to_owned(),
            found: format!("{more} more mistakes"),
            allowed: format!("none; the first {MOST_TOLD} are told"),
        }
    }
}

/// The mistakes of one definition as they are found.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    told: Vec<DefinitionError>,
    more: usize,
}

impl Mistakes {
    /// Adds one. What there is to say of it is worked out only if it is told: there may be as many as a definition has bytes.
    pub(super) fn add(&mut self, error: impl FnOnce() -> DefinitionError) {
        if self.told.len() < MOST_TOLD {
            let mut error = error().clipped();
            // A form without lines has all on line 0.
            error.line = error.line.filter(|line| *line > 0);
            self.told.push(error);
        } else {
            self.more += 1;
        }
    }

    /// Adds one that is worked out already.
    pub(super) fn push(&mut self, error: DefinitionError) {
        self.add(|| error);
    }

    /// How many there are, told or not.
    pub(super) fn count(&self) -> usize {
        self.told.len() + self.more
    }

    /// Were there none?
    pub(super) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Those that are told.
    pub(super) fn told(&self) -> &[DefinitionError] {
        &self.told
    }

    /// Those that are told by their lines, and how many more there are.
    pub(super) fn into_vec(self, file: &str) -> Vec<DefinitionError> {
        let mut told = self.told;
        told.sort_by_key(|error| error.line);
        told.extend((self.more > 0).then(|| DefinitionError::more(file, self.more)));
        told
    }
}

//! Errors in a definition, with their locations.

use std::fmt;

/// An error in a definition, with enough detail to fix it without the documentation.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DefinitionError {
    /// The file name.
    pub file: String,
    /// The line, from 1; absent if the form has no lines.
    pub line: Option<u64>,
    /// The field as spelled in the file; for a missing field, its first spelling.
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

/// The most errors of one definition that are listed; the rest are counted.
pub(crate) const MOST_REPORTED: usize = 100;

/// The field of the entry that counts the rest.
const REST: &str = "the definition";

/// The longest texts of an error, in bytes. They may quote the whole definition.
const LONGEST_FIELD: usize = 200;
const LONGEST_FOUND: usize = 500;
const LONGEST_ALLOWED: usize = 800;

impl DefinitionError {
    /// Cuts the texts to their limits.
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

    /// Whether this is the entry that counts the rest.
    pub(super) fn is_rest(&self) -> bool {
        self.line.is_none() && self.field == REST && self.found.ends_with(" more errors")
    }

    /// The entry for `more` errors of one definition that are not listed.
    fn more(file: &str, more: usize) -> Self {
        Self {
            file: file.to_owned(),
            line: None,
            field: REST.to_owned(),
            found: format!("{more} more errors"),
            allowed: format!("none; the first {MOST_REPORTED} are listed"),
        }
    }
}

/// Collects the errors of one definition.
#[derive(Debug, Default)]
pub(super) struct DefinitionErrors {
    reported: Vec<DefinitionError>,
    more: usize,
}

impl DefinitionErrors {
    /// Adds an error. Its texts are built only if it is listed: there may be as many errors as the definition has
    /// bytes.
    pub(super) fn add(&mut self, error: impl FnOnce() -> DefinitionError) {
        if self.reported.len() < MOST_REPORTED {
            let mut error = error().clipped();
            // A form without lines reports line 0 for everything.
            error.line = error.line.filter(|line| *line > 0);
            self.reported.push(error);
        } else {
            self.more += 1;
        }
    }

    /// Adds an error that is already built.
    pub(super) fn push(&mut self, error: DefinitionError) {
        self.add(|| error);
    }

    /// The number of errors, listed or not.
    pub(super) fn count(&self) -> usize {
        self.reported.len() + self.more
    }

    /// Whether there are no errors.
    pub(super) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The listed errors.
    pub(super) fn listed(&self) -> &[DefinitionError] {
        &self.reported
    }

    /// The listed errors sorted by line, and the number of the rest.
    pub(super) fn into_vec(self, file: &str) -> Vec<DefinitionError> {
        let mut reported = self.reported;
        reported.sort_by_key(|error| error.line);
        reported.extend((self.more > 0).then(|| DefinitionError::more(file, self.more)));
        reported
    }
}

//! Errors, with their locations.

use std::fmt;

/// An error in one field, with enough detail to fix it without the documentation.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ReadError {
    /// The file name, or what else holds the field, such as a variable; empty if nothing does.
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

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.file.is_empty() {
            f.write_str(": ")?;
        }
        write!(f, "{}: found {}; allowed: {}", self.field, self.found, self.allowed)
    }
}

impl std::error::Error for ReadError {}

/// The most errors of one file that are listed; the rest are counted.
pub const MOST_REPORTED: usize = 100;

/// The field of the entry that counts the rest.
const REST: &str = "the rest";

/// The longest texts of an error, in bytes. They may quote the whole file.
const LONGEST_FIELD: usize = 200;
const LONGEST_FOUND: usize = 500;
const LONGEST_ALLOWED: usize = 800;

impl ReadError {
    /// Cuts the texts to their limits.
    #[must_use]
    pub fn clipped(mut self) -> Self {
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
    #[must_use]
    pub fn is_rest(&self) -> bool {
        self.line.is_none() && self.field == REST && self.found.ends_with(" more errors")
    }

    /// The entry for `more` errors of one file that are not listed.
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

/// Collects the errors of one file.
#[derive(Debug, Default)]
pub struct Errors {
    reported: Vec<ReadError>,
    more: usize,
}

impl Errors {
    /// Adds an error. Its texts are built only if it is listed: there may be as many errors as the file has
    /// bytes.
    pub fn add(&mut self, error: impl FnOnce() -> ReadError) {
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
    pub fn push(&mut self, error: ReadError) {
        self.add(|| error);
    }

    /// The number of errors, listed or not.
    #[must_use]
    pub fn count(&self) -> usize {
        self.reported.len() + self.more
    }

    /// Whether there are no errors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The listed errors.
    #[must_use]
    pub fn listed(&self) -> &[ReadError] {
        &self.reported
    }

    /// The listed errors sorted by line, and the number of the rest.
    #[must_use]
    pub fn into_vec(self, file: &str) -> Vec<ReadError> {
        let mut reported = self.reported;
        reported.sort_by_key(|error| error.line);
        reported.extend((self.more > 0).then(|| ReadError::more(file, self.more)));
        reported
    }
}

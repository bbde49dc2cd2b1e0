//! A value that stops the start.

use std::fmt;

/// One mistake in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The setting, by its key in `gavel.toml` (an unknown one as it was written).
    pub key: String,
    /// What was given, masked if it is secret; absent when nothing was.
    pub value: Option<String>,
    /// Where it was given; absent when it was not.
    pub place: Option<String>,
    /// What is wrong, and what is allowed.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.key)?;
        if let Some(value) = &self.value {
            write!(f, " = {value}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for ConfigError {}

/// All mistakes, as one error to end a start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("the configuration has a mistake:")?,
            n => write!(f, "the configuration has {n} mistakes:")?,
        }
        for error in &self.0 {
            write!(f, "\n  {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// A file that a setting names and that cannot be read or is wrong.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FileError(pub String);

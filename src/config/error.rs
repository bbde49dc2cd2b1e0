//! Configuration errors, which prevent the start.

use std::fmt;

/// One error in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The setting, by its key in `gavel.toml`; an unknown key as it was written.
    pub key: String,
    /// The value that was given, masked if secret; absent when none was given.
    pub value: Option<String>,
    /// Where the value was given; absent when none was given.
    pub place: Option<String>,
    /// What is invalid, and what is allowed.
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

/// All configuration errors, reported together when the start fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("the configuration has an error:")?,
            n => write!(f, "the configuration has {n} errors:")?,
        }
        for error in &self.0 {
            write!(f, "\n  {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// A file that a setting names is unreadable or invalid.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FileError(pub String);

//! Where a value came from.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

/// Where a value came from, as text: `flag --listen`, `environment GAVEL_LISTEN`, `.env GAVEL_LISTEN`, `gavel.toml:3`,
/// `default`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    words: String,
    /// The file and the line, if it is `gavel.toml`.
    line: Option<(PathBuf, u64)>,
}

impl Origin {
    const DEFAULT: &'static str = "default";

    pub(super) fn flag(flag: &str) -> Self {
        Self::new(format!("flag {flag}"))
    }

    pub(super) fn environment(variable: &str) -> Self {
        Self::new(format!("environment {variable}"))
    }

    /// A variable of the file `.env`.
    pub(super) fn dotenv(variable: &str) -> Self {
        Self::new(format!(".env {variable}"))
    }

    /// A secret that was read from the file that `variable` names.
    pub(super) fn named_file(path: &Path, named_by: &Self) -> Self {
        Self::new(format!("{}, named by {named_by}", path.display()))
    }

    /// A line of `gavel.toml`.
    pub(super) fn line(file: &Path, line: u64) -> Self {
        Self {
            words: format!("{}:{line}", file.display()),
            line: Some((file.to_owned(), line)),
        }
    }

    /// Of what is missing.
    pub(super) fn nowhere() -> Self {
        Self::new(String::new())
    }

    pub(super) fn default() -> Self {
        Self::new(Self::DEFAULT.to_owned())
    }

    /// A default with its reason.
    pub(super) fn default_because(reason: &str) -> Self {
        Self::new(format!("{}: {reason}", Self::DEFAULT))
    }

    fn new(words: String) -> Self {
        Self { words, line: None }
    }

    /// Whether the value is a default, not given by the user.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.words.starts_with(Self::DEFAULT)
    }

    /// The `gavel.toml` that contains the value.
    pub(super) fn file(&self) -> Option<&Path> {
        self.line.as_ref().map(|(file, _)| file.as_path())
    }

    /// The file without the line, or what else has the value.
    pub(super) fn place(&self) -> String {
        self.file()
            .map_or_else(|| self.words.clone(), |file| file.display().to_string())
    }

    /// The line of `gavel.toml`.
    pub(super) fn line_number(&self) -> Option<u64> {
        self.line.as_ref().map(|(_, line)| *line)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.words)
    }
}

//! Where a value came from.

use std::fmt;
use std::path::{Path, PathBuf};

use figment::{Metadata, Source};
use serde::{Serialize, Serializer};

/// Where a value came from, as text: `flag --listen`, `environment GAVEL_LISTEN`, `.env GAVEL_LISTEN`, `gavel.toml:3`,
/// `default`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    words: String,
    file: Option<PathBuf>,
}

impl Origin {
    const DEFAULT: &'static str = "default";

    pub(super) fn flag(flag: &str) -> Self {
        Self::of(format!("flag {flag}"))
    }

    pub(super) fn environment(variable: &str) -> Self {
        Self::of(format!("environment {variable}"))
    }

    /// A variable of the file `.env`.
    pub(super) fn dotenv(variable: &str) -> Self {
        Self::of(format!(".env {variable}"))
    }

    /// A secret that was read from the file that `variable` names.
    pub(super) fn named_file(path: &Path, named_by: &Self) -> Self {
        Self::of(format!("{}, named by {named_by}", path.display()))
    }

    /// A line of `gavel.toml`.
    pub(super) fn line(file: &Path, line: usize) -> Self {
        Self {
            words: format!("{}:{line}", file.display()),
            file: Some(file.to_owned()),
        }
    }

    pub(super) fn default() -> Self {
        Self::of(Self::DEFAULT.to_owned())
    }

    /// A default with its reason.
    pub(super) fn default_because(reason: &str) -> Self {
        Self::of(format!("{}: {reason}", Self::DEFAULT))
    }

    fn of(words: String) -> Self {
        Self { words, file: None }
    }

    /// Whether the value is a default, not given by the user.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.words.starts_with(Self::DEFAULT)
    }

    /// The `gavel.toml` that contains the value.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Converts to figment's metadata.
    pub(super) fn to_metadata(&self) -> Metadata {
        let metadata = Metadata::named(self.words.clone());
        match &self.file {
            Some(file) => metadata.source(file.as_path()),
            None => metadata,
        }
    }

    pub(super) fn from_metadata(metadata: &Metadata) -> Self {
        let file = match &metadata.source {
            Some(Source::File(path)) => Some(path.clone()),
            _ => None,
        };
        Self {
            words: metadata.name.clone().into_owned(),
            file,
        }
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

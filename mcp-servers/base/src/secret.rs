//! Secrets: they are never printed, and are set by value or by file.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, bail};

/// A secret. It appears neither in logs nor in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The secret itself, as bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(value: &str) -> Result<Self, Self::Err> {
        Ok(Self::new(value))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The content of a file, without line breaks at its end.
pub fn file(what: &str, path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {what}, {}", path.display()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// A value that is set directly or by file, never by both; `names` has the names of both settings. An empty setting
/// counts as unset: `mcp.json` always passes on both variables.
pub fn either(
    what: &str,
    names: (&str, &str),
    value: Option<&str>,
    path: Option<&OsStr>,
) -> anyhow::Result<Option<String>> {
    let value = value.filter(|value| !value.is_empty());
    let path = path.filter(|path| !path.is_empty());
    match (value, path) {
        (Some(_), Some(_)) => bail!("{what} is given twice; keep one of {} and {}", names.0, names.1),
        (Some(value), None) => Ok(Some(value.to_owned())),
        (None, Some(path)) => file(what, Path::new(path)).map(Some),
        (None, None) => Ok(None),
    }
}

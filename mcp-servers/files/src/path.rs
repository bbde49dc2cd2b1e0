//! Paths as callers give them.

use std::fmt;
use std::path::{Path, PathBuf};

use gavel_mcp_base::{Code as Common, ToolError};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Code;

const MAX_BYTES: usize = 4096;

/// A path as given. [`Given::parse`] requires it to be relative and without `..`; [`crate::root`] checks links in it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("x-exact" = true))]
pub(crate) struct Given(String);

/// A path that names nothing above the root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct InnerPath(PathBuf);

impl Given {
    pub(crate) fn parse(&self) -> Result<InnerPath, ToolError> {
        if self.0.len() > MAX_BYTES {
            return self.refuse(Common::InvalidArgument, "… is longer than the allowed 4096 bytes");
        }
        if self.0.starts_with('/') {
            return self.refuse(
                Code::OutsideRoot,
                "is an absolute path. Allowed are paths relative to the folder that is served, such as src/main.rs",
            );
        }
        let parts = self.0.split('/').filter(|part| !matches!(*part, "" | "."));
        if parts.clone().any(|part| part == "..") {
            return self.refuse(
                Code::OutsideRoot,
                "contains `..`. Allowed are paths relative to the folder that is served, without `..`",
            );
        }
        Ok(InnerPath(parts.collect()))
    }

    fn refuse(&self, code: impl Into<&'static str>, rule: &str) -> Result<InnerPath, ToolError> {
        let shown: String = self.0.chars().take(100).collect();
        Err(ToolError::new(code, format!("`{}` {rule}.", shown.escape_debug())))
    }
}

impl InnerPath {
    /// A path that was found below the root.
    pub(crate) fn from_inside(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// The path for system calls; the root itself is `.`.
    pub(crate) fn to_open(&self) -> &Path {
        if self.is_root() { Path::new(".") } else { &self.0 }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0.as_os_str().is_empty()
    }

    /// Relative to the root, which is the empty path.
    pub(crate) fn as_path(&self) -> &Path {
        &self.0
    }
}

/// As shown in answers.
impl fmt::Display for InnerPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_open().display().fmt(formatter)
    }
}

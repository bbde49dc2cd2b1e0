//! Paths as callers give them.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Code, ToolError};

const MAX_BYTES: usize = 4096;

/// A path as given. [`Given::parse`] requires it to be relative and without `..`; [`crate::root`] checks links in it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Given(String);

/// A path that names nothing above the root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct InnerPath(PathBuf);

impl Given {
    pub(crate) fn parse(&self) -> Result<InnerPath, ToolError> {
        let refuse = |code, rule: &str| {
            let shown: String = self.0.chars().take(100).collect();
            Err(ToolError::new(code, format!("`{}` {rule}.", shown.escape_debug())))
        };
        if self.0.len() > MAX_BYTES {
            return refuse(Code::InvalidArgument, "… is longer than the allowed 4096 bytes");
        }
        if self.0.contains('\0') {
            return refuse(
                Code::InvalidArgument,
                "contains a NUL character (U+0000), which is not allowed",
            );
        }
        if self.0.starts_with('/') {
            return refuse(
                Code::OutsideRoot,
                "is an absolute path. Allowed are paths relative to the folder that is served, such as src/main.rs",
            );
        }
        let parts = self.0.split('/').filter(|part| !matches!(*part, "" | "."));
        if parts.clone().any(|part| part == "..") {
            return refuse(
                Code::OutsideRoot,
                "contains `..`. Allowed are paths relative to the folder that is served, without `..`",
            );
        }
        Ok(InnerPath(parts.collect()))
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

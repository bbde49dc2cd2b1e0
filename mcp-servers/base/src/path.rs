//! Paths.

use std::path::{Path, PathBuf};

/// The path without links, as far as it exists.
pub fn existing(path: &Path) -> PathBuf {
    let whole = || {
        let parent = existing(path.parent()?);
        Some(parent.join(path.file_name()?))
    };
    path.canonicalize()
        .ok()
        .or_else(whole)
        .unwrap_or_else(|| path.to_owned())
}

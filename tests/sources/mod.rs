//! The project's own source files, for tests that read them.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs;
use std::path::{Path, PathBuf};

/// The project's directory.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below a directory.
pub(crate) fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Every Rust file of the product: what is built into `gavel`, without the bundled servers.
pub(crate) fn product() -> Vec<PathBuf> {
    ["src", "crates"].map(|name| rust_files(&root().join(name))).concat()
}

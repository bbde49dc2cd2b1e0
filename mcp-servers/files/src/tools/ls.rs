//! `ls`

use std::collections::BTreeSet;
use std::ffi::OsString;

use cap_std::fs::Dir;
use gavel_mcp_base::{Tool, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::error;
use crate::path::Given;
use crate::root::Root;
use crate::server::Files;

const MAX_ENTRIES: usize = 1000;

const DESCRIPTION: &str = "\
List the entries of one folder, sorted by name, hidden ones included: name, kind (file, folder, link, \
other) and for files the size in bytes. It does not go into folders; glob finds files below them. At \
most 1000 entries are shown; left_out counts the others.";

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// The folder to list, relative to the folder that is served, without `..`. That folder itself when left out.
    path: Option<Given>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listing {
    /// The folder; `.` is the one that is served.
    path: String,
    entries: Vec<Entry>,
    /// How many entries come after those that are shown.
    left_out: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Entry {
    name: String,
    kind: EntryKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// true when the real name cannot be shown here or used as an argument.
    #[serde(skip_serializing_if = "super::is_false")]
    not_utf8: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum EntryKind {
    File,
    #[serde(rename = "folder")]
    Directory,
    Link,
    Other,
}

pub(super) fn tool() -> Tool<Files> {
    super::tool("ls", "List a folder", DESCRIPTION, list)
}

fn list(arguments: Arguments, root: &Root, budget: &Budget) -> Result<Listing, ToolError> {
    let path = arguments.path.map(|path| path.parse()).transpose()?.unwrap_or_default();
    let directory = root.directory(&path)?;
    let refuse = |error| error::of(&error, &path.to_string());
    // Only the names to show are kept, so that a huge directory takes time but no memory.
    let mut names = BTreeSet::new();
    let mut left_out = 0;
    for entry in directory.entries().map_err(refuse)? {
        if budget.is_exhausted() {
            return Err(error::too_slow());
        }
        names.insert(entry.map_err(refuse)?.file_name());
        if names.len() > MAX_ENTRIES {
            names.pop_last();
            left_out += 1;
        }
    }
    Ok(Listing {
        path: path.to_string(),
        entries: names.iter().filter_map(|name| entry(&directory, name)).collect(),
        left_out,
    })
}

/// `None` for an entry that was removed in the meantime.
fn entry(directory: &Dir, name: &OsString) -> Option<Entry> {
    let metadata = directory.symlink_metadata(name).ok()?;
    let kind = if metadata.is_file() {
        EntryKind::File
    } else if metadata.is_dir() {
        EntryKind::Directory
    } else if metadata.is_symlink() {
        EntryKind::Link
    } else {
        EntryKind::Other
    };
    Some(Entry {
        name: name.to_string_lossy().into_owned(),
        kind,
        size: (kind == EntryKind::File).then(|| metadata.len()),
        not_utf8: name.to_str().is_none(),
    })
}

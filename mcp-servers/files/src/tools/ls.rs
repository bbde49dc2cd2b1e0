//! `ls`

use std::collections::BTreeSet;
use std::ffi::OsString;

use cap_std::fs::Dir;
use gavel_mcp_base::ToolError;
use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::schema;
use crate::budget::Budget;
use crate::error;
use crate::path::Given;
use crate::root::Root;

pub(super) const NAME: &str = "ls";

const MAX_ENTRIES: usize = 1000;

const DESCRIPTION: &str = "\
List the entries of one folder, sorted by name, hidden ones included: name, kind (file, folder, link, \
other) and for files the size in bytes. It does not go into folders; glob finds files below them. At \
most 1000 entries are shown; left_out counts the others.";

pub(super) fn tool() -> Tool {
    schema::tool(
        NAME,
        "List a folder",
        DESCRIPTION,
        schema::input(json!({ "path": schema::directory("The folder to list") }), &[]),
        schema::output(
            json!({
                "path": { "type": "string", "description": "The folder; `.` is the one that is served." },
                "entries": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": { "type": "string" },
                            "kind": { "type": "string", "enum": ["file", "folder", "link", "other"] },
                            "size": { "type": "integer", "minimum": 0 },
                            "not_utf8": {
                                "type": "boolean",
                                "description": "true when the real name cannot be shown here or used as an argument."
                            }
                        },
                        "required": ["name", "kind"],
                        "additionalProperties": false
                    }
                },
                "left_out": schema::count("How many entries come after those that are shown.")
            }),
            &["path", "entries", "left_out"],
        ),
    )
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    path: Option<Given>,
}

#[derive(Debug, Serialize)]
pub(super) struct Listing {
    path: String,
    entries: Vec<Entry>,
    left_out: usize,
}

#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "super::is_false")]
    not_utf8: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    File,
    #[serde(rename = "folder")]
    Directory,
    Link,
    Other,
}

impl Request {
    pub(super) fn carry_out(self, root: &Root, budget: &Budget) -> Result<Listing, ToolError> {
        let path = self.path.map(|path| path.parse()).transpose()?.unwrap_or_default();
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
}

/// `None` for an entry that was removed in the meantime.
fn entry(directory: &Dir, name: &OsString) -> Option<Entry> {
    let metadata = directory.symlink_metadata(name).ok()?;
    let kind = if metadata.is_file() {
        Kind::File
    } else if metadata.is_dir() {
        Kind::Directory
    } else if metadata.is_symlink() {
        Kind::Link
    } else {
        Kind::Other
    };
    Some(Entry {
        name: name.to_string_lossy().into_owned(),
        kind,
        size: (kind == Kind::File).then(|| metadata.len()),
        not_utf8: name.to_str().is_none(),
    })
}

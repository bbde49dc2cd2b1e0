//! `glob`

use std::ops::ControlFlow;

use gavel_mcp_base::{Tool, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pattern;
use crate::budget::Budget;
use crate::path::Given;
use crate::root::Root;
use crate::server;
use crate::walk::{Walked, walk};

const MAX_FILES: usize = 1000;

const DESCRIPTION: &str = "\
Find files by a glob over their paths below path, such as **/*.rs or src/*.{ts,tsx}: `*` and `?` stay \
within one part of a path, `**` spans folders. Answers with paths for read_file, sorted, at most 1000. \
Links, .git and what .gitignore or .ignore name are left out, and hidden files too unless a part of \
the pattern begins with a dot. To look into an ignored folder, name it as path.";

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// The glob, compared with paths relative to path.
    #[schemars(length(min = 1, max = pattern::MAX_CHARS), extend("x-exact" = true))]
    pattern: String,
    /// The folder to look in, relative to the folder that is served, without `..`. That folder itself when left out.
    path: Option<Given>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Files {
    files: Vec<String>,
    /// Folders that could not be read.
    unreadable: usize,
    /// Present when not everything was looked at: why, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<String>,
}

pub(super) fn tool() -> Tool<server::Files> {
    super::tool("glob", "Find files", DESCRIPTION, find)
}

fn find(arguments: Arguments, root: &Root, budget: &Budget) -> Result<Files, ToolError> {
    let start = arguments.path.map(|path| path.parse()).transpose()?.unwrap_or_default();
    let wanted = pattern::glob("pattern", &arguments.pattern)?;
    let hidden = pattern::names_hidden(&arguments.pattern);
    let mut files = Vec::new();
    let Walked { unreadable, incomplete } = walk(root, &start, hidden, budget, &mut |found| {
        let below = found.path.strip_prefix(start.as_path()).unwrap_or(found.path);
        if !wanted.is_match(below) {
            return ControlFlow::Continue(());
        }
        if files.len() == MAX_FILES {
            return ControlFlow::Break(format!(
                "There are more than {MAX_FILES} such files. Give path or a narrower pattern."
            ));
        }
        files.push(found.path.display().to_string());
        ControlFlow::Continue(())
    })?;
    Ok(Files {
        files,
        unreadable,
        incomplete,
    })
}

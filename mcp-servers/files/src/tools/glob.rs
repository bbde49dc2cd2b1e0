//! `glob`

use std::ops::ControlFlow;

use gavel_mcp_base::ToolError;
use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{pattern, schema};
use crate::budget::Budget;
use crate::path::Given;
use crate::root::Root;
use crate::walk::{Walked, walk};

pub(super) const NAME: &str = "glob";

const MAX_FILES: usize = 1000;

const DESCRIPTION: &str = "\
Find files by a glob over their paths below path, such as **/*.rs or src/*.{ts,tsx}: `*` and `?` stay \
within one part of a path, `**` spans folders. Answers with paths for read_file, sorted, at most 1000. \
Links, .git and what .gitignore or .ignore name are left out, and hidden files too unless a part of \
the pattern begins with a dot. To look into an ignored folder, name it as path.";

pub(super) fn tool() -> Tool {
    schema::tool(
        NAME,
        "Find files",
        DESCRIPTION,
        schema::input(
            json!({
                "pattern": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": pattern::MAX_CHARS,
                    "description": "The glob, compared with paths relative to path."
                },
                "path": schema::directory("The folder to look in")
            }),
            &["pattern"],
        ),
        schema::output(
            json!({
                "files": { "type": "array", "items": { "type": "string" } },
                "unreadable": schema::count("Folders that could not be read."),
                "incomplete": schema::incomplete()
            }),
            &["files", "unreadable"],
        ),
    )
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pattern: String,
    path: Option<Given>,
}

#[derive(Debug, Serialize)]
pub(super) struct Answer {
    files: Vec<String>,
    unreadable: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<String>,
}

impl Request {
    pub(super) fn carry_out(self, root: &Root, budget: &Budget) -> Result<Answer, ToolError> {
        let start = self.path.map(|path| path.parse()).transpose()?.unwrap_or_default();
        let wanted = pattern::glob("pattern", &self.pattern)?;
        let hidden = pattern::names_hidden(&self.pattern);
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
        Ok(Answer {
            files,
            unreadable,
            incomplete,
        })
    }
}

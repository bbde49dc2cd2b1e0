//! The target task: by id, or by the words of its description.

use gavel_mcp_base::{Arguments, Code, ToolError};
use serde_json::{Map, Value, json};

use super::MAX_DESCRIPTION;
use super::schema::properties;
use crate::task::Target;

const MAX_ID: usize = 200;

pub(super) fn schema() -> Map<String, Value> {
    properties([
        (
            "id",
            json!({
                "type": "string",
                "minLength": 1,
                "description": "The task's id, exactly as list_tasks or another tool gave it. Give \
                                either id or title, never both; prefer the id when it is known."
            }),
        ),
        (
            "title",
            json!({
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_DESCRIPTION,
                "description": "The task's description, or a part of it that no other task contains; \
                                upper and lower case are the same. Use it only when no id is known."
            }),
        ),
    ])
}

pub(super) fn parse(arguments: &Arguments) -> Result<Target, ToolError> {
    let id = arguments.visible_text("id", MAX_ID)?;
    let title = arguments.visible_text("title", MAX_DESCRIPTION)?;
    match (id, title) {
        (Some(id), None) => Ok(Target::Id(id)),
        (None, Some(title)) => Ok(Target::Title(title)),
        (None, None) => {
            Err(ToolError::new(Code::MissingArgument, "Say which task: give its `id` or its `title`.").about("id"))
        }
        (Some(_), Some(_)) => {
            Err(ToolError::new(Code::InvalidArgument, "Give either `id` or `title`, not both.").about("title"))
        }
    }
}

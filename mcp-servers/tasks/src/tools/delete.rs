//! `delete_task`

use gavel_mcp_base::{Arguments, ToolError};
use rmcp::model::{JsonObject, Tool};
use serde_json::Value;

use super::schema::{self, Behaviour};
use super::target;
use crate::task::Change;

pub(super) const NAME: &str = "delete_task";

const DESCRIPTION: &str = "\
Remove one task of the user for good; this cannot be undone. Use it only when the user asks to \
delete or remove this very task; what is finished belongs to complete_task. Name it by id or by \
title, exactly one of them. When several tasks match a title nothing is deleted and the error lists \
them: ask the user which one is meant. Answers with the task as it was.";

pub(super) fn tool() -> Tool {
    schema::tool(
        NAME,
        "Delete a task",
        DESCRIPTION,
        schema::input(Value::Object(target::schema()), &[]),
        schema::output(
            schema::properties([("deleted", schema::task("The task as it was."))]),
            &["deleted"],
        ),
        // By title, a second call may match another task.
        Behaviour {
            read_only: false,
            destructive: true,
            idempotent: false,
            open_world: false,
        },
    )
}

pub(super) fn parse(arguments: Option<JsonObject>) -> Result<Change, ToolError> {
    let arguments = Arguments::new(arguments, &["id", "title"])?;
    Ok(Change::Delete(target::parse(&arguments)?))
}

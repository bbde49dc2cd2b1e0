//! `complete_task`

use gavel_mcp_base::{Arguments, ToolError};
use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

use super::schema::{self, Behaviour};
use super::target;
use crate::task::Change;

pub(super) const NAME: &str = "complete_task";

const DESCRIPTION: &str = "\
Mark one task of the user as done. Name it by id or by title, exactly one of them. The task stays in \
the list as done; to remove it use delete_task. A task that is done already stays as it is, and \
already_done says so. When several tasks match a title nothing is changed and the error lists them: \
ask the user which one is meant. Answers with the task.";

pub(super) fn tool() -> Tool {
    schema::tool(
        NAME,
        "Complete a task",
        DESCRIPTION,
        schema::input(Value::Object(target::schema()), &[]),
        schema::output(
            schema::properties([
                ("task", schema::task("The task, now done.")),
                (
                    "already_done",
                    json!({
                        "type": "boolean",
                        "description": "true when the task was done before this call."
                    }),
                ),
            ]),
            &["task", "already_done"],
        ),
        Behaviour {
            read_only: false,
            destructive: false,
            idempotent: true,
            open_world: false,
        },
    )
}

pub(super) fn parse(arguments: Option<JsonObject>) -> Result<Change, ToolError> {
    let arguments = Arguments::new(arguments, &["id", "title"])?;
    Ok(Change::Complete(target::parse(&arguments)?))
}

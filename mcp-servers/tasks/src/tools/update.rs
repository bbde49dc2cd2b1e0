//! `update_task`

use gavel_mcp_base::{Arguments, ToolError};
use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

use super::schema::{self, Behaviour};
use super::{add, target};
use crate::error::Code;
use crate::task::{Change, Patch, Priority};

pub(super) const NAME: &str = "update_task";

const DESCRIPTION: &str = "\
Change a task of the user: its description, due date, priority or notes. Name the task by id or by \
title, exactly one of them, and give only the fields that change; what is left out stays as it is. \
What a field held before is lost. To mark a task as done use complete_task. When several tasks match \
a title nothing is changed and the error lists them: ask the user which one is meant. Answers with \
the task as it is now and the names of the fields that were given.";

pub(super) fn tool() -> Tool {
    let mut properties = target::schema();
    properties.extend(schema::properties([
        (
            "description",
            schema::description("The new description. 1 to 500 characters."),
        ),
        (
            "due",
            json!({
                "type": ["string", "null"],
                "description": "The new due date: YYYY-MM-DD, or an RFC 3339 date-time with its \
                                offset, such as 2026-03-31T09:00:00+02:00. null removes the due date."
            }),
        ),
        ("priority", schema::priority("The new priority.")),
        (
            "notes",
            schema::or_null(schema::notes(
                "The new notes, in place of the old ones. At most 4000 characters. null removes them.",
            )),
        ),
    ]));
    schema::tool(
        NAME,
        "Update a task",
        DESCRIPTION,
        schema::input(Value::Object(properties), &[]),
        schema::output(
            schema::properties([
                ("task", schema::task("The task as it is now.")),
                (
                    "changed",
                    json!({
                        "type": "array",
                        "items": { "type": "string" },
                        "description": "The fields that were given."
                    }),
                ),
            ]),
            &["task", "changed"],
        ),
        // It overwrites, so it is destructive. By title, a second call may match another task.
        Behaviour {
            read_only: false,
            destructive: true,
            idempotent: false,
            open_world: false,
        },
    )
}

pub(super) fn parse(arguments: Option<JsonObject>) -> Result<Change, ToolError> {
    let arguments = Arguments::new(arguments, &["id", "title", "description", "due", "priority", "notes"])?;
    let target = target::parse(&arguments)?;
    let patch = Patch {
        description: add::described(&arguments)?,
        due: match add::due(&arguments)? {
            None if arguments.is_null("due") => Some(None),
            due => due.map(Some),
        },
        priority: arguments.choice("priority", &Priority::NAMES)?,
        notes: arguments
            .is_given("notes")
            .then(|| add::notes(&arguments))
            .transpose()?,
    };
    if patch == Patch::default() {
        return Err(ToolError::new(
            Code::NothingToChange,
            "Say what to change: give at least one of `description`, `due`, `priority`, `notes`.",
        ));
    }
    Ok(Change::Update(target, patch))
}

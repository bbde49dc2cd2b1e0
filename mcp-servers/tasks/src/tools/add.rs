//! `add_task`

use gavel_mcp_base::{Arguments, ToolError, missing, text};
use rmcp::model::{JsonObject, Tool};
use serde_json::json;
use uuid::Uuid;

use super::schema::{self, Behaviour};
use super::{MAX_DESCRIPTION, MAX_NOTES};
use crate::due::Due;
use crate::error::Code;
use crate::task::{Change, NewTask, Priority};

pub(super) const NAME: &str = "add_task";

const DESCRIPTION: &str = "\
Add one task to the user's own task list. Use it when the user clearly asks to add, note down or be \
reminded of something; when only a thing is named ('groceries'), ask what to do with it first. Put \
the bare thing to do into description: 'add a task to call mom' becomes 'call mom'. A date or time \
goes into due, not into description. Each call makes a new task, also when an equal one exists. \
Answers with the new task and its id.";

pub(super) fn tool() -> Tool {
    schema::tool(
        NAME,
        "Add a task",
        DESCRIPTION,
        schema::input(
            json!({
                "description": schema::description(
                    "What is to be done, in the user's own words and language, without phrases such \
                     as 'add a task to' or 'remind me to', and without the date. 1 to 500 characters."
                ),
                "due": {
                    "type": "string",
                    "description": "When it is due: a date as YYYY-MM-DD, or an RFC 3339 date-time \
                                    with its offset, such as 2026-03-31T09:00:00+02:00. Work out \
                                    words such as 'tomorrow' yourself. Leave it out when the user \
                                    gave no date."
                },
                "priority": schema::priority("How urgent it is. normal when left out; low or high only when the user says so."),
                "notes": schema::notes("Details that do not belong into the description. At most 4000 characters.")
            }),
            &["description"],
        ),
        schema::output(
            schema::properties([("task", schema::task("The task that was added."))]),
            &["task"],
        ),
        Behaviour {
            read_only: false,
            destructive: false,
            idempotent: false,
            open_world: false,
        },
    )
}

pub(super) fn parse(arguments: Option<JsonObject>) -> Result<Change, ToolError> {
    let arguments = Arguments::new(arguments, &["description", "due", "priority", "notes"])?;
    let description = described(&arguments)?.ok_or_else(|| missing("description"))?;
    Ok(Change::Add(NewTask {
        id: Uuid::now_v7().to_string(),
        description,
        due: due(&arguments)?,
        priority: arguments
            .choice("priority", &Priority::NAMES)?
            .unwrap_or(Priority::Normal),
        notes: notes(&arguments)?,
    }))
}

pub(super) fn described(arguments: &Arguments) -> Result<Option<String>, ToolError> {
    match arguments.text("description", MAX_DESCRIPTION)? {
        Some(given) if text::is_blank(&given) => Err(ToolError::new(
            Code::EmptyDescription,
            "`description` is empty. Say in 1 to 500 characters what is to be done.",
        )
        .about("description")),
        given => Ok(given),
    }
}

pub(super) fn due(arguments: &Arguments) -> Result<Option<Due>, ToolError> {
    arguments
        .text("due", 64)?
        .map(|text| Due::parse("due", &text))
        .transpose()
}

pub(super) fn notes(arguments: &Arguments) -> Result<Option<String>, ToolError> {
    Ok(arguments.text("notes", MAX_NOTES)?.filter(|notes| !notes.is_empty()))
}

//! `add_task`, `update_task`, `complete_task` and `delete_task`

use gavel_mcp_base::{Call, Code as Common, Kind, Tool, ToolError, Whole, nullable};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::MAX_DESCRIPTION;
use crate::due::Due;
use crate::error::Code;
use crate::server::Tasks;
use crate::task::{Change, NewTask, Patch, Priority, Target, Task};

const ADD: &str = "\
Add one task to the user's own task list. Use it when the user clearly asks to add, note down or be \
reminded of something; when only a thing is named ('groceries'), ask what to do with it first. Put \
the bare thing to do into description: 'add a task to call mom' becomes 'call mom'. A date or time \
goes into due, not into description. Each call makes a new task, also when an equal one exists. \
Answers with the new task and its id.";

const UPDATE: &str = "\
Change a task of the user: its description, due date, priority or notes. Name the task by id or by \
title, exactly one of them, and give only the fields that change; what is left out stays as it is. \
What a field held before is lost. To mark a task as done use complete_task. When several tasks match \
a title nothing is changed and the error lists them: ask the user which one is meant. Answers with \
the task as it is now and the names of the fields that were given.";

const COMPLETE: &str = "\
Mark one task of the user as done. Name it by id or by title, exactly one of them. The task stays in \
the list as done; to remove it use delete_task. A task that is done already stays as it is, and \
already_done says so. When several tasks match a title nothing is changed and the error lists them: \
ask the user which one is meant. Answers with the task.";

const DELETE: &str = "\
Remove one task of the user for good; this cannot be undone. Use it only when the user asks to \
delete or remove this very task; what is finished belongs to complete_task. Name it by id or by \
title, exactly one of them. When several tasks match a title nothing is deleted and the error lists \
them: ask the user which one is meant. Answers with the task as it was.";

pub(super) fn tools() -> [Tool<Tasks>; 4] {
    [
        tool::<_, Added>("add_task", "Add a task", ADD, Kind::Creates, add),
        // It overwrites, so it cannot be undone. By title, a second call may match another task.
        tool::<_, Updated>("update_task", "Update a task", UPDATE, Kind::Acts, update),
        tool::<_, Completed>(
            "complete_task",
            "Complete a task",
            COMPLETE,
            Kind::Updates,
            |target: ToFind| Ok(Change::Complete(target.parse()?)),
        ),
        // By title, a second call may match another task.
        tool::<_, Deleted>("delete_task", "Delete a task", DELETE, Kind::Acts, |target: ToFind| {
            Ok(Change::Delete(target.parse()?))
        }),
    ]
}

fn tool<A, R>(
    name: &'static str,
    title: &str,
    description: &'static str,
    kind: Kind,
    parse: fn(A) -> Result<Change, ToolError>,
) -> Tool<Tasks>
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    R: JsonSchema + 'static,
{
    Tool::new(
        name,
        title,
        description,
        kind,
        move |tasks: std::sync::Arc<Tasks>, call: Call<A>| async move {
            let answer = tasks.change(name, call, parse).await?;
            Ok(Whole::<R>::from(answer))
        },
    )
}

#[derive(JsonSchema)]
struct Added {
    /// The task that was added.
    #[expect(dead_code, reason = "for the schema: the store writes the answer, which it keeps")]
    task: Task,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "for the schema: the store writes the answer, which it keeps")]
struct Updated {
    /// The task as it is now.
    task: Task,
    /// The fields that were given.
    changed: Vec<String>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "for the schema: the store writes the answer, which it keeps")]
struct Completed {
    /// The task, now done.
    task: Task,
    /// true when the task was done before this call.
    already_done: bool,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "for the schema: the store writes the answer, which it keeps")]
struct Deleted {
    /// The task as it was.
    deleted: Task,
}

#[derive(Deserialize, JsonSchema)]
struct ToAdd {
    /// What is to be done, in the user's own words and language, without phrases such as 'add a task to' or 'remind me
    /// to', and without the date. 1 to 500 characters.
    #[schemars(length(min = 1, max = MAX_DESCRIPTION))]
    description: String,
    /// When it is due: a date as YYYY-MM-DD, or an RFC 3339 date-time with its offset, such as
    /// 2026-03-31T09:00:00+02:00. Work out words such as 'tomorrow' yourself. Leave it out when the user gave no date.
    due: Option<String>,
    /// How urgent it is. normal when left out; low or high only when the user says so.
    priority: Option<Priority>,
    /// Details that do not belong into the description. At most 4000 characters.
    #[schemars(length(max = 4000))]
    notes: Option<String>,
}

fn add(given: ToAdd) -> Result<Change, ToolError> {
    Ok(Change::Add(NewTask {
        id: Uuid::now_v7().to_string(),
        description: given.description,
        due: given.due.map(|due| Due::parse("due", &due)).transpose()?,
        priority: given.priority.unwrap_or(Priority::Normal),
        notes: given.notes.filter(|notes| !notes.is_empty()),
    }))
}

#[derive(Deserialize, JsonSchema)]
struct ToUpdate {
    #[serde(flatten)]
    target: ToFind,
    /// The new description. 1 to 500 characters.
    #[schemars(length(min = 1, max = MAX_DESCRIPTION))]
    description: Option<String>,
    /// The new due date: YYYY-MM-DD, or an RFC 3339 date-time with its offset, such as 2026-03-31T09:00:00+02:00. null
    /// removes the due date.
    #[serde(default, deserialize_with = "nullable")]
    #[schemars(extend("x-null" = true))]
    due: Option<Option<String>>,
    /// The new priority.
    priority: Option<Priority>,
    /// The new notes, in place of the old ones. At most 4000 characters. null removes them.
    #[serde(default, deserialize_with = "nullable")]
    #[schemars(length(max = 4000), extend("x-null" = true))]
    notes: Option<Option<String>>,
}

fn update(given: ToUpdate) -> Result<Change, ToolError> {
    let target = given.target.parse()?;
    let due = given.due.map(|due| due.map(|due| Due::parse("due", &due)).transpose());
    let patch = Patch {
        description: given.description,
        due: due.transpose()?,
        priority: given.priority,
        notes: given.notes.map(|notes| notes.filter(|notes| !notes.is_empty())),
    };
    if patch == Patch::default() {
        return Err(ToolError::new(
            Code::NothingToChange,
            "Say what to change: give at least one of `description`, `due`, `priority`, `notes`.",
        ));
    }
    Ok(Change::Update(target, patch))
}

/// The target task: by id, or by the words of its description.
#[derive(Deserialize, JsonSchema)]
struct ToFind {
    /// The task's id, exactly as list_tasks or another tool gave it. Give either id or title, never both; prefer the id
    /// when it is known.
    #[schemars(length(min = 1, max = 200))]
    id: Option<String>,
    /// The task's description, or a part of it that no other task contains; upper and lower case are the same. Use it
    /// only when no id is known.
    #[schemars(length(min = 1, max = MAX_DESCRIPTION))]
    title: Option<String>,
}

impl ToFind {
    fn parse(self) -> Result<Target, ToolError> {
        match (self.id, self.title) {
            (Some(id), None) => Ok(Target::Id(id)),
            (None, Some(title)) => Ok(Target::Title(title)),
            (None, None) => Err(ToolError::new(
                Common::MissingArgument,
                "Say which task: give its `id` or its `title`.",
            )
            .about("id")),
            (Some(_), Some(_)) => {
                Err(ToolError::new(Common::InvalidArgument, "Give either `id` or `title`, not both.").about("title"))
            }
        }
    }
}

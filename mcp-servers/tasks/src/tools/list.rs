//! `list_tasks`

use gavel_mcp_base::{Answer, Arguments, ToolError, UserId};
use rmcp::model::{JsonObject, Tool};
use serde::Serialize;
use serde_json::json;

use super::MAX_DESCRIPTION;
use super::schema::{self, Behaviour};
use crate::cursor;
use crate::due::Due;
use crate::store::Store;
use crate::task::{Filter, Place, Task};
use crate::text;

pub(super) const NAME: &str = "list_tasks";

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 200;

const DESCRIPTION: &str = "\
List tasks of the user: the open ones unless status says otherwise. Use it to show the list, to \
answer questions about it, and to find the id of a task before changing it. Order: open tasks before \
done ones; open tasks by due date, earliest first, those without a due date last, then high priority \
first, then oldest first; done tasks by when they were done, latest first. position numbers the tasks \
in this order from 1: 'the first one' is position 1. total counts all that match; when next_cursor \
is present there are more: call again with it and the same filters.";

const STATUSES: [(&str, (bool, bool)); 3] = [("open", (true, false)), ("done", (false, true)), ("all", (true, true))];

pub(super) fn tool() -> Tool {
    schema::tool(
        NAME,
        "List tasks",
        DESCRIPTION,
        schema::input(
            json!({
                "status": {
                    "type": "string",
                    "enum": ["open", "done", "all"],
                    "description": "Which tasks: open (when left out), done, or all."
                },
                "query": {
                    "type": "string",
                    "maxLength": MAX_DESCRIPTION,
                    "description": "Only tasks whose description or notes contain this text; upper \
                                    and lower case are the same. Give one word rather than a sentence."
                },
                "due_before": {
                    "type": "string",
                    "description": "Only tasks due before this: a date as YYYY-MM-DD (the day itself \
                                    not included) or an RFC 3339 date-time. For one day give the day \
                                    before as due_after and the day after as due_before."
                },
                "due_after": {
                    "type": "string",
                    "description": "Only tasks due after this: a date as YYYY-MM-DD (the day itself \
                                    not included) or an RFC 3339 date-time."
                },
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_LIMIT,
                    "description": "At most this many tasks in the answer. 50 when left out."
                },
                "cursor": {
                    "type": "string",
                    "description": "next_cursor of the answer before, to get the tasks that follow."
                }
            }),
            &[],
        ),
        schema::output(
            schema::properties([
                ("tasks", json!({ "type": "array", "items": schema::listed_task() })),
                (
                    "total",
                    json!({
                        "type": "integer",
                        "minimum": 0,
                        "description": "How many tasks match, on all pages together."
                    }),
                ),
                (
                    "next_cursor",
                    json!({ "type": "string", "description": "Present when more tasks follow." }),
                ),
            ]),
            &["tasks", "total"],
        ),
        Behaviour {
            read_only: true,
            destructive: false,
            idempotent: true,
            open_world: false,
        },
    )
}

/// A request for one page.
#[derive(Debug)]
pub(crate) struct ListRequest {
    filter: Filter,
    limit: u32,
    after: Place,
    position: u64,
}

pub(super) fn parse(arguments: Option<JsonObject>) -> Result<ListRequest, ToolError> {
    let arguments = Arguments::new(
        arguments,
        &["status", "query", "due_before", "due_after", "limit", "cursor"],
    )?;
    let (open, done) = arguments.choice("status", &STATUSES)?.unwrap_or((true, false));
    let bound = |name| -> Result<Option<Due>, ToolError> {
        let text = arguments.text(name, 64)?;
        text.map(|text| Due::parse(name, &text)).transpose()
    };
    let filter = Filter {
        open,
        done,
        query: arguments
            .text("query", MAX_DESCRIPTION)?
            .map(|query| text::key(&query))
            .filter(|query| !query.is_empty()),
        due_before: bound("due_before")?.map(Due::start),
        due_after: bound("due_after")?.map(Due::end),
    };
    let (after, position) = match arguments.text("cursor", 1000)? {
        Some(cursor) => cursor::read(&filter, &cursor)?,
        None => (Place::start(), 0),
    };
    Ok(ListRequest {
        filter,
        limit: arguments.integer("limit", 1, MAX_LIMIT)?.unwrap_or(DEFAULT_LIMIT),
        after,
        position,
    })
}

#[derive(Serialize)]
struct Page {
    tasks: Vec<Listed>,
    total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize)]
struct Listed {
    position: u64,
    #[serde(flatten)]
    task: Task,
}

pub(crate) async fn page(store: &Store, user: &UserId, request: &ListRequest) -> Result<Answer, sqlx::Error> {
    let ListRequest {
        filter,
        limit,
        after,
        position,
    } = request;
    // One task more than shown reveals whether more follow.
    let (mut found, total) = store.list(user, filter, after, i64::from(*limit) + 1).await?;
    let shown = (*limit as usize).min(found.len());
    let more = found.len() > shown;
    found.truncate(shown);
    let next_cursor = found
        .last()
        .filter(|_| more)
        .map(|(_, place)| cursor::write(filter, place, position + shown as u64));
    let tasks = found
        .into_iter()
        .zip(position + 1..)
        .map(|((task, _), position)| Listed { position, task })
        .collect();
    Ok(Answer::of(&Page {
        tasks,
        total,
        next_cursor,
    }))
}

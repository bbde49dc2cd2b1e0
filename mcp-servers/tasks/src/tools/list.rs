//! `list_tasks`

use std::sync::Arc;

use gavel_mcp_base::{Call, Fault, Kind, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MAX_DESCRIPTION;
use crate::cursor;
use crate::due::Due;
use crate::server::Tasks;
use crate::task::{Filter, Place, Task};
use crate::text;

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 200;

const DESCRIPTION: &str = "\
List tasks of the user: the open ones unless status says otherwise. Use it to show the list, to \
answer questions about it, and to find the id of a task before changing it. Order: open tasks before \
done ones; open tasks by due date, earliest first, those without a due date last, then high priority \
first, then oldest first; done tasks by when they were done, latest first. position numbers the tasks \
in this order from 1: 'the first one' is position 1. total counts all that match; when next_cursor \
is present there are more: call again with it and the same filters.";

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// Which tasks: open (when left out), done, or all.
    status: Option<Statuses>,
    /// Only tasks whose description or notes contain this text; upper and lower case are the same. Give one word rather
    /// than a sentence.
    #[schemars(length(max = MAX_DESCRIPTION))]
    query: Option<String>,
    /// Only tasks due before this: a date as YYYY-MM-DD (the day itself not included) or an RFC 3339 date-time. For one
    /// day give the day before as due_after and the day after as due_before.
    due_before: Option<String>,
    /// Only tasks due after this: a date as YYYY-MM-DD (the day itself not included) or an RFC 3339 date-time.
    due_after: Option<String>,
    /// At most this many tasks in the answer. 50 when left out.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    limit: Option<u32>,
    /// next_cursor of the answer before, to get the tasks that follow.
    cursor: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Statuses {
    Open,
    Done,
    All,
}

#[derive(Serialize, JsonSchema)]
struct Page {
    tasks: Vec<Listed>,
    /// How many tasks match, on all pages together.
    total: u64,
    /// Present when more tasks follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Listed {
    /// The task's number in the list, from 1.
    #[schemars(range(min = 1))]
    position: u64,
    #[serde(flatten)]
    task: Task,
}

pub(super) fn tool() -> Tool<Tasks> {
    Tool::new("list_tasks", "List tasks", DESCRIPTION, Kind::Reads, list)
}

async fn list(tasks: Arc<Tasks>, call: Call<Arguments>) -> Result<Page, Fault> {
    let user = tasks.identity.user(&call.meta)?;
    let given = call.arguments;
    let status = given.status.unwrap_or(Statuses::Open);
    let bound = |name, text: Option<String>| text.map(|text| Due::parse(name, &text)).transpose();
    let filter = Filter {
        open: status != Statuses::Done,
        done: status != Statuses::Open,
        query: given
            .query
            .map(|query| text::key(&query))
            .filter(|query| !query.is_empty()),
        due_before: bound("due_before", given.due_before)?.map(Due::start),
        due_after: bound("due_after", given.due_after)?.map(Due::end),
    };
    let (after, position) = match given.cursor {
        Some(cursor) => cursor::read(&filter, &cursor)?,
        None => (Place::start(), 0),
    };
    let limit = given.limit.unwrap_or(DEFAULT_LIMIT);
    // One task more than shown reveals whether more follow.
    let reading = tasks.store.list(&user, &filter, &after, i64::from(limit) + 1);
    let (mut found, total) = tasks.read(reading).await?;
    let shown = (limit as usize).min(found.len());
    let more = found.len() > shown;
    found.truncate(shown);
    let last = found.last().filter(|_| more);
    let next_cursor = last.map(|(_, place)| cursor::write(&filter, place, position + shown as u64));
    let listed = found.into_iter().zip(position + 1..);
    Ok(Page {
        tasks: listed.map(|((task, _), position)| Listed { position, task }).collect(),
        total,
        next_cursor,
    })
}

//! A user's tasks before and after a decision, through the task tools.

use serde::Deserialize;
use serde_json::{Map, json};

use crate::Gavel;
use crate::chat::Task;

#[derive(Deserialize)]
struct Page {
    tasks: Vec<Task>,
    next_cursor: Option<String>,
}

/// Creates tasks, in this order.
pub(crate) async fn seed(gavel: &dyn Gavel, user: &str, seeds: &[Task]) -> Result<(), String> {
    for seed in seeds {
        let mut arguments = Map::new();
        arguments.insert("description".to_owned(), seed.description.as_str().into());
        for (name, value) in [("due", &seed.due), ("priority", &seed.priority), ("notes", &seed.notes)] {
            arguments.extend(value.as_deref().map(|value| (name.to_owned(), value.into())));
        }
        let added = gavel.call_tool(user, "add_task", arguments).await?;
        if seed.done {
            let id = added
                .pointer("/task/id")
                .cloned()
                .ok_or("add_task answered without an id")?;
            gavel
                .call_tool(user, "complete_task", Map::from_iter([("id".to_owned(), id)]))
                .await?;
        }
    }
    Ok(())
}

/// All tasks, done ones included.
pub(crate) async fn all(gavel: &dyn Gavel, user: &str) -> Result<Vec<Task>, String> {
    let mut tasks = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut arguments = Map::from_iter([("status".to_owned(), json!("all")), ("limit".to_owned(), json!(200))]);
        arguments.extend(cursor.take().map(|cursor| ("cursor".to_owned(), cursor.into())));
        let page = gavel.call_tool(user, "list_tasks", arguments).await?;
        let page: Page = serde_json::from_value(page).map_err(|error| format!("list_tasks: {error}"))?;
        tasks.extend(page.tasks);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(tasks);
        }
    }
}

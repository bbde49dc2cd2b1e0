//! A user's tasks before and after a decision, through the task tools.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::adapters::mcp::Mcp;
use crate::domain::canonical;
use crate::domain::ids::{ActionId, DEFAULT_TENANT, UserId};
use crate::evaluation::{ObservedTask, Seed};
use crate::ports::tools::{CallReply, CallRequest, Tools};

/// The task tools, called directly by the evaluation.
pub(in crate::cli) struct Tasks {
    mcp: Arc<Mcp>,
}

#[derive(Deserialize)]
struct Page {
    tasks: Vec<Listed>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    description: String,
    status: String,
    due: Option<String>,
    priority: Option<String>,
    notes: Option<String>,
}

impl Tasks {
    pub(in crate::cli) fn new(mcp: Arc<Mcp>) -> Self {
        Self { mcp }
    }

    pub(in crate::cli) async fn seed(&self, user: &UserId, seeds: &[Seed]) -> Result<(), String> {
        for seed in seeds {
            let mut arguments = Map::new();
            arguments.insert("description".to_owned(), seed.description.as_str().into());
            for (name, value) in [("due", &seed.due), ("priority", &seed.priority), ("notes", &seed.notes)] {
                arguments.extend(value.as_deref().map(|value| (name.to_owned(), value.into())));
            }
            let added = self.call(user, "add_task", arguments).await?;
            if seed.done {
                let id = added
                    .pointer("/task/id")
                    .cloned()
                    .ok_or("add_task answered without an id")?;
                self.call(user, "complete_task", Map::from_iter([("id".to_owned(), id)]))
                    .await?;
            }
        }
        Ok(())
    }

    pub(super) async fn all(&self, user: &UserId) -> Result<Vec<ObservedTask>, String> {
        let mut tasks = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut arguments = Map::from_iter([("status".to_owned(), json!("all")), ("limit".to_owned(), json!(200))]);
            arguments.extend(cursor.take().map(|cursor| ("cursor".to_owned(), cursor.into())));
            let page = self.call(user, "list_tasks", arguments).await?;
            let page: Page = serde_json::from_value(page).map_err(|error| format!("list_tasks: {error}"))?;
            tasks.extend(page.tasks.into_iter().map(observed));
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(tasks);
            }
        }
    }

    async fn call(&self, user: &UserId, name: &str, mut arguments: Map<String, Value>) -> Result<Value, String> {
        let catalog = self.mcp.catalog();
        let mut found = catalog.tools.iter().filter(|tool| *tool.name == *name);
        let tool = found.next().ok_or_else(|| format!("no server offers {name}"))?;
        if let Some(identity) = &tool.identity_argument {
            arguments.insert(identity.to_string(), user.as_str().into());
        }
        let id = ActionId::new();
        let text = id.to_string();
        let request = CallRequest {
            tool,
            arguments: &canonical::to_raw(&Value::Object(arguments)),
            tenant: DEFAULT_TENANT,
            user: user.as_str(),
            origin: "eval",
            run_id: &text,
            action_id: id,
            idempotency_key: &text,
            first_attempt_us: None,
            account: None,
            session: None,
            repository: None,
            repositories: None,
            deadline_us: None,
            traceparent: None,
            timeout: tool.timeout,
            cancel: &CancellationToken::new(),
            is_approved: false,
            hold: None,
        };
        match self.mcp.call(request).await {
            CallReply::Data(data) => serde_json::from_str(data.get()).map_err(|error| format!("{name}: {error}")),
            CallReply::NotSent(failure) | CallReply::Failed(failure) | CallReply::Unknown(failure) => {
                Err(format!("{name}: {}: {}", failure.code.as_str(), failure.message))
            }
        }
    }
}

fn observed(task: Listed) -> ObservedTask {
    ObservedTask {
        description: task.description,
        due: task.due,
        priority: task.priority,
        notes: task.notes,
        done: task.status == "done",
    }
}

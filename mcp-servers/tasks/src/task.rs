//! The task, and the requests about it.

use gavel_mcp_base::Moment;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use crate::due::Due;

// Whether a task is open or done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Open,
    Done,
}

// The priority of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, EnumString, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Priority {
    Low,
    Normal,
    High,
}

// A task as shown to its owner.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) description: String,
    pub(crate) status: Status,
    pub(crate) priority: Priority,
    /// YYYY-MM-DD, or an RFC 3339 date-time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) notes: Option<String>,
    pub(crate) created_at: Moment,
    pub(crate) updated_at: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) completed_at: Option<Moment>,
}

/// A task to add.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NewTask {
    pub(crate) id: String,
    pub(crate) description: String,
    pub(crate) due: Option<Due>,
    pub(crate) priority: Priority,
    pub(crate) notes: Option<String>,
}

/// The changed fields. `Some(None)` clears a field.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Patch {
    pub(crate) description: Option<String>,
    pub(crate) due: Option<Option<Due>>,
    pub(crate) priority: Option<Priority>,
    pub(crate) notes: Option<Option<String>>,
}

impl Patch {
    /// The names of the changed fields.
    pub(crate) fn fields(&self) -> Vec<&'static str> {
        let given = [
            ("description", self.description.is_some()),
            ("due", self.due.is_some()),
            ("priority", self.priority.is_some()),
            ("notes", self.notes.is_some()),
        ];
        let named = given.into_iter().filter(|(_, given)| *given);
        named.map(|(name, _)| name).collect()
    }
}

/// The target task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Target {
    Id(String),
    Title(String),
}

/// One request that changes the list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    Add(NewTask),
    Update(Target, Patch),
    Complete(Target),
    Delete(Target),
}

/// The filter of a list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Filter {
    pub(crate) open: bool,
    pub(crate) done: bool,
    pub(crate) query: Option<String>,
    pub(crate) due_before: Option<i64>,
    pub(crate) due_after: Option<i64>,
}

/// A place in the order of a list, which continues after it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Place {
    pub(crate) group: i64,
    pub(crate) time: i64,
    pub(crate) priority: i64,
    pub(crate) created_at: i64,
    pub(crate) id: String,
}

impl Place {
    /// Before every task.
    pub(crate) fn start() -> Self {
        Self {
            group: -1,
            time: 0,
            priority: 0,
            created_at: 0,
            id: String::new(),
        }
    }
}

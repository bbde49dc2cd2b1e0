//! The agents that come from files.

use crate::domain::definition::{Agents, SchemaSource};

/// The agents of a directory, as of the last valid state.
#[derive(Debug, Default)]
pub struct FileAgents {
    /// Where they were read from, for users.
    pub place: String,
    /// The valid agents.
    pub agents: Agents,
    /// The schemas that definitions may name.
    pub schemas: Vec<SchemaSource>,
    /// Increases with every change.
    pub generation: u64,
}

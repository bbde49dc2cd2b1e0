//! What a run knows of its agent.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::snapshot::DefinitionSnapshot;
use crate::domain::definition::Definition;
use crate::ports::actions::Actions;

/// What a run knows of its agent.
pub struct AgentContext {
    /// The agent's definition.
    pub definition: Arc<Definition>,
    /// The definitions that the run needs.
    pub snapshot: Arc<DefinitionSnapshot>,
    /// The inputs.
    pub input: Map<String, Value>,
    /// Depth: the number of agents above it.
    pub depth: u32,
    /// The store of grants.
    pub actions: Arc<dyn Actions>,
}

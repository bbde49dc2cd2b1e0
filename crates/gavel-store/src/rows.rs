//! What the value of a column depends on besides its row.

use super::config::ContentMode;
use super::db::Value;
use crate::domain::ids::{InstanceId, RunId};

/// What applies to every row that is written.
#[derive(Clone)]
pub(super) struct Writing {
    /// Who owns an open decision: this process, or the run.
    pub(super) owner: Value,
    pub(super) serves: Value,
    pub(super) content: ContentMode,
}

impl Writing {
    pub(super) fn new(owner: InstanceId, serves: Option<String>, content: ContentMode) -> Self {
        Self {
            owner: owner.into(),
            serves: Value::Text(serves.map(Into::into)),
            content,
        }
    }

    /// A run owns its decision.
    pub(super) fn owned_by(&self, run: RunId) -> Self {
        Self {
            owner: run.into(),
            ..self.clone()
        }
    }
}

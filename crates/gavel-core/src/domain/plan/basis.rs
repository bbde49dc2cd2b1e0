//! What a plan is made from besides the draft that the model hands in.

use super::{Draft, Plan, PlanError};
use crate::domain::ids::PlanningSessionId;

/// What the drafts of a run that plans are checked against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Basis {
    /// The session.
    pub session: PlanningSessionId,
    /// The tools that a task may name.
    pub tools: Vec<String>,
    /// The version that the draft refines; none for the first one.
    pub current: Option<Plan>,
}

impl Basis {
    /// Reads a draft, and makes the next version of the plan of it.
    ///
    /// # Errors
    /// All errors of the draft, each with its place.
    pub fn plan(&self, draft: &str) -> Result<(Draft, Plan), Vec<PlanError>> {
        let read = serde_json::from_str::<Draft>(draft);
        let mut draft = read.map_err(|error| vec![PlanError::new("", error.to_string())])?;
        draft.forget_repeated_ids();
        let plan = Plan::of(draft.clone(), self.session, self.current.as_ref(), &self.tools)?;
        Ok((draft, plan))
    }
}

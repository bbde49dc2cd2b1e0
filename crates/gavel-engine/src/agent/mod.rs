//! Agents: runs built from definitions, and runs that call other agents (D-R1 to D-R6, X-15).
//!
//! A child run has its own journal, decision and limits. It shares with its parent the call that it answers, the
//! parent's time limit and cancellation, and the lease of the outermost run.

mod call;
mod drive;
mod finish;
mod fresh;
mod history;
mod outcome;
mod prepare;
mod running;
mod settings;
mod summary;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

pub use self::finish::Ended;
pub use self::prepare::Given;
pub use fresh::Fresh;
pub use running::{Begins, Running, Unfinished};
pub use settings::{Left, Round, Settings};

pub use super::limits::OnReject;

use super::run::Engine;
use crate::domain::definition::{Definition, Provider};
use crate::ports::actions::Actions;
use crate::ports::model::Model;
use crate::ports::runs::Runs;

/// What every agent's run uses.
pub struct Agents {
    /// Model, tools, decision log and clock.
    pub engine: Engine,
    /// Models by provider, for definitions that name one.
    pub models: Models,
    /// The store of runs.
    pub runs: Arc<dyn Runs>,
    /// The store of approval requests and their resolutions.
    pub actions: Arc<dyn Actions>,
    /// How long an approval request is valid.
    pub approvals_expire: Duration,
    /// The runs that this process executes.
    pub running: Running,
}

/// The configured models of Google's services.
#[derive(Clone, Default)]
pub struct Models {
    /// The Developer API.
    pub gemini: Option<Arc<dyn Model>>,
    /// Vertex AI.
    pub vertex: Option<Arc<dyn Model>>,
    /// Does one model answer for all others (`GEMINI_MODEL=demo`)?
    pub one_for_all: bool,
}

impl Models {
    /// The model a definition asks for, if it names a provider.
    ///
    /// # Errors
    /// The provider is not configured; the error names the settings to set.
    pub fn of(&self, definition: &Definition) -> Result<Option<&Arc<dyn Model>>, String> {
        let (model, name, settings) = match definition.provider {
            None => return Ok(None),
            Some(_) if self.one_for_all => return Ok(None),
            Some(Provider::Gemini) => (&self.gemini, "gemini", "GEMINI_API_KEY"),
            Some(Provider::Vertex) => (&self.vertex, "vertex", "VERTEX_AI_PROJECT_ID and VERTEX_AI_LOCATION"),
        };
        match model {
            Some(model) => Ok(Some(model)),
            None => Err(format!("its model provider {name} is not configured; set {settings}")),
        }
    }
}

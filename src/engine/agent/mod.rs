//! Agents: a definition made into a run, and runs that call other agents (REQUIREMENTS D-R1 to D-R6, X-15).
//!
//! A run that an agent calls has a journal, a record and limits of its own; what binds it to its caller is the call it
//! answers, the caller's time, its cancellation, and the lease of the outermost run, under which all of them are done.

mod bundle;
mod call;
mod drive;
mod ended;
mod history;
mod inflate;
mod running;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::Mutex;

pub use bundle::{Bundle, Member};
pub(super) use call::{call, cancel_called, go_on_with, judge};
pub use ended::Ended;
pub use running::{Begins, Running, Unfinished};
pub use settings::{Left, Round, Settings};

pub use super::limits::OnReject;

use super::Engine;
use crate::domain::definition::{Definition, Flow, Provider};
use crate::domain::ids::ProjectId;
use crate::ports::actions::Actions;
use crate::ports::model::Model;
use crate::ports::runs::Runs;

/// What every agent's run uses.
pub struct Agents {
    /// Model, tools, record and time.
    pub engine: Engine,
    /// Models by provider, for definitions that name one.
    pub models: Models,
    /// Where runs are kept.
    pub runs: Arc<dyn Runs>,
    /// Where questions to people, and their answers, are kept.
    pub actions: Arc<dyn Actions>,
    /// How long a question stands.
    pub questions_stand: Duration,
    /// Those that this process works on.
    pub running: Running,
}

/// The models of Google's services that are set up.
#[derive(Clone, Default)]
pub struct Models {
    /// The Developer API.
    pub gemini: Option<Arc<dyn Model>>,
    /// Vertex AI.
    pub vertex: Option<Arc<dyn Model>>,
    /// Does one model answer in the place of all (`GEMINI_MODEL=demo`)?
    pub one_for_all: bool,
}

impl Models {
    /// The model a definition asks for, where it names a provider.
    ///
    /// # Errors
    /// It is not set up; says what is to be done.
    pub fn of(&self, definition: &Definition) -> Result<Option<&Arc<dyn Model>>, String> {
        let (model, name, settings) = match definition.provider {
            None => return Ok(None),
            Some(_) if self.one_for_all => return Ok(None),
            Some(Provider::Gemini) => (&self.gemini, "gemini", "GEMINI_API_KEY"),
            Some(Provider::Vertex) => (&self.vertex, "vertex", "VERTEX_AI_PROJECT_ID and VERTEX_AI_LOCATION"),
        };
        match model {
            Some(model) => Ok(Some(model)),
            None => Err(format!("its model provider {name} is not set up; set {settings}")),
        }
    }
}

/// An agent's run among agents.
pub struct Place {
    /// All of them.
    pub(super) agents: Arc<Agents>,
    /// Those it can lead to.
    pub(super) bundle: Arc<Bundle>,
    /// Its own.
    pub(super) definition: Arc<Definition>,
    /// Of which project.
    pub(super) project: ProjectId,
    /// What it was given.
    pub(super) input: Map<String, Value>,
    /// Its limits and place.
    pub(super) settings: Settings,
    /// Held while a run that it called is driven.
    pub(super) calling: Arc<Mutex<()>>,
}

impl Place {
    /// The flow it is, unless it asks a model itself.
    pub(super) fn flow(&self) -> Option<&Flow> {
        self.settings.flow(&self.definition)
    }
}

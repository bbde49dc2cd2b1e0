//! The surface of declared agents: they are triggered with inputs, and their runs are listed. A run itself is a matter
//! of [`super::runs`], a definition of [`super::definitions`].

use std::sync::Arc;
use std::time::Duration;

use chrono_tz::Tz;
use serde_json::{Map, Value};

use super::caller::Caller;
use super::decisions::{ListQuery, Page};
use super::definitions::Directory;
use super::request::RequestMeta;
use super::runs::{Begin, Begun, Origin, Runs};
use crate::api::problem::Code;
use crate::api::runs::AgentRun;
use crate::domain::definition::Definition;
use crate::domain::ids::{ProjectId, UserId};
use crate::domain::planning_session::PLANNING_AGENTS;
use crate::domain::policy::AGENT;
use crate::domain::text;
use crate::engine::agent::Settings;
use crate::surfaces::definitions::invalid_definition;
use crate::surfaces::problem::Problem;

/// The surface with everything it uses.
pub struct DeclaredAgents {
    runs: Arc<Runs>,
    directory: Arc<Directory>,
}

/// A request to run an agent.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// The project of the agent.
    pub project: ProjectId,
    /// The agent's name.
    pub agent: String,
    /// The inputs.
    pub inputs: Inputs,
    /// Replaces the definition's time limit.
    pub timeout: Option<Duration>,
    /// The user's time zone, if the caller named it, to interpret words like "tomorrow".
    pub time_zone: Option<Tz>,
    /// Metadata from the HTTP layer.
    pub meta: RequestMeta,
}

impl DeclaredAgents {
    /// Builds the surface.
    pub const fn new(runs: Arc<Runs>, directory: Arc<Directory>) -> Self {
        Self { runs, directory }
    }

    /// Creates and starts a run.
    ///
    /// # Errors
    /// There is no such agent, or it is invalid; its inputs are invalid; see [`Runs::begin`].
    pub async fn trigger(&self, caller: &Caller, user: UserId, trigger: Trigger) -> Result<Begun, Problem> {
        if let Some(before) = self.runs.begun_before(&trigger.meta).await? {
            return Ok(before);
        }
        let project = self.directory.project(&caller.tenant, &trigger.project).await?;
        let Some(agent) = project.agents.get(&trigger.agent) else {
            return Err(match project.broken.get(&trigger.agent) {
                Some(broken) => invalid_definition(broken.errors.clone()),
                None => Code::NotFound.into(),
            });
        };
        if PLANNING_AGENTS.contains(&trigger.agent.as_str()) {
            let detail = format!(
                "the agent {:?} works only in planning sessions, which bind it to one repository: POST /v1/sessions",
                trigger.agent
            );
            return Err(Problem::invalid("", detail));
        }
        let definition = &agent.definition;
        let inputs = trigger.inputs.named(definition)?;
        let mut settings = Settings::top(definition, trigger.timeout, trigger.meta.traceparent.clone());
        settings.zone = trigger.time_zone;
        let begin = Begin {
            surface: AGENT,
            origin: Origin::Trigger,
            agent: project.choose(trigger.project, &trigger.agent)?,
            inputs,
            settings,
            meta: trigger.meta,
        };
        self.runs.begin(caller, user, begin).await
    }

    /// A page of the runs of a project.
    ///
    /// # Errors
    /// The query is invalid; there is no such project; the store is unavailable.
    pub async fn runs(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        project: &ProjectId,
        query: ListQuery,
    ) -> Result<Page<AgentRun>, Problem> {
        self.directory.project(&caller.tenant, project).await?;
        self.runs.list(caller, user, project, query).await
    }
}

// The inputs in a request that triggers an agent.

/// The inputs of an agent.
#[derive(Clone, Debug)]
pub enum Inputs {
    /// Inputs by name.
    Named(Map<String, Value>),
    /// A text, for an agent with a single text input.
    Text(String),
}

impl Inputs {
    /// The inputs by name.
    ///
    /// # Errors
    /// The inputs are a text, and the agent has no single text input.
    fn named(self, definition: &Definition) -> Result<Map<String, Value>, Problem> {
        let text = match self {
            Self::Named(inputs) => return Ok(inputs),
            Self::Text(text) => text,
        };
        if let Some(name) = definition.text_input() {
            return Ok(Map::from_iter([(name.to_owned(), Value::from(text))]));
        }
        let names: Vec<_> = definition.inputs.keys().map(String::as_str).collect();
        let allowed = match names.is_empty() {
            true => "no body, or {}".to_owned(),
            false => format!("a JSON object of its inputs: {}", names.join(", ")),
        };
        let detail = format!(
            "is a text, but {} takes several inputs, or no text; allowed: {allowed}",
            definition.name
        );
        Err(Problem::invalid("", text::capped(&detail, LONGEST_DETAIL)))
    }
}

/// Longest error message about a body, in bytes: it may name hundreds of inputs.
const LONGEST_DETAIL: usize = 2 << 10;

//! Begins runs, and finds those that the same request began before.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::start::{Begun, How, Start};
use super::{RunError, Runs, conversation};
use crate::api::problem::FieldError;
use crate::domain::canonical;
use crate::domain::definition::ArgumentError;
use crate::domain::ids::{ProjectId, RunId, UserId};
use crate::engine::agent::{Fresh, Given, Settings};
use crate::engine::snapshot::DefinitionSnapshot;
use crate::ports::claims::{Claimant, Claimed};
use crate::ports::records::OpenDecision;
use crate::ports::runs::{InSession, InThread, NewRun, Origin, Parent};
use crate::surfaces::caller::Caller;
use crate::surfaces::request::{Claim, RequestMeta};
use crate::surfaces::{OutcomeUnknown, StoreFailure};

/// A run to begin, with what its surface decides about it.
#[derive(Clone, Debug)]
pub struct Begin {
    /// The name of its surface in the decision log and in policies.
    pub surface: &'static str,
    /// Where it comes from.
    pub origin: Origin<InThread, Parent, InSession>,
    /// The project of the agent.
    pub project: ProjectId,
    /// The agent's name.
    pub agent: Arc<str>,
    /// The version of its definition, where it has any.
    pub version: Option<i64>,
    /// The definitions that it needs, with its own.
    pub snapshot: Arc<DefinitionSnapshot>,
    /// The inputs, to be checked against the definition.
    pub inputs: Map<String, Value>,
    /// Its limits and settings.
    pub settings: Settings,
    /// True if the caller does not wait for the run.
    pub background: bool,
    /// Metadata from the HTTP layer.
    pub meta: RequestMeta,
}

impl Runs {
    /// Creates and starts a run.
    ///
    /// # Errors
    /// The inputs are invalid; otherwise see [`RunError`]. Later errors are reported by the run itself.
    pub async fn begin(self: &Arc<Self>, caller: &Caller, user: UserId, begin: Begin) -> Result<Begun, RunError> {
        let id = RunId::new();
        let own = begin.snapshot.get(&begin.agent).ok_or(StoreFailure::NotFound)?;
        let inputs = own.definition.check_arguments(begin.inputs);
        let inputs = inputs.map_err(|errors| RunError::Invalid(errors.into_iter().map(field).collect()))?;
        let inputs = Value::Object(inputs);
        let input: Arc<RawValue> = Arc::from(canonical::to_raw(&inputs));
        let mut new = NewRun {
            id,
            project: begin.project,
            agent: begin.agent,
            version: begin.version,
            decision: OpenDecision {
                id: id.decision(),
                tenant: caller.tenant.clone(),
                surface: begin.surface,
                user,
                conversation: match &begin.origin {
                    Origin::Thread(place) => conversation(place.thread),
                    Origin::Session(place) => conversation(place.session),
                    Origin::Trigger | Origin::Called(_) => conversation(id),
                },
                message: Arc::from(input.get()),
                definition_hash: Arc::clone(&own.definition.hash),
                requested_model: self.agents.requested_model(&own.definition),
                request_id: Arc::clone(&begin.meta.request_id),
                created_at: self.now_us(),
            },
            origin: begin.origin,
            snapshot: begin.snapshot.snapshot(),
            input,
            settings: begin.settings.to_raw(),
            entries: Vec::new(),
            queued: begin.background,
            claim: begin.meta.idempotency,
        };
        let given = match inputs {
            Value::Object(input) if !new.queued => Some(Given {
                bundle: begin.snapshot,
                settings: begin.settings,
                input,
            }),
            _ => None,
        };
        let fresh = given.map(|given| Fresh::of(&self.agents, &mut new, given));
        let start = Start {
            run: id,
            queued: new.queued,
            decision: new.decision.clone(),
            how: How::New(Box::new(new)),
            fresh,
        };
        self.start(start, begin.meta.shed).await
    }

    /// The run that the same request created before. It uses no quota, and is found even if the request could create no
    /// run now. If two such requests arrive at once, one creates the run: writing the row decides which one.
    ///
    /// # Errors
    /// The key was used with another request; the store is unavailable.
    pub async fn begun_before(&self, meta: &RequestMeta) -> Result<Option<Begun>, StoreFailure> {
        let Some(key) = &meta.idempotency else {
            return Ok(None);
        };
        match self.agents.runs.claimed(key).await? {
            None | Some(Claimed::New) => Ok(None),
            Some(Claimed::Run(run)) => Ok(Some(Begun::earlier(run))),
            // The scope names the route, so no chat request has claimed it.
            Some(Claimed::Mismatch | Claimed::Running | Claimed::Answered(_)) => Err(StoreFailure::KeyReused),
        }
    }

    /// Has the same request claimed its key before, for something that is no run?
    ///
    /// # Errors
    /// The key was used with another request; the store is unavailable.
    pub(crate) async fn has_claimed(&self, meta: &RequestMeta) -> Result<bool, StoreFailure> {
        let Some(key) = &meta.idempotency else {
            return Ok(false);
        };
        match self.agents.runs.claimed(key).await? {
            None | Some(Claimed::New) => Ok(false),
            Some(Claimed::Mismatch) => Err(StoreFailure::KeyReused),
            Some(Claimed::Run(_) | Claimed::Running | Claimed::Answered(_)) => Ok(true),
        }
    }

    /// Claims the idempotency key of a request about a run that is harmless to repeat.
    pub(crate) async fn claim(
        &self,
        key: Option<&Claim>,
        run: RunId,
        unknown: OutcomeUnknown,
    ) -> Result<(), StoreFailure> {
        let Some(key) = key else { return Ok(()) };
        let recorder = &self.agents.engine.recorder;
        match recorder.claim(key.clone(), Claimant::Run(run)).await {
            Ok(Claimed::New) => Ok(()),
            Ok(Claimed::Run(_) | Claimed::Mismatch | Claimed::Running | Claimed::Answered(_)) => {
                Err(StoreFailure::KeyReused)
            }
            Err(error) => Err(unknown.after(&error)),
        }
    }
}

/// The place of an input is its name, in the body of the request.
fn field(error: ArgumentError) -> FieldError {
    let pointer = match error.name.is_empty() {
        true => String::new(),
        false => format!("/{}", error.name),
    };
    FieldError::new(pointer, error.detail)
}

//! The chat surface: one request, one decision, no state in between.

mod answer;
mod conclude;
pub mod request;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use futures_util::FutureExt;
use request::ChatRequest;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::field::{Empty, display};
use tracing::{Instrument, Span};

pub use self::conclude::retry_after;
use super::caller::Caller;
use super::request::RequestMeta;
use crate::api::chat::AgentDecision;
use crate::api::events::Event;
use crate::api::problem::{Code, FieldError};
use crate::domain::budget::{Budget, Pool};
use crate::domain::decision::Outcome;
use crate::domain::definition::{Approval, Constitution};
use crate::domain::ids::{ActionId, DecisionId, UserId};
use crate::domain::journal::Entry;
use crate::domain::policy;
pub use crate::engine::EventSink;
use crate::engine::verdict::VerdictFunction;
use crate::engine::{Context, Durability, Ending, Engine, Limits, Record, Run, Strategy, Toolset, context, derive};
use crate::ports::claims::{Claimant, Claimed};
use crate::ports::quota::Quota;
pub use crate::ports::quota::QuotaState;
use crate::ports::records::{OpenDecision, RecordError, StoredAnswer};
use crate::surfaces::problem::Problem;

/// The surface with everything it uses.
pub struct Chat {
    engine: Engine,
    quota: Arc<dyn Quota>,
    constitution: Constitution,
    system: Arc<str>,
    /// The model that every message asks.
    requested_model: Arc<str>,
    limits: Limits,
    toolset: ArcSwapOption<Toolset>,
    /// The generation of the catalog for which missing tools were logged.
    logged_missing: AtomicU64,
    admission: Arc<Budget>,
    running: TaskTracker,
    stop: CancellationToken,
}

/// A recorded decision, ready to be sent.
#[derive(Debug)]
pub struct Answer {
    /// 200, 429 or 503.
    pub status: u16,
    /// The decision as JSON.
    pub body: Arc<str>,
    /// The decision itself; absent when the stored answer of an earlier request is repeated.
    pub decision: Option<AgentDecision>,
    /// The caller's quota after this request.
    pub quota: Option<QuotaState>,
}

/// An accepted request, before the model is asked.
struct Accepted {
    request: ChatRequest,
    record: OpenDecision,
    meta: RequestMeta,
    opened: bool,
    /// May it have had an effect?
    acted: bool,
    quota: Option<QuotaState>,
    began: Instant,
}

impl Chat {
    /// Builds the surface. `max_in_flight` requests run at once; further ones are rejected.
    pub fn new(engine: Engine, quota: Arc<dyn Quota>, constitution: Constitution, max_in_flight: usize) -> Arc<Self> {
        let limits = Limits {
            iterations: Some(constitution.limits.iterations),
            time: Some(constitution.limits.deadline),
            ask: constitution.limits.deadline,
            ..Limits::CHAT
        };
        Arc::new(Self {
            requested_model: engine.model.requested(&constitution.definition.model).into(),
            engine,
            quota,
            system: Arc::from(constitution.system_prompt.as_str()),
            limits,
            toolset: ArcSwapOption::empty(),
            logged_missing: AtomicU64::new(u64::MAX),
            admission: Budget::new(Pool::Chats, Pool::Chats.limits(max_in_flight as u64)),
            running: TaskTracker::new(),
            stop: CancellationToken::new(),
            constitution,
        })
    }

    /// The hash of the current constitution, which every decision contains.
    pub fn definition_hash(&self) -> &str {
        &self.constitution.definition.hash
    }

    /// Waits until all decisions in progress are made, recorded and answered. New requests are rejected.
    pub async fn drained(&self) {
        self.running.close();
        self.running.wait().await;
    }

    /// How many decisions are in progress.
    pub fn under_way(&self) -> usize {
        self.running.len()
    }

    /// Interrupts all decisions in progress. Each is still recorded and answered, as `ERROR:INTERNAL`.
    pub fn cut_short(&self) {
        self.stop.cancel();
    }

    /// Decides. The work continues when the caller drops this future: a client that disconnects cannot lose a decision.
    ///
    /// # Errors
    /// [`Problem`]; every other problem is a decision.
    pub async fn decide(
        self: &Arc<Self>,
        caller: &Caller,
        user: UserId,
        request: ChatRequest,
        meta: RequestMeta,
        events: Option<EventSink>,
    ) -> Result<Answer, Problem> {
        self.check_subset(&request)?;
        let accepted = self.accept(caller, user, request, meta);
        let span = begin(&self.constitution.definition.name, &self.engine, &self.requested_model);
        let id = accepted.record.id;
        let task = self.running.spawn(Arc::clone(self).traced(accepted, events, span));
        match task.await {
            Ok(answer) => answer,
            // Panics are caught earlier; this one occurred while one was being recorded, or the runtime is ending.
            Err(error) => {
                tracing::error!(decision_id = %id, %error, "a chat request ended without an answer");
                Err(self.lost(id))
            }
        }
    }

    fn accept(&self, caller: &Caller, user: UserId, mut request: ChatRequest, meta: RequestMeta) -> Accepted {
        let id = DecisionId::new();
        let conversation = request.conversation.take().unwrap_or_else(|| id.into());
        let whose = (caller.tenant.clone(), user);
        let record = OpenDecision {
            conversation,
            message: Arc::from(request.message.as_str()),
            definition_hash: Arc::clone(&self.constitution.definition.hash),
            requested_model: Arc::clone(&self.requested_model),
            time_zone: Some(Arc::from(request.time_zone.name())),
            tools_subset: request.tools.clone(),
            history_entries: u32::try_from(request.history.len()).unwrap_or(u32::MAX),
            ..meta.open(whose, policy::CHAT, id, self.engine.clock.now_us())
        };
        Accepted {
            request,
            record,
            meta,
            opened: false,
            acted: false,
            quota: None,
            began: self.engine.clock.instant(),
        }
    }

    /// Runs the work in its span.
    async fn traced(
        self: Arc<Self>,
        mut accepted: Accepted,
        events: Option<EventSink>,
        span: Span,
    ) -> Result<Answer, Problem> {
        let work = async {
            match AssertUnwindSafe(self.go(&mut accepted, events)).catch_unwind().await {
                Ok(answer) => answer,
                Err(_) => self.broken(&accepted).await,
            }
        };
        let answer = work.instrument(span.clone()).await;
        ended(&span, &answer);
        answer
    }

    /// Handles a panic outside the engine's run, which catches its own. If no call was sent, the request is recorded
    /// and answered like any other failure. Otherwise only the decision log knows what was done, and recovery closes
    /// the decision.
    async fn broken(&self, accepted: &Accepted) -> Result<Answer, Problem> {
        let id = accepted.record.id;
        tracing::error!(decision_id = %id, acted = accepted.acted, "a chat request panicked");
        if accepted.acted {
            return Err(self.lost(id));
        }
        let mut record = record(accepted);
        record.fault_detail = Some(Arc::from("the service failed outside of the run"));
        let derived = derive::derive(&record.journal, &Ending::Broken);
        let response = self.fixed_reply(derived.outcome, &record.journal);
        self.conclude(record, derived, response, accepted.meta.clone(), accepted.quota)
            .await
    }

    /// The outcome is unknown to this process. If the row is open, recovery closes it.
    fn lost(&self, id: DecisionId) -> Problem {
        self.engine.recorder.lose(id);
        Problem::unrecorded(id)
    }

    /// Checks idempotency, quota and admission, in this order, then runs.
    async fn go(&self, accepted: &mut Accepted, events: Option<EventSink>) -> Result<Answer, Problem> {
        self.engine.recorder.available().map_err(unavailable)?;
        if let Some(stored) = self.claim(accepted).await? {
            return Ok(Answer {
                status: stored.status,
                body: stored.body,
                decision: None,
                quota: None,
            });
        }
        let quota = self.quota.take(&accepted.record.tenant, &accepted.record.user).await;
        accepted.quota = Some(quota);
        if !quota.allowed {
            return self.refused(accepted, Outcome::RateLimited, None).await;
        }
        // Requests that arrive while the service drains must go to another replica.
        if self.running.is_closed() || accepted.meta.shed.is_some() {
            return self.refused(accepted, Outcome::Overloaded, None).await;
        }
        let (tenant, user) = (accepted.record.tenant.as_str(), accepted.record.user.as_str());
        let _place = match self.admission.take(tenant, user, 1) {
            Ok(place) => place,
            Err(exceeded) => {
                tracing::debug!(%exceeded, "a chat request was shed");
                return self.refused(accepted, Outcome::Overloaded, None).await;
            }
        };
        if let Some(why) = accepted.request.over_limit() {
            return self.refused(accepted, Outcome::UserInput, Some(why)).await;
        }
        self.run(accepted, events).await
    }

    async fn claim(&self, accepted: &mut Accepted) -> Result<Option<StoredAnswer>, Problem> {
        let Some(key) = &accepted.meta.idempotency else {
            return Ok(None);
        };
        let by = Claimant::Decision(Box::new(accepted.record.clone()));
        match self.engine.recorder.claim(key.clone(), by).await.map_err(unavailable)? {
            Claimed::New => {
                accepted.opened = true;
                Ok(None)
            }
            Claimed::Answered(stored) => Ok(Some(stored)),
            // The scope names the route, so no request for a run has claimed it.
            Claimed::Mismatch | Claimed::Run(_) => Err(Code::IdempotencyKeyReused.into()),
            Claimed::Running => Err(Code::StillRunning.into()),
        }
    }

    async fn run(&self, accepted: &mut Accepted, events: Option<EventSink>) -> Result<Answer, Problem> {
        let toolset = self
            .toolset_for(accepted.request.tools.as_deref(), accepted.began)
            .await;
        let said = context::message(
            &accepted.request.message,
            accepted.record.created_at,
            Some(accepted.request.time_zone),
            &toolset.missing,
        );
        let mut run = Run {
            record: Record {
                fault_detail: toolset.shortage().map(Arc::from),
                journal: vec![Entry::User(said)].into(),
                ..record(accepted)
            },
            context: Context {
                system: Arc::clone(&self.system),
                definition: Arc::clone(&self.constitution.definition),
                floor: Approval::Never,
                zone: None,
                toolset,
                bound: None,
                words: None,
                scope: None,
                history: std::mem::take(&mut accepted.request.history).into(),
                strategy: Strategy::Turns,
                limits: self.limits,
                traceparent: accepted.meta.traceparent.clone(),
                events,
                cancel: self.stop.child_token(),
                agent: None,
                children: None,
            },
        };
        if let Some(sink) = &mut run.context.events {
            sink.tell(Event::Started {
                decision_id: run.record.decision.id,
            });
        }
        // Until its intents are known.
        accepted.acted = true;
        let ended = self.engine.run(&mut run).await;
        let record = run.record;
        accepted.acted = !intended(&record).is_empty();
        let ending = match ended {
            Ok(ending) => ending,
            Err(error) => return Err(self.abandon(record, accepted.meta.clone(), error)),
        };
        let mut derived = derive::derive(&record.journal, &ending);
        let response = derived
            .words
            .take()
            .unwrap_or_else(|| self.fixed_reply(derived.outcome, &record.journal));
        self.conclude(record, derived, response, accepted.meta.clone(), accepted.quota)
            .await
    }
}

/// The record of a request, with an empty journal.
fn record(accepted: &Accepted) -> Record {
    let durability = Durability::Commits {
        opened: accepted.opened,
        intended: Vec::new(),
    };
    Record::new(accepted.record.clone(), durability, accepted.began)
}

/// The intents made durable so far.
fn intended(record: &Record) -> &[ActionId] {
    match &record.durability {
        Durability::Commits { intended, .. } => intended,
        Durability::Log(_) => &[],
    }
}

fn unavailable(error: RecordError) -> Problem {
    tracing::error!(%error, "a request was rejected, since nothing can be recorded");
    Code::RecordUnavailable.into()
}

// The span of a decision, named by OpenTelemetry's conventions for agents. It contains the decision's id and outcome,
// but no content and no user.

/// Starts the span. `model` is the one that will be asked.
fn begin(agent: &str, engine: &Engine, model: &str) -> Span {
    tracing::debug_span!(
        "decision",
        otel.name = %format_args!("invoke_agent {agent}"),
        otel.kind = "internal",
        otel.status_code = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.provider.name = engine.model.provider(),
        gen_ai.agent.name = agent,
        gen_ai.request.model = model,
        gavel.decision.id = Empty,
        gavel.decision.type = Empty,
        gavel.decision.outcome = Empty,
        gavel.decision.iterations = Empty,
        gavel.decision.replayed = Empty,
        error.type = Empty,
    )
}

/// Records the outcome. A repeated answer is no decision of this request, so it has no id here.
fn ended(span: &Span, answer: &Result<Answer, Problem>) {
    if span.is_disabled() {
        return;
    }
    match answer {
        Ok(Answer { decision: None, .. }) => {
            span.record("gavel.decision.replayed", true);
        }
        Ok(Answer {
            decision: Some(decision),
            ..
        }) => {
            let outcome = decision.outcome_category;
            span.record("gavel.decision.id", display(decision.decision_id));
            span.record("gavel.decision.type", decision.decision_type.as_str());
            span.record("gavel.decision.outcome", outcome.as_str());
            span.record("gavel.decision.iterations", i64::from(decision.iterations));
            if outcome.as_str().starts_with("ERROR:") {
                failed(span, outcome.as_str());
            }
        }
        Err(error) => {
            if let Some(id) = error.decision() {
                span.record("gavel.decision.id", display(id));
            }
            failed(span, error.code.as_str());
        }
    }
}

fn failed(span: &Span, kind: &str) {
    span.record("error.type", kind);
    span.record("otel.status_code", "ERROR");
}

/// How long a request waits for the servers of its tools before it continues without them.
const SERVER_WAIT: Duration = Duration::from_secs(2);

impl Chat {
    /// The tools that the constitution lists, in its order.
    pub fn allowlist(&self) -> &[String] {
        &self.constitution.definition.tools
    }

    /// The tools on the allowlist that no server offers now, with the reason.
    pub fn unavailable_tools(&self) -> Vec<crate::engine::toolset::Missing> {
        self.whole_toolset().missing.clone()
    }

    fn check_subset(&self, request: &ChatRequest) -> Result<(), Problem> {
        let names = request.tools.as_deref().unwrap_or_default();
        let invalid = |(n, name): (usize, &String)| {
            let detail = if !self.allowlist().contains(name) {
                format!(
                    "{name:?} is not on the allowlist; allowed are {}",
                    self.allowlist().join(", ")
                )
            } else if names[..n].contains(name) {
                format!("{name:?} is given twice; allowed is each name once")
            } else {
                return None;
            };
            Some(FieldError::new(format!("/tools/{n}"), detail))
        };
        let errors: Vec<_> = names.iter().enumerate().filter_map(invalid).collect();
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Problem::from(errors))
        }
    }

    /// The tools for this request. Waits briefly for servers that are still being connected.
    async fn toolset_for(&self, subset: Option<&[String]>, began: Instant) -> Arc<Toolset> {
        let grant = |names: &[String]| {
            Arc::new(Toolset::build(
                &self.engine.tools.catalog(),
                names,
                &VerdictFunction::CHAT,
            ))
        };
        let find = || match subset {
            None => self.whole_toolset(),
            Some(names) => grant(names),
        };
        let toolset = find();
        if toolset.missing.is_empty() {
            return toolset;
        }
        let names: Vec<String> = toolset.missing.iter().map(|one| one.name.clone()).collect();
        self.engine.tools.ready(&names, began + SERVER_WAIT).await;
        let toolset = find();
        // Logged once for each generation of the catalog, however many messages arrive.
        if self.logged_missing.swap(toolset.generation, Ordering::Relaxed) != toolset.generation {
            for one in &toolset.missing {
                tracing::warn!(
                    tool = %one.name,
                    reason = %one.reason,
                    "a tool on the allowlist is unavailable; deciding without it"
                );
            }
        }
        toolset
    }

    fn whole_toolset(&self) -> Arc<Toolset> {
        let catalog = self.engine.tools.catalog();
        if let Some(toolset) = self.toolset.load_full()
            && toolset.generation == catalog.generation
        {
            return toolset;
        }
        let toolset = Arc::new(Toolset::build(&catalog, self.allowlist(), &VerdictFunction::CHAT));
        self.toolset.store(Some(Arc::clone(&toolset)));
        toolset
    }
}

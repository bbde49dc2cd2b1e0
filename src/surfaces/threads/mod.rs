//! The surface of threads (REQUIREMENTS R): a user says something, the agent answers or asks for leave, and all of it is kept.
//!
//! A thread's run is a run as any agent's is, with three model calls at most, and never more freedom than to ask before each
//! side effect. A second message while one is going is answered 409 with that run, or waits its turn, as configured.

mod answer;

use std::sync::Arc;

use chrono_tz::Tz;
use serde_json::{Map, Value};

pub use answer::{ActionAnswer, ActionRecord, RunAnswer};

use super::agents::{AgentError, AgentRuns, Cursor, DEFAULT_PROJECT, InThread, Trigger, Triggered, Watch};
use super::caller::Caller;
use super::chat::request::FieldError;
use super::chat::{Idempotency, RequestMeta};
use crate::domain::agent_run::{AgentRun, RunStatus};
use crate::domain::decision::Outcome;
use crate::domain::ids::{ProjectId, RunId, ThreadId, UserId};
use crate::domain::text;
use crate::domain::thread::Thread;
pub use crate::domain::thread::WhileBusy;
use crate::ports::actions::{Actions, ThreadPage};
use crate::surfaces::decisions::ListQuery;

/// The surface's name in the record.
pub use crate::domain::policy::THREAD as SURFACE;
/// The longest prompt, in bytes (DESIGN.md section 12).
pub const MAX_PROMPT: usize = 32 * 1024;
/// Messages of a thread shown at once.
pub const MESSAGES: u32 = 200;

/// Everything the surface is made of.
pub struct Threads {
    agents: Arc<AgentRuns>,
    actions: Arc<dyn Actions>,
    /// Who answers (`runs.agent`).
    agent: String,
    busy: WhileBusy,
}

/// A message for a thread.
#[derive(Clone, Debug)]
pub struct Message {
    /// The words.
    pub prompt: String,
    /// Which thread; absent: a new one.
    pub thread: Option<ThreadId>,
    /// The user's time zone, where the caller has named it.
    pub time_zone: Option<Tz>,
    /// Will nobody wait for the run?
    pub background: bool,
    /// What the edge knows.
    pub meta: RequestMeta,
}

impl Threads {
    /// Builds the surface.
    #[must_use]
    pub fn new(agents: Arc<AgentRuns>, actions: Arc<dyn Actions>, agent: String, busy: WhileBusy) -> Self {
        Self {
            agents,
            actions,
            agent,
            busy,
        }
    }

    /// Makes a run of a thread and sets it going. With the run, its thread.
    ///
    /// # Errors
    /// [`AgentError`]; what goes wrong later is told by the run.
    pub async fn say(&self, caller: &Caller, user: UserId, message: Message) -> Result<Triggered, AgentError> {
        let wrong = |detail: String| {
            Err(AgentError::Invalid(vec![FieldError {
                pointer: "/prompt".to_owned(),
                detail,
            }]))
        };
        if message.prompt.trim().is_empty() {
            return wrong("must not be empty".to_owned());
        }
        let bytes = message.prompt.len();
        if bytes > MAX_PROMPT {
            let begins = text::prefix(&message.prompt, MAX_PROMPT);
            self.agents
                .without_run(caller, user, begins, &message.meta, Outcome::UserInput, None)
                .await?;
            return wrong(format!("has {bytes} bytes; at most {MAX_PROMPT} are allowed"));
        }
        let project = ProjectId::parse(DEFAULT_PROJECT).unwrap_or_else(|_| unreachable!("it is a valid id"));
        let inputs = Map::from_iter([("query".to_owned(), Value::from(message.prompt.clone()))]);
        let trigger = Trigger {
            project,
            agent: self.agent.clone(),
            inputs: inputs.into(),
            timeout: None,
            time_zone: message.time_zone,
            background: message.background,
            meta: message.meta,
        };
        let place = InThread {
            thread: message.thread.unwrap_or_else(ThreadId::new),
            is_new: message.thread.is_none(),
            message: message.prompt.into(),
            queue: self.busy == WhileBusy::Queue,
        };
        let mut triggered = self.agents.trigger_in(caller, user, trigger, Some(place)).await?;
        if triggered.replayed {
            triggered.waits_its_turn = self.waits_its_turn(caller, triggered.run).await?;
        }
        Ok(triggered)
    }

    /// Does another run of its thread come before a run that was made before?
    async fn waits_its_turn(&self, caller: &Caller, run: RunId) -> Result<bool, AgentError> {
        // In this order: what is queued still when the next one is known, and is not that one, was not begun meanwhile.
        let next = self.actions.next_after(run).await?;
        Ok(next != Some(run) && self.agents.get(caller, None, run).await?.status == RunStatus::Queued)
    }

    /// A run as the user is told of it; not somebody else's.
    ///
    /// # Errors
    /// There is none; the store is away.
    pub async fn run(&self, caller: &Caller, user: Option<&UserId>, run: RunId) -> Result<RunAnswer, AgentError> {
        let row = self.agents.get(caller, user, run).await?;
        self.run_answer(&row).await
    }

    /// A run whose question was just answered, whose action was settled, or which was cancelled, by somebody who may: an
    /// approver is told also of another user's. What was done counts, whatever can be read now.
    ///
    /// # Errors
    /// As [`AgentRuns::unreadable`].
    pub async fn after(&self, caller: &Caller, run: RunId) -> Result<RunAnswer, AgentError> {
        let read = async { self.run_answer(&self.agents.of_tenant(caller, run).await?).await };
        read.await.map_err(|error| self.agents.unreadable(run, &error))
    }

    async fn run_answer(&self, run: &AgentRun) -> Result<RunAnswer, AgentError> {
        let (thread, calls) = self.agents.calls(run.id).await?;
        let actions = self.actions.of_run(run.id).await?;
        Ok(answer::answer(run, thread, &calls, &actions))
    }

    /// As [`Threads::run`], when it is over or waits for a person. One that waits its turn is told as it is: what it waits for
    /// may wait for a person.
    ///
    /// # Errors
    /// As [`Threads::run`].
    pub async fn wait(&self, caller: &Caller, triggered: &mut Triggered) -> Result<RunAnswer, AgentError> {
        if !triggered.waits_its_turn {
            self.agents.wait(caller, triggered).await?;
        }
        self.run(caller, None, triggered.run).await
    }

    /// A thread with its latest messages; not somebody else's.
    ///
    /// # Errors
    /// There is none; the store is away.
    pub async fn thread(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        thread: ThreadId,
        before: Option<u64>,
    ) -> Result<Thread, AgentError> {
        let found = self
            .actions
            .thread(&caller.tenant, user, thread, before, MESSAGES)
            .await?;
        found.ok_or(AgentError::NotFound)
    }

    /// A page of a user's threads, the latest active first.
    ///
    /// # Errors
    /// The query is off; the store is away.
    pub async fn list(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        query: ListQuery,
    ) -> Result<ThreadPage, AgentError> {
        let query = ListQuery { user, ..query };
        Ok(self.actions.threads(&caller.tenant, &query).await?)
    }

    /// Cancels a run, and what it waits for: told as it stands when it is over, or a moment later.
    ///
    /// # Errors
    /// There is none; the store is away; as [`AgentRuns::unreadable`] where it is cancelled and cannot be read.
    pub async fn cancel(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        run: RunId,
        key: Option<&Idempotency>,
    ) -> Result<RunAnswer, AgentError> {
        self.agents.cancel(caller, user, run, key).await?;
        self.agents.ends(caller, run).await;
        self.after(caller, run).await
    }

    /// What a run does, from after `cursor` on.
    ///
    /// # Errors
    /// There is no such run; the store is away.
    pub async fn watch(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        run: RunId,
        cursor: Cursor,
    ) -> Result<Watch, AgentError> {
        self.agents.watch(caller, user, run, cursor).await
    }
}

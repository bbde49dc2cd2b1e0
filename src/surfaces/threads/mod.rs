//! The surface of threads (REQUIREMENTS R): a user sends a message, the agent answers or requests approval, and
//! everything is stored.
//!
//! A thread's run is an ordinary agent run with at most three model calls, in which every side effect requires approval
//! by default. A second message during an active run is answered 409 with that run, or waits its turn, as configured.

mod answer;

use std::sync::Arc;

use chrono_tz::Tz;
use serde_json::{Map, Value};

pub use answer::{ActionAnswer, ActionRecord, RunAnswer};

use super::agents::{AgentError, AgentRuns, Cursor, DEFAULT_PROJECT, InThread, Trigger, Triggered, Watch};
use super::caller::Caller;
use super::chat::request::FieldError;
use super::chat::{Claim, RequestMeta};
use crate::domain::agent_run::{AgentRun, RunStatus};
use crate::domain::decision::Outcome;
use crate::domain::ids::{ProjectId, RunId, ThreadId, UserId};
use crate::domain::text;
use crate::domain::thread::Thread;
pub use crate::domain::thread::WhileBusy;
use crate::ports::actions::{Actions, ThreadPage};
use crate::surfaces::decisions::ListQuery;

/// The surface's name in the decision log.
pub use crate::domain::policy::THREAD as SURFACE;
/// The longest prompt, in bytes (DESIGN.md section 12).
pub const MAX_PROMPT: usize = 32 * 1024;
/// Maximum messages of a thread shown at once.
pub const MESSAGES: u32 = 200;

/// The surface with everything it uses.
pub struct Threads {
    agents: Arc<AgentRuns>,
    actions: Arc<dyn Actions>,
    /// The agent that answers (`runs.agent`).
    agent: String,
    busy: WhileBusy,
}

/// A message for a thread.
#[derive(Clone, Debug)]
pub struct Message {
    /// The text.
    pub prompt: String,
    /// The thread; absent: a new one.
    pub thread: Option<ThreadId>,
    /// The user's time zone, if the caller named it.
    pub time_zone: Option<Tz>,
    /// True if the caller does not wait for the run.
    pub background: bool,
    /// Metadata from the HTTP layer.
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

    /// Creates and starts a run of a thread, and a new thread if none is given.
    ///
    /// # Errors
    /// [`AgentError`]; later errors are reported by the run itself.
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

    /// Must a replayed run wait for another run of its thread?
    async fn waits_its_turn(&self, caller: &Caller, run: RunId) -> Result<bool, AgentError> {
        // In this order: a run that is still queued after the next one is known, and is not that one, has not started
        // meanwhile.
        let next = self.actions.next_after(run).await?;
        Ok(next != Some(run) && self.agents.get(caller, None, run).await?.status == RunStatus::Queued)
    }

    /// The answer about a run of the user.
    ///
    /// # Errors
    /// There is no such run; the store is unavailable.
    pub async fn run(&self, caller: &Caller, user: Option<&UserId>, run: RunId) -> Result<RunAnswer, AgentError> {
        let row = self.agents.get(caller, user, run).await?;
        self.run_answer(&row).await
    }

    /// The answer about a run after its approval was resolved, its action was settled, or it was cancelled. Approvers
    /// also get it for other users' runs. The operation has succeeded, even if the run cannot be read now.
    ///
    /// # Errors
    /// See [`AgentRuns::unreadable`].
    pub async fn after(&self, caller: &Caller, run: RunId) -> Result<RunAnswer, AgentError> {
        let read = async { self.run_answer(&self.agents.of_tenant(caller, run).await?).await };
        read.await.map_err(|error| self.agents.unreadable(run, &error))
    }

    async fn run_answer(&self, run: &AgentRun) -> Result<RunAnswer, AgentError> {
        let (thread, calls) = self.agents.calls(run.id).await?;
        let actions = self.actions.of_run(run.id).await?;
        Ok(answer::answer(run, thread, &calls, &actions))
    }

    /// Like [`Threads::run`], once the run has ended or waits for an approval. A run that waits its turn is returned at
    /// once: the run before it may wait for an approval.
    ///
    /// # Errors
    /// See [`Threads::run`].
    pub async fn wait(&self, caller: &Caller, triggered: &mut Triggered) -> Result<RunAnswer, AgentError> {
        if !triggered.waits_its_turn {
            self.agents.wait(caller, triggered).await?;
        }
        self.run(caller, None, triggered.run).await
    }

    /// A thread of the user, with its latest messages.
    ///
    /// # Errors
    /// There is no such thread; the store is unavailable.
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

    /// A page of a user's threads, most recently active first.
    ///
    /// # Errors
    /// The query is invalid; the store is unavailable.
    pub async fn list(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        query: ListQuery,
    ) -> Result<ThreadPage, AgentError> {
        let query = ListQuery { user, ..query };
        Ok(self.actions.threads(&caller.tenant, &query).await?)
    }

    /// Cancels a run and its pending approvals. Returns the run once it has ended, or after a moment.
    ///
    /// # Errors
    /// There is no such run; the store is unavailable; see [`AgentRuns::unreadable`] if the run was cancelled and
    /// cannot be read.
    pub async fn cancel(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        run: RunId,
        key: Option<&Claim>,
    ) -> Result<RunAnswer, AgentError> {
        self.agents.cancel(caller, user, run, key).await?;
        self.agents.ends(caller, run).await;
        self.after(caller, run).await
    }

    /// The events of a run, starting after `cursor`.
    ///
    /// # Errors
    /// There is no such run; the store is unavailable.
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

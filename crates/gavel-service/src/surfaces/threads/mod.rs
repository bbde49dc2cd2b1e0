//! The surface of threads: a user sends a message, the agent answers or requests approval, and everything is stored.
//!
//! A thread's run is an ordinary agent run with at most three model calls, in which every side effect requires approval
//! by default. A second message during an active run is answered 409 with that run, or waits its turn, as configured.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::caller::Caller;
use super::decisions::{ListQuery, Page};
use super::definitions::Directory;
use super::request::{Claim, MAX_PROMPT, RequestMeta, prompt_error, time_zone};
use super::runs::{Begin, Begun, InThread, Origin, Runs};
use crate::api::problem::Code;
use crate::api::runs::AgentRun;
use crate::api::threads::{ActionAnswer, ActionRecord, RunAnswer, SayBody, Thread, ThreadSummary};
use crate::domain::action::{Action, ActionStatus, in_words};
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::decision::Outcome;
use crate::domain::definition::{Approval, answerer};
use crate::domain::ids::{ActionId, ProjectId, RunId, ThreadId, UserId};
use crate::domain::policy::THREAD;
pub use crate::domain::settings::ThreadSettings;
use crate::domain::text;
pub use crate::domain::thread::{OnReject, WhileBusy};
use crate::domain::thread::{completed_effects, end_words, run_words};
use crate::domain::time::Timestamp;
use crate::domain::tool::FailureCode;
use crate::engine::agent::Settings;
use crate::engine::journal::Journal;
use crate::engine::ledger::Call;
use crate::ports::actions::Actions;
use crate::surfaces::problem::Problem;

/// Every side effect requires approval, whatever an agent's definition or a tool's setting says.
pub const FLOOR: Approval = Approval::SideEffects;
/// Maximum messages of a thread shown at once.
pub const MESSAGES: u32 = 200;

/// The surface with everything it uses.
pub struct Threads {
    runs: Arc<Runs>,
    directory: Arc<Directory>,
    actions: Arc<dyn Actions>,
    settings: ThreadSettings,
}

impl Threads {
    /// Builds the surface.
    pub fn new(
        runs: Arc<Runs>,
        directory: Arc<Directory>,
        actions: Arc<dyn Actions>,
        settings: ThreadSettings,
    ) -> Self {
        Self {
            runs,
            directory,
            actions,
            settings,
        }
    }

    /// Creates and starts a run of a thread, and a new thread if none is given.
    ///
    /// # Errors
    /// [`Problem`]; later errors are reported by the run itself.
    pub async fn say(
        &self,
        caller: &Caller,
        user: UserId,
        message: SayBody,
        meta: RequestMeta,
    ) -> Result<Begun, Problem> {
        let zone = time_zone(message.time_zone.as_deref());
        let zone = zone.map_err(|detail| Problem::invalid("/timeZone", detail))?;
        let prompt = &message.prompt;
        if prompt.len() > MAX_PROMPT {
            let begins = text::prefix(prompt, MAX_PROMPT);
            self.refuse(caller, user.clone(), (begins, &meta), (Outcome::UserInput, None))
                .await?;
        }
        if let Some(error) = prompt_error("/prompt", prompt) {
            return Err(Problem::from(vec![error]));
        }
        if let Some(mut before) = self.runs.begun_before(&meta).await? {
            before.waits_its_turn = self.waits_its_turn(caller, before.run).await?;
            return Ok(before);
        }
        let id = ProjectId::default();
        let project = self.directory.project(&caller.tenant, &id).await?;
        let agent = match answerer(&project.agents, &self.settings.agent) {
            Ok(agent) => agent,
            Err(why) => {
                let detail = Some(Arc::from(why.as_str()));
                self.refuse(caller, user, (prompt, &meta), (Outcome::Internal, detail))
                    .await?;
                return Err(Problem::new(
                    Code::AgentUnavailable,
                    format!(
                        "No agent answers here, since the setting runs.agent is invalid: {why}. Tell the operator."
                    ),
                ));
            }
        };
        let settings = Settings::top(&agent.definition, None, meta.traceparent.clone());
        let begin = Begin {
            surface: THREAD,
            agent: project.choose(id, &self.settings.agent)?,
            inputs: Map::from_iter([("query".to_owned(), Value::from(message.prompt.clone()))]),
            origin: Origin::Thread(InThread {
                thread: message.thread_id.unwrap_or_else(ThreadId::new),
                is_new: message.thread_id.is_none(),
                message: message.prompt.into(),
                queue: self.settings.while_busy == WhileBusy::Queue,
            }),
            settings: Settings {
                zone,
                ..settings.in_thread(FLOOR, self.settings.on_reject)
            },
            meta,
        };
        let mut begun = self.runs.begin(caller, user, begin).await?;
        if begun.replayed {
            begun.waits_its_turn = self.waits_its_turn(caller, begun.run).await?;
        }
        Ok(begun)
    }

    /// Records a message for which no run is begun. The decision names no thread, since it was not checked whether the
    /// thread belongs to the user.
    async fn refuse(
        &self,
        caller: &Caller,
        user: UserId,
        message: (&str, &RequestMeta),
        outcome: (Outcome, Option<Arc<str>>),
    ) -> Result<(), Problem> {
        self.runs.without_run(caller, user, THREAD, message, outcome).await
    }

    /// Must a replayed run wait for another run of its thread?
    async fn waits_its_turn(&self, caller: &Caller, run: RunId) -> Result<bool, Problem> {
        // In this order: a run that is still queued after the next one is known, and is not that one, has not started
        // meanwhile.
        let next = self.actions.next_after(run).await?;
        Ok(next != Some(run) && self.runs.get(caller, None, run).await?.status == RunStatus::Queued)
    }

    /// The answer about a run of the user.
    ///
    /// # Errors
    /// There is no such run; the store is unavailable.
    pub async fn run(&self, caller: &Caller, user: Option<&UserId>, run: RunId) -> Result<RunAnswer, Problem> {
        let row = self.runs.get(caller, user, run).await?;
        self.run_answer(&row).await
    }

    /// The answer about a run after its approval was resolved, its action was settled, or it was cancelled. Approvers
    /// also get it for other users' runs. The operation has succeeded, even if the run cannot be read now.
    ///
    /// # Errors
    /// See [`Runs::unreadable`].
    pub async fn after(&self, caller: &Caller, run: RunId) -> Result<RunAnswer, Problem> {
        let read = async { self.run_answer(&self.runs.of_tenant(caller, run).await?).await };
        read.await.map_err(|error| self.runs.unreadable(run, error))
    }

    async fn run_answer(&self, run: &AgentRun) -> Result<RunAnswer, Problem> {
        let (thread, journal) = self.runs.in_thread(run.id).await?;
        let actions = self.actions.of_run(run.id).await?;
        Ok(answer(run, thread, &journal, &actions))
    }

    /// Like [`Threads::run`], once the run has ended or waits for an approval. A run that waits its turn is returned at
    /// once: the run before it may wait for an approval.
    ///
    /// # Errors
    /// See [`Threads::run`].
    pub async fn wait(&self, caller: &Caller, begun: &mut Begun) -> Result<RunAnswer, Problem> {
        if !begun.waits_its_turn {
            self.runs.wait(caller, begun).await?;
        }
        self.run(caller, None, begun.run).await
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
    ) -> Result<Thread, Problem> {
        let found = self
            .actions
            .thread(&caller.tenant, user, thread, before, MESSAGES)
            .await?;
        found.ok_or(Problem::from_code(Code::NotFound))
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
    ) -> Result<Page<ThreadSummary>, Problem> {
        let query = ListQuery { user, ..query };
        Ok(self.actions.threads(&caller.tenant, &query).await?)
    }

    /// Cancels a run and its pending approvals. Returns the run once it has ended, or after a moment.
    ///
    /// # Errors
    /// There is no such run; the store is unavailable; see [`Runs::unreadable`] if the run was cancelled and
    /// cannot be read.
    pub async fn cancel(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        run: RunId,
        key: Option<&Claim>,
    ) -> Result<RunAnswer, Problem> {
        self.runs.cancel(caller, user, run, key).await?;
        self.runs.ends(caller, run).await;
        self.after(caller, run).await
    }
}

fn answer(run: &AgentRun, thread: Option<ThreadId>, journal: &Journal, actions: &[Action]) -> RunAnswer {
    let calls = journal.ledger();
    let own: HashSet<_> = calls.of_tools().map(Call::id).collect();
    let stored: HashMap<_, _> = actions.iter().map(|action| (action.id, action)).collect();
    let actions: Vec<_> = calls
        .of_tools()
        .map(|call| match stored.get(&call.id()) {
            Some(action) => action_answer(action),
            None => of_call(call, run.status),
        })
        // The actions of child runs come after the run's own.
        .chain(
            actions
                .iter()
                .filter(|action| !own.contains(&action.id))
                .map(action_answer),
        )
        .collect();
    let acting = actions.iter().any(|action| action.state == ActionStatus::Executing);
    let has_in_doubt = actions.iter().any(|action| action.state == ActionStatus::InDoubt);
    let (status, state) = run_words(run.status, acting, has_in_doubt);
    let in_doubt = has_in_doubt && run.status == RunStatus::Completed;
    RunAnswer {
        ok: true,
        run_id: run.id,
        thread_id: thread,
        status: status.into(),
        state: state.into(),
        error_class: match in_doubt {
            true => Some(FailureCode::InDoubt.class()),
            false => run.error_class(),
        },
        error_code: match in_doubt {
            true => Some(ActionStatus::InDoubt.as_str().to_owned()),
            false => run.error_code(),
        },
        created_at: run.created_at,
        started_at: run.started_at,
        completed_at: run.completed_at,
        duration_ms: run.duration_ms,
        summary: summary(run, has_in_doubt, &stored),
        actions,
    }
}

/// The final text of the run. If it is not from its model, followed by the run's effects so far.
fn summary(run: &AgentRun, has_in_doubt: bool, actions: &HashMap<ActionId, &Action>) -> String {
    if run.status == RunStatus::AwaitingConfirmation {
        let mut waiting: Vec<_> = actions
            .values()
            .filter(|action| action.status == ActionStatus::AwaitingConfirmation)
            .collect();
        waiting.sort_by_key(|action| (action.created_at, action.sequence));
        let asked: Vec<_> = waiting
            .iter()
            .filter_map(|action| action.details.request.as_deref())
            .collect();
        if !asked.is_empty() {
            return asked.join("\n");
        }
    }
    let settled = run.stop_reason == Some(StopReason::InDoubt) && !has_in_doubt;
    let error = run
        .error_message
        .as_deref()
        .filter(|_| !settled || run.summary.is_none());
    let words = end_words(run.status, run.summary.as_deref(), error);
    if !matches!(run.status, RunStatus::Failed | RunStatus::Cancelled) || run.stop_reason == Some(StopReason::InDoubt) {
        return words;
    }
    let mut acted: Vec<_> = actions.values().filter(|action| action.side_effect).collect();
    acted.sort_by_key(|action| (action.created_at, action.sequence));
    let which = |status: ActionStatus| -> Vec<String> {
        let of = acted.iter().filter(|action| action.status == status);
        of.map(|action| action.tool.clone()).collect()
    };
    let Some(completed_effects) = completed_effects(&which(ActionStatus::Completed), &which(ActionStatus::InDoubt))
    else {
        return words;
    };
    format!("{words}\n\n{completed_effects}")
}

/// The three wire values of an action's status.
const fn wire(state: ActionStatus) -> &'static str {
    match state {
        ActionStatus::Completed => "completed",
        ActionStatus::Planned
        | ActionStatus::AwaitingConfirmation
        | ActionStatus::Approved
        | ActionStatus::Executing => "awaiting_confirmation",
        ActionStatus::Failed | ActionStatus::InDoubt | ActionStatus::Rejected | ActionStatus::Expired => "failed",
    }
}

/// For a call without an action: it is read-only, was refused, or its approval is not requested yet. If the run has
/// ended, an unfinished call never finishes.
fn of_call(call: Call<'_>, run: RunStatus) -> ActionAnswer {
    let over = matches!(run, RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled);
    let cut = over && !call.status().has_ended();
    let state = if cut { ActionStatus::Failed } else { call.status() };
    let failure = call.failure();
    let code = call.failure_code().or(cut.then_some(FailureCode::Cancelled));
    let input = call.accepted().map_or(&*call.proposed.call.args, |arguments| arguments);
    let completed_us = call.last_started_us().zip(call.duration_us());
    answered(
        call.id(),
        ActionRecord {
            model_name: call.model().unwrap_or_default().to_owned(),
            tool_name: call.name().to_string(),
            input_hash: hex::encode(Sha256::digest(input.get())),
            policy_decision: call.policy().map(|policy| policy.effect.as_str().to_owned()),
            approval_id: None,
            execution_status: state,
            error_code: code.map(|code| code.as_str().to_owned()),
            error_message: failure.map(|failure| in_words(&failure.for_callers())),
            created_at: None,
            resolved_at: None,
            resolved_by: None,
            started_at: call.last_started_us().map(Timestamp),
            completed_at: completed_us.map(|(started, took)| Timestamp(started.saturating_add(took))),
            settled_by: None,
        },
        None,
    )
}

/// An action in the answer about its run.
pub fn action_answer(action: &Action) -> ActionAnswer {
    let waits = action.status == ActionStatus::AwaitingConfirmation;
    // The error code distinguishes rejected from expired actions; the reason is the approver's, or that the
    // approval expired.
    let unanswered =
        Some(action.status).filter(|status| matches!(status, ActionStatus::Rejected | ActionStatus::Expired));
    let error_code = action.error_code.clone();
    let error_code = error_code.or_else(|| unanswered.map(|status| status.as_str().to_owned()));
    let error_message = action.error_message.as_deref().map(in_words);
    let error_message = error_message.or_else(|| unanswered.and(action.reason.clone()));
    answered(
        action.id,
        ActionRecord {
            model_name: action.model.clone(),
            tool_name: action.tool.clone(),
            input_hash: action.input_hash.clone(),
            policy_decision: Some(action.policy.clone()),
            approval_id: action.approval,
            execution_status: action.status,
            error_code,
            error_message,
            created_at: Some(Timestamp(action.created_at)),
            resolved_at: action.resolved_at.map(Timestamp),
            resolved_by: action.resolved_by.clone(),
            started_at: action.started_at.map(Timestamp),
            completed_at: action.completed_at.map(Timestamp),
            settled_by: action.settled_by.clone(),
        },
        Some(action).filter(|_| waits),
    )
}

/// The answer about the call of this record; `waiting` is its action while it waits for an approval.
fn answered(action_id: ActionId, record: ActionRecord, waiting: Option<&Action>) -> ActionAnswer {
    let code = record.error_code.as_deref().and_then(FailureCode::parse);
    ActionAnswer {
        tool: record.tool_name.clone(),
        status: wire(record.execution_status).into(),
        state: record.execution_status,
        requires_approval: record.approval_id.is_some(),
        action_id,
        approval_id: waiting.and_then(|action| action.approval),
        arguments: waiting.map(|action| action.arguments.clone()),
        asked: waiting.map(|action| action.details.clone().into()),
        expires_at: waiting.and_then(|action| action.expires_at).map(Timestamp),
        error_class: code.map(FailureCode::class),
        error_code: record.error_code.clone(),
        error_message: record.error_message.clone(),
        record,
    }
}

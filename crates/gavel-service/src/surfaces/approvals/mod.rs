//! Approvals: pending approvals, their resolution, and grants.
//!
//! Users resolve the approvals of their own runs; callers with the role `approver`, those of all runs of the tenant. A
//! resolution is one commit. The run that it wakes is claimed here at once, or by the next worker.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::caller::{APPROVER, Caller};
use super::decisions::{ListQuery, Page};
use super::definitions::Directory;
use super::request::Claim;
use super::runs::Runs;
use crate::api::approvals::{ActionInDoubt, Grant, PendingApproval, ResolveBody};
use crate::api::problem::{Code, Late};
use crate::api::why::ActionWhy;
use crate::domain::action::{Action, Resolution};
use crate::domain::ids::{ActionId, ApprovalId, GrantId, RunId, ThreadId, UserId};
use crate::domain::plan::TaskId;
use crate::domain::templates::Text;
use crate::domain::time::Timestamp;
use crate::domain::tool::Tool;
pub use crate::ports::actions::Which;
use crate::ports::actions::{Actions, Resolve, Resolved, Settle, SettleDone};
use crate::ports::planning::PlanningSessions;
use crate::ports::records::Decisions;
use crate::surfaces::problem::Problem;

/// The longest reason, in bytes.
pub const MAX_REASON: usize = 4096;

/// The surface with everything it uses.
pub struct Approvals {
    runs: Arc<Runs>,
    directory: Arc<Directory>,
    actions: Arc<dyn Actions>,
    sessions: Arc<dyn PlanningSessions>,
    decisions: Arc<dyn Decisions>,
}

/// The run that a resolution or a settlement was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The outermost run.
    pub run: RunId,
    /// Its thread, if it has one.
    pub thread: Option<ThreadId>,
}

impl Approvals {
    /// Builds the surface.
    pub fn new(
        runs: Arc<Runs>,
        directory: Arc<Directory>,
        actions: Arc<dyn Actions>,
        sessions: Arc<dyn PlanningSessions>,
        decisions: Arc<dyn Decisions>,
    ) -> Self {
        Self {
            runs,
            directory,
            actions,
            sessions,
            decisions,
        }
    }

    /// A page of pending approvals, in-doubt actions or answered requests, the oldest first.
    ///
    /// # Errors
    /// The query is invalid; the caller may see no approvals; the store is unavailable.
    pub async fn list(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        which: Which,
        query: ListQuery,
    ) -> Result<Page<Action>, Problem> {
        let query = ListQuery {
            user: whose(caller, user)?,
            ..query
        };
        Ok(self.actions.list(&caller.tenant, which, &query).await?)
    }

    /// The tasks of the planning sessions that these actions belong to.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn tasks(&self, caller: &Caller, actions: &[Action]) -> Result<Tasks, Problem> {
        let sessions: BTreeSet<_> = actions.iter().filter_map(|action| action.session).collect();
        let mut tasks = Tasks::default();
        for session in sessions {
            // A session may have been deleted since.
            if let Some(session) = self.sessions.session(&caller.tenant, None, session).await? {
                let begun = session.plan.tasks.into_iter();
                tasks.0.extend(begun.filter_map(|task| Some((task.run_id?, task.id))));
            }
        }
        Ok(tasks)
    }

    /// The action of an approval, resolved or not.
    ///
    /// # Errors
    /// There is no such approval; the caller may see no approvals; the store is unavailable.
    pub async fn question(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        approval: ApprovalId,
    ) -> Result<Action, Problem> {
        let whose = whose(caller, user)?;
        let found = self.actions.of_approval(&caller.tenant, whose.as_ref(), approval);
        found.await?.ok_or(Problem::from_code(Code::NotFound))
    }

    /// One action, even one that required no approval.
    ///
    /// # Errors
    /// See [`Approvals::question`].
    pub async fn action(&self, caller: &Caller, user: Option<UserId>, action: ActionId) -> Result<Action, Problem> {
        let whose = whose(caller, user)?;
        let found = self.actions.action(&caller.tenant, whose.as_ref(), action);
        found.await?.ok_or(Problem::from_code(Code::NotFound))
    }

    /// Why an action needed a person, or did not. `id`: the action's, or that of its approval request.
    ///
    /// # Errors
    /// See [`Approvals::question`].
    pub async fn why(&self, caller: &Caller, user: Option<UserId>, id: ActionId) -> Result<ActionWhy, Problem> {
        let whose = whose(caller, user)?;
        let mut action = self.actions.action(&caller.tenant, whose.as_ref(), id).await?;
        if action.is_none()
            && let Some(approval) = ApprovalId::parse(&id.to_string())
        {
            action = self
                .actions
                .of_approval(&caller.tenant, whose.as_ref(), approval)
                .await?;
        }
        let action = action.ok_or(Code::NotFound)?;
        let decision = action.run.decision();
        let evidence = self
            .decisions
            .evidence(&caller.tenant, decision, Some(action.id))
            .await?;
        Ok(ActionWhy {
            action_id: action.id,
            approval_id: action.approval,
            run_id: action.run,
            user_id: action.user,
            agent_id: action.agent,
            server: action.server,
            tool: action.tool,
            state: action.status,
            verdict: action.policy,
            rule: action.decided_by,
            reason: Some(action.details.reason).filter(|reason| !reason.is_empty()),
            lost: action.lost,
            created_at: Timestamp(action.created_at),
            expires_at: action.expires_at.map(Timestamp),
            resolution: action.resolution,
            resolved_by: action.resolved_by,
            resolved_at: action.resolved_at.map(Timestamp),
            grant_id: action.grant,
            audit: evidence.audit,
        })
    }

    /// The current tool of an action; `None` while its server does not offer it.
    pub fn tool(&self, action: &Action) -> Option<Arc<Tool>> {
        self.directory.tool(&action.server, &action.tool)
    }

    /// Resolves an approval and continues the run.
    ///
    /// # Errors
    /// There is no such approval; it was resolved or has expired; a grant was requested for a tool without recipients;
    /// the store is unavailable.
    pub async fn resolve(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        answer: &ResolveBody,
        key: Option<&Claim>,
    ) -> Result<Answered, Problem> {
        let (by, person) = (caller.name_for(user.as_ref()), caller.person(user.as_ref()));
        let whose = whose(caller, user)?;
        let found = self
            .actions
            .of_approval(&caller.tenant, whose.as_ref(), answer.approval_id);
        let action = found.await?.ok_or(Code::NotFound)?;
        let always = answer.decision == Resolution::ApproveAndAlwaysAllowRecipient;
        if always && action.details.recipients.is_none() {
            let detail = format!(
                "{} declares no recipients, so no grant is possible; allowed: reject, approve_once.",
                action.tool
            );
            return Err(Problem::new(Code::NotGrantable, detail));
        }
        if always && action.details.ungrantable {
            let detail = format!(
                "this call of {} has an argument that a grant cannot cover; allowed: reject, approve_once.",
                action.tool
            );
            return Err(Problem::new(Code::NotGrantable, detail));
        }
        let resolve = Resolve {
            approval: answer.approval_id,
            action: action.id,
            root: action.root,
            resolution: answer.decision,
            words: words(&person, &action, answer).into(),
            reason: answer.reason.as_deref().map(Arc::from),
            by: by.as_str().into(),
            grant: always.then(GrantId::new),
        };
        self.runs.claim(key, action.root, resolution(action.root)).await?;
        let resolved = self.actions.resolve(resolve).await;
        match resolved.map_err(|error| resolution(action.root).after(&error))? {
            Resolved::Done => {
                tracing::info!(action_id = %action.id, run_id = %action.root, %by, resolution = answer.decision.as_str(), "an approval was resolved");
            }
            Resolved::Again => {}
            Resolved::Changed => {
                tracing::error!(action_id = %action.id, "an approval request was changed in the database");
                let detail = "the approval request was changed in the database; allowed: reject.";
                return Err(Problem::new(Code::NotGrantable, detail));
            }
            Resolved::Late(state, decision, resolved_by) => {
                let late = Late {
                    state,
                    decision,
                    resolved_by,
                };
                return Err(resolved_before(late));
            }
        }
        self.runs
            .claim_resolved(action.root, &caller.tenant, action.user.as_str());
        Ok(Answered {
            run: action.root,
            thread: action.thread,
        })
    }

    /// Settles an in-doubt action.
    ///
    /// # Errors
    /// There is no such action, or it is not in doubt; its run has not ended, or is paused and must be resumed with
    /// this answer; the store is unavailable.
    pub async fn settle(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        action: ActionId,
        happened: bool,
        key: Option<&Claim>,
    ) -> Result<Answered, Problem> {
        let (by, person) = (caller.name_for(user.as_ref()), caller.person(user.as_ref()));
        let whose = whose(caller, user)?;
        let found = self.actions.action(&caller.tenant, whose.as_ref(), action).await?;
        let found = found.ok_or(Code::NotFound)?;
        let text = if happened { Text::Happened } else { Text::DidNotHappen };
        let settle = Settle {
            action,
            root: found.root,
            happened,
            words: text.with(&[("by", &person), ("tool", &found.tool)]).into(),
            by: by.into(),
        };
        self.runs.claim(key, found.root, settlement(found.root)).await?;
        let settled = self.actions.settle(settle).await;
        match settled.map_err(|error| settlement(found.root).after(&error))? {
            SettleDone::Done | SettleDone::Again => {}
            SettleDone::NotInDoubt(state) => {
                let detail = format!("Only an in-doubt action can be settled; this one is {state}.");
                let outcome = Late {
                    state,
                    decision: None,
                    resolved_by: None,
                };
                return Err(Problem::new(Code::NotInDoubt, detail).with(|more| more.outcome = Some(outcome)));
            }
            SettleDone::RunInProgress => {
                let run = found.root;
                let detail = format!(
                    "Run {run} of this action is still in progress; resolve its approvals or cancel it, and then settle the \
                     action."
                );
                return Err(Problem::new(Code::RunInProgress, detail).about(run));
            }
            SettleDone::WithRun => {
                let run = found.root;
                let detail = format!(
                    "The action is settled by resuming its run: resume run {run} and report what happened in settled."
                );
                return Err(Problem::new(Code::PartOfRun, detail).about(run));
            }
        }
        Ok(Answered {
            run: found.root,
            thread: found.thread,
        })
    }

    /// The actions of a run and its child runs, in order. Every reader of its thread may read them.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn of_run(&self, run: RunId) -> Result<Vec<Action>, Problem> {
        Ok(self.actions.of_run(run).await?)
    }

    /// A page of grants, including revoked ones.
    ///
    /// # Errors
    /// See [`Approvals::list`].
    pub async fn grants(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        query: ListQuery,
    ) -> Result<Page<Grant>, Problem> {
        let query = ListQuery {
            user: whose(caller, user)?,
            ..query
        };
        Ok(self.actions.grants(&caller.tenant, &query).await?)
    }

    /// One grant, revoked or not.
    ///
    /// # Errors
    /// There is no such grant; also see [`Approvals::list`].
    pub async fn grant(&self, caller: &Caller, user: Option<UserId>, grant: GrantId) -> Result<Grant, Problem> {
        let whose = whose(caller, user)?;
        let found = self.actions.grant(&caller.tenant, whose.as_ref(), grant).await?;
        found.ok_or(Problem::from_code(Code::NotFound))
    }

    /// Revokes a grant, with immediate effect for every call that was not decided on yet.
    ///
    /// # Errors
    /// There is no such grant, or it was already revoked; the store is unavailable.
    pub async fn revoke(&self, caller: &Caller, user: Option<UserId>, grant: GrantId) -> Result<(), Problem> {
        let by = caller.name_for(user.as_ref());
        let whose = whose(caller, user)?;
        let revoked = self.actions.revoke(&caller.tenant, whose.as_ref(), grant, &by).await;
        match revoked.map_err(|error| revocation().after(&error))? {
            true => Ok(()),
            false => Err(Code::NotFound.into()),
        }
    }
}

/// The user whose approvals a caller may see and resolve; `None`: all users of the tenant.
fn whose(caller: &Caller, user: Option<UserId>) -> Result<Option<UserId>, Problem> {
    match (caller.roles.contains(APPROVER), user) {
        (true, _) => Ok(None),
        (false, Some(user)) => Ok(Some(user)),
        (false, None) => Err(Problem::new(
            Code::Forbidden,
            format!("This requires the role {APPROVER}, or X-Gavel-User with the user it concerns."),
        )),
    }
}

/// The approval was resolved before, or has expired.
fn resolved_before(late: Late) -> Problem {
    let detail = match (late.decision, &late.resolved_by) {
        (Some(decision), Some(by)) => {
            format!(
                "The approval was resolved already: {decision} by {by}; the action is {}.",
                late.state
            )
        }
        _ => "The approval expired, or the run ended first. The action was not executed.".to_owned(),
    };
    Problem::new(Code::AlreadyResolved, detail).with(|more| more.outcome = Some(late))
}

/// The thread message about a resolution.
fn words(by: &str, action: &Action, answer: &ResolveBody) -> String {
    let text = match answer.decision {
        Resolution::Reject => Text::ActionRejected,
        Resolution::ApproveOnce => Text::Approved,
        Resolution::ApproveAndAlwaysAllowRecipient => Text::AlwaysAllowed,
    };
    let mut words = text.with(&[("by", by), ("tool", &action.tool)]);
    if let Some(reason) = &answer.reason {
        words.push_str(&Text::Reason.with(&[("reason", reason)]));
    }
    words
}

fn resolution(run: RunId) -> Problem {
    Problem::outcome_unknown(
        Some(run),
        "It is unknown whether the approval was resolved. Send the same resolution again: if it was recorded, you get its \
         result, and nothing is done twice.",
    )
}

fn settlement(run: RunId) -> Problem {
    Problem::outcome_unknown(
        Some(run),
        "It is unknown whether the action was settled. Send the same answer again; nothing is done twice.",
    )
}

fn revocation() -> Problem {
    Problem::outcome_unknown(
        None,
        "It is unknown whether the grant was revoked. Revoke it again, or check the list of grants.",
    )
}

// Pending approvals and in-doubt actions, as callers get them.

/// The tasks of planning sessions, by the runs that work on them.
#[derive(Clone, Debug, Default)]
pub struct Tasks(HashMap<RunId, TaskId>);

impl Tasks {
    fn of(&self, action: &Action) -> Option<TaskId> {
        self.0.get(&action.run).copied()
    }
}

/// An action that waits for an approval; `None` for one that is not waiting: it expires on time, even if that is recorded later. `now_us` is in
/// microseconds since the epoch.
pub fn pending(action: Action, tasks: &Tasks, now_us: i64) -> Option<PendingApproval> {
    Some(PendingApproval {
        approval_id: action.approval.filter(|_| action.waits(now_us))?,
        run_id: action.root,
        thread_id: action.thread,
        session_id: action.session,
        task_id: tasks.of(&action),
        action_id: action.id,
        user_id: action.user,
        agent_id: action.agent,
        tool: action.tool,
        arguments: action.arguments,
        asked: action.details.into(),
        created_at: Timestamp(action.created_at),
        expires_at: Timestamp(action.expires_at?),
    })
}

/// A call whose outcome is unknown, for callers.
pub fn in_doubt(action: Action, tasks: &Tasks) -> ActionInDoubt {
    ActionInDoubt {
        action_id: action.id,
        run_id: action.root,
        thread_id: action.thread,
        session_id: action.session,
        task_id: tasks.of(&action),
        user_id: action.user,
        agent_id: action.agent,
        tool: action.tool,
        arguments: action.arguments,
        recipients: action.details.all_recipients(),
        started_at: action.started_at.map(Timestamp),
    }
}

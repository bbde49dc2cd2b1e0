//! Approvals: pending approvals, their resolution, and grants (REQUIREMENTS; DESIGN.md section 6).
//!
//! Users resolve the approvals of their own runs; callers with the role `approver`, those of all runs of the tenant. A
//! resolution is one commit. The run that it wakes is claimed here at once, or by the next worker.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::agents::{AgentError, AgentRuns, OutcomeUnknown, outcome_unknown};
use super::caller::{APPROVER, Caller};
use super::chat::Claim;
use crate::domain::action::{Action, ActionStatus, Grant, Resolution};
use crate::domain::ids::{ActionId, ApprovalId, GrantId, RunId, ThreadId, UserId};
use crate::domain::templates::Text;
use crate::domain::time::rfc3339;
use crate::domain::tool::Tool;
use crate::ports::actions::{ActionPage, Actions, GrantPage, Resolve, Resolved, Settle, SettleDone};
use crate::surfaces::decisions::ListQuery;

/// The longest reason, in bytes.
pub const MAX_REASON: usize = 4096;

/// The surface with everything it uses.
pub struct Approvals {
    agents: Arc<AgentRuns>,
    actions: Arc<dyn Actions>,
}

/// A request to resolve an approval.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Which approval.
    pub approval: ApprovalId,
    /// The resolution.
    pub resolution: Resolution,
    /// The approver's reason.
    pub reason: Option<String>,
    /// The idempotency key of the request, if any.
    pub key: Option<Claim>,
}

/// An action that waits for an approval.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingApproval {
    /// The id with which the approval is resolved.
    #[schema(value_type = String, format = "uuid")]
    pub approval_id: ApprovalId,
    /// The outermost run.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// The thread of the run; null for a run that was triggered outside of threads.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub thread_id: Option<ThreadId>,
    /// The call.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
    /// The user on whose behalf the call is made.
    pub user_id: String,
    /// The agent that proposes the call.
    pub agent_id: String,
    /// The tool.
    pub tool: String,
    /// Exactly the arguments of the call.
    #[schema(value_type = Object)]
    pub arguments: Box<RawValue>,
    /// All recipients; null if the tool declares no recipients.
    #[schema(required = true)]
    pub recipients: Option<Vec<String>>,
    /// Can a grant be given for these recipients?
    pub grantable: bool,
    /// The account that the call would use, as the tool's server named it; null if the server named none.
    #[schema(required = true)]
    pub account: Option<String>,
    /// Why the call requires approval.
    pub reason: String,
    /// Warnings about the call.
    pub warnings: Vec<String>,
    /// When approval was requested, RFC 3339.
    pub created_at: String,
    /// When the approval expires, RFC 3339.
    pub expires_at: String,
}

impl PendingApproval {
    /// `None` for an action that is not waiting: it expires on time, even if that is recorded later. `now_us` is in
    /// microseconds since the epoch.
    #[must_use]
    pub fn of(action: Action, now_us: i64) -> Option<Self> {
        Some(Self {
            approval_id: action.approval.filter(|_| action.waits(now_us))?,
            run_id: action.root,
            thread_id: action.thread,
            action_id: action.id,
            user_id: action.user,
            agent_id: action.agent,
            tool: action.tool,
            arguments: action.arguments,
            grantable: action.details.is_grantable(),
            recipients: action.details.all_recipients(),
            reason: action.details.reason,
            account: action.details.account,
            warnings: action.details.warnings,
            created_at: rfc3339(action.created_at),
            expires_at: rfc3339(action.expires_at?),
        })
    }
}

/// A call whose outcome is unknown.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionInDoubt {
    /// The id with which the action is settled.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
    /// The outermost run.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// The thread of the run; null for a run that was triggered outside of threads.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub thread_id: Option<ThreadId>,
    /// The user on whose behalf the call was made.
    pub user_id: String,
    /// The agent that made the call.
    pub agent_id: String,
    /// The tool.
    pub tool: String,
    /// Exactly the arguments of the call.
    #[schema(value_type = Object)]
    pub arguments: Box<RawValue>,
    /// All recipients; null if the tool declares no recipients.
    #[schema(required = true)]
    pub recipients: Option<Vec<String>>,
    /// When the call was started, RFC 3339.
    #[schema(required = true)]
    pub started_at: Option<String>,
}

impl From<Action> for ActionInDoubt {
    fn from(action: Action) -> Self {
        Self {
            action_id: action.id,
            run_id: action.root,
            thread_id: action.thread,
            user_id: action.user,
            agent_id: action.agent,
            tool: action.tool,
            arguments: action.arguments,
            recipients: action.details.all_recipients(),
            started_at: action.started_at.map(rfc3339),
        }
    }
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
    #[must_use]
    pub fn new(agents: Arc<AgentRuns>, actions: Arc<dyn Actions>) -> Self {
        Self { agents, actions }
    }

    /// A page of pending approvals, the oldest first.
    ///
    /// # Errors
    /// The query is invalid; the caller may see no approvals; the store is unavailable.
    pub async fn pending(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        query: ListQuery,
    ) -> Result<ActionPage, AgentError> {
        let query = ListQuery {
            user: whose(caller, user)?,
            ..pending_only(query)
        };
        Ok(self.actions.list(&caller.tenant, &query).await?)
    }

    /// A page of in-doubt actions, the oldest first.
    ///
    /// # Errors
    /// See [`Approvals::pending`].
    pub async fn in_doubt(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        query: ListQuery,
    ) -> Result<ActionPage, AgentError> {
        let query = ListQuery {
            user: whose(caller, user)?,
            ..in_doubt_only(query)
        };
        Ok(self.actions.list(&caller.tenant, &query).await?)
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
    ) -> Result<Action, AgentError> {
        let whose = whose(caller, user)?;
        let found = self.actions.of_approval(&caller.tenant, whose.as_ref(), approval);
        found.await?.ok_or(AgentError::NotFound)
    }

    /// One action, even one that required no approval.
    ///
    /// # Errors
    /// See [`Approvals::question`].
    pub async fn action(&self, caller: &Caller, user: Option<UserId>, action: ActionId) -> Result<Action, AgentError> {
        let whose = whose(caller, user)?;
        let found = self.actions.action(&caller.tenant, whose.as_ref(), action);
        found.await?.ok_or(AgentError::NotFound)
    }

    /// The current tool of an action; `None` while its server does not offer it.
    #[must_use]
    pub fn tool(&self, action: &Action) -> Option<Arc<Tool>> {
        self.agents.directory().tool(&action.server, &action.tool)
    }

    /// Resolves an approval and continues the run.
    ///
    /// # Errors
    /// There is no such approval; it was resolved or has expired; a grant was requested for a tool without recipients;
    /// the store is unavailable.
    pub async fn resolve(&self, caller: &Caller, user: Option<UserId>, answer: Answer) -> Result<Answered, AgentError> {
        let (by, person) = (caller.name_for(user.as_ref()), caller.person(user.as_ref()));
        let whose = whose(caller, user)?;
        let found = self
            .actions
            .of_approval(&caller.tenant, whose.as_ref(), answer.approval);
        let action = found.await?.ok_or(AgentError::NotFound)?;
        let always = answer.resolution == Resolution::ApproveAndAlwaysAllowRecipient;
        if always && action.details.recipients.is_none() {
            let detail = format!(
                "{} declares no recipients, so no grant is possible; allowed: reject, approve_once",
                action.tool
            );
            return Err(AgentError::NotGrantable(detail));
        }
        if always && action.details.ungrantable {
            let detail = format!(
                "this call of {} has an argument that a grant cannot cover; allowed: reject, approve_once",
                action.tool
            );
            return Err(AgentError::NotGrantable(detail));
        }
        let resolve = Resolve {
            approval: answer.approval,
            action: action.id,
            root: action.root,
            resolution: answer.resolution,
            words: words(&person, &action, &answer).into(),
            reason: answer.reason.as_deref().map(Arc::from),
            by: by.as_str().into(),
            grant: always.then(GrantId::new),
        };
        let key = answer.key.as_ref();
        self.agents
            .claim(key, action.root, OutcomeUnknown::Answer(action.root))
            .await?;
        let resolved = self.actions.resolve(resolve).await;
        match resolved.map_err(|error| outcome_unknown(&error, OutcomeUnknown::Answer(action.root)))? {
            Resolved::Done => {
                tracing::info!(action_id = %action.id, run_id = %action.root, %by, resolution = answer.resolution.as_str(), "an approval was resolved");
            }
            Resolved::Again => {}
            Resolved::Changed => {
                tracing::error!(action_id = %action.id, "an approval request was changed in the database");
                let why = "the approval request was changed in the database; allowed: reject";
                return Err(AgentError::NotGrantable(why.to_owned()));
            }
            Resolved::Late(status, resolution, by) => return Err(AgentError::Resolved(status, resolution, by)),
        }
        self.agents
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
    ) -> Result<Answered, AgentError> {
        let (by, person) = (caller.name_for(user.as_ref()), caller.person(user.as_ref()));
        let whose = whose(caller, user)?;
        let found = self.actions.action(&caller.tenant, whose.as_ref(), action).await?;
        let found = found.ok_or(AgentError::NotFound)?;
        let text = if happened { Text::Happened } else { Text::DidNotHappen };
        let settle = Settle {
            action,
            root: found.root,
            happened,
            words: text.with(&[("by", &person), ("tool", &found.tool)]).into(),
            by: by.into(),
        };
        self.agents
            .claim(key, found.root, OutcomeUnknown::Settle(found.root))
            .await?;
        let settled = self.actions.settle(settle).await;
        match settled.map_err(|error| outcome_unknown(&error, OutcomeUnknown::Settle(found.root)))? {
            SettleDone::Done | SettleDone::Again => {}
            SettleDone::NotInDoubt(status) => return Err(AgentError::NotInDoubt(status)),
            SettleDone::NotOver => return Err(AgentError::NotOver(found.root)),
            SettleDone::WithRun => return Err(AgentError::SettledWith(found.root)),
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
    pub async fn of_run(&self, run: RunId) -> Result<Vec<Action>, AgentError> {
        Ok(self.actions.of_run(run).await?)
    }

    /// A page of grants, including revoked ones.
    ///
    /// # Errors
    /// See [`Approvals::pending`].
    pub async fn grants(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        query: ListQuery,
    ) -> Result<GrantPage, AgentError> {
        let query = ListQuery {
            user: whose(caller, user)?,
            ..query
        };
        Ok(self.actions.grants(&caller.tenant, &query).await?)
    }

    /// One grant, revoked or not.
    ///
    /// # Errors
    /// There is no such grant; also see [`Approvals::pending`].
    pub async fn grant(&self, caller: &Caller, user: Option<UserId>, grant: GrantId) -> Result<Grant, AgentError> {
        let query = ListQuery {
            page_size: 1,
            filter: Some(format!("grant_id = \"{grant}\"")),
            ..ListQuery::default()
        };
        let found = self.grants(caller, user, query).await?.grants.pop();
        found.ok_or(AgentError::NotFound)
    }

    /// Revokes a grant, with immediate effect for every call that was not decided on yet.
    ///
    /// # Errors
    /// There is no such grant, or it was already revoked; the store is unavailable.
    pub async fn revoke(&self, caller: &Caller, user: Option<UserId>, grant: GrantId) -> Result<(), AgentError> {
        let by = caller.name_for(user.as_ref());
        let whose = whose(caller, user)?;
        let revoked = self.actions.revoke(&caller.tenant, whose.as_ref(), grant, &by).await;
        match revoked.map_err(|error| outcome_unknown(&error, OutcomeUnknown::Revoke))? {
            true => Ok(()),
            false => Err(AgentError::NotFound),
        }
    }

    /// Grants that are not revoked, for policy decisions.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn live(
        &self,
        caller: &Caller,
        user: &UserId,
        server: &str,
        tool: &str,
    ) -> Result<Vec<Grant>, AgentError> {
        Ok(self.actions.granted(&caller.tenant, user, server, tool).await?)
    }
}

/// A query for pending approvals only, the oldest first.
#[must_use]
pub fn pending_only(query: ListQuery) -> ListQuery {
    with_status(ActionStatus::AwaitingConfirmation, query)
}

/// A query for in-doubt actions only, the oldest first.
#[must_use]
pub fn in_doubt_only(query: ListQuery) -> ListQuery {
    with_status(ActionStatus::InDoubt, query)
}

/// The user whose approvals a caller may see and resolve; `None`: all users of the tenant.
fn whose(caller: &Caller, user: Option<UserId>) -> Result<Option<UserId>, AgentError> {
    match (caller.roles.contains(APPROVER), user) {
        (true, _) => Ok(None),
        (false, Some(user)) => Ok(Some(user)),
        (false, None) => Err(AgentError::MissingRole(APPROVER)),
    }
}

/// Restricts a query to actions of one status, the oldest first unless another order is requested.
fn with_status(status: ActionStatus, query: ListQuery) -> ListQuery {
    let own = query
        .filter
        .as_deref()
        .map(str::trim)
        .filter(|filter| !filter.is_empty());
    // Appended to the caller's filter, so that error positions in it remain correct.
    let filter = own.map_or_else(String::new, |filter| format!("{filter} AND "));
    ListQuery {
        filter: Some(format!("{filter}status = \"{}\"", status.as_str())),
        order_by: query.order_by.or_else(|| Some("created_at asc".to_owned())),
        ..query
    }
}

/// The thread message about a resolution.
fn words(by: &str, action: &Action, answer: &Answer) -> String {
    let text = match answer.resolution {
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

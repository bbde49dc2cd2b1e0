//! Leave: what waits for a person, their answers, and standing leave (REQUIREMENTS; DESIGN.md section 6).
//!
//! The acting user answers for their own runs, whoever holds the role `approver` for all of the tenant's. An answer is one
//! commit; what it sets going is taken up here at once, or by whoever looks next.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::agents::{AgentError, AgentRuns, OutcomeUnknown, outcome_unknown};
use super::caller::{APPROVER, Caller};
use super::chat::Idempotency;
use crate::domain::action::{Action, ActionStatus, Grant, Resolution};
use crate::domain::ids::{ActionId, ApprovalId, GrantId, RunId, ThreadId, UserId};
use crate::domain::templates::Text;
use crate::domain::time::rfc3339;
use crate::domain::tool::Tool;
use crate::ports::actions::{ActionPage, Actions, GrantPage, Resolve, Resolved, Settle, SettleDone};
use crate::surfaces::decisions::ListQuery;

/// The longest reason, in bytes.
pub const MAX_REASON: usize = 4096;

/// Everything the surface is made of.
pub struct Approvals {
    agents: Arc<AgentRuns>,
    actions: Arc<dyn Actions>,
}

/// A person's answer, as it was asked for.
#[derive(Clone, Debug)]
pub struct Answer {
    /// To which question.
    pub approval: ApprovalId,
    /// What they say.
    pub resolution: Resolution,
    /// Why.
    pub reason: Option<String>,
    /// The key of the request, where it has one.
    pub key: Option<Idempotency>,
}

/// What waits for a person.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingApproval {
    /// To be resolved by this.
    #[schema(value_type = String, format = "uuid")]
    pub approval_id: ApprovalId,
    /// The outermost run.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// Its thread; null for a run of the trigger's.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub thread_id: Option<ThreadId>,
    /// The call.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
    /// On whose behalf.
    pub user_id: String,
    /// Which agent asks.
    pub agent_id: String,
    /// The tool.
    pub tool: String,
    /// Exactly what it would be called with.
    #[schema(value_type = Object)]
    pub arguments: Box<RawValue>,
    /// Everybody it goes to; null where the tool names no recipients.
    #[schema(required = true)]
    pub recipients: Option<Vec<String>>,
    /// Can leave for good be given for these recipients?
    pub grantable: bool,
    /// The account from which it would be done, as the tool's server named it; null where it names none.
    #[schema(required = true)]
    pub account: Option<String>,
    /// Why it needs leave.
    pub reason: String,
    /// What is odd about it.
    pub warnings: Vec<String>,
    /// When it was asked, RFC 3339.
    pub created_at: String,
    /// When an answer comes too late, RFC 3339.
    pub expires_at: String,
}

impl PendingApproval {
    /// `None` for an action that does not wait: its time ends by itself, whenever that is recorded. Microseconds since the epoch.
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
            recipients: action.details.everybody(),
            reason: action.details.reason,
            account: action.details.account,
            warnings: action.details.warnings,
            created_at: rfc3339(action.created_at),
            expires_at: rfc3339(action.expires_at?),
        })
    }
}

/// A call of which it is not known whether it had its effect.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionInDoubt {
    /// To be settled by this.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
    /// The outermost run.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// Its thread; null for a run of the trigger's.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub thread_id: Option<ThreadId>,
    /// On whose behalf.
    pub user_id: String,
    /// Which agent called.
    pub agent_id: String,
    /// The tool.
    pub tool: String,
    /// Exactly what it was called with.
    #[schema(value_type = Object)]
    pub arguments: Box<RawValue>,
    /// Everybody it goes to; null where the tool names no recipients.
    #[schema(required = true)]
    pub recipients: Option<Vec<String>>,
    /// When it was begun, RFC 3339.
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
            recipients: action.details.everybody(),
            started_at: action.started_at.map(rfc3339),
        }
    }
}

/// What a person's word was about, and may set going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The outermost run.
    pub run: RunId,
    /// Its thread, where it has one.
    pub thread: Option<ThreadId>,
}

impl Approvals {
    /// Builds the surface.
    #[must_use]
    pub fn new(agents: Arc<AgentRuns>, actions: Arc<dyn Actions>) -> Self {
        Self { agents, actions }
    }

    /// A page of what waits, the oldest first.
    ///
    /// # Errors
    /// The query is off; the caller may see nobody's; the store is away.
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

    /// A page of actions in doubt, the oldest first.
    ///
    /// # Errors
    /// As [`Approvals::pending`].
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

    /// What a question is about, whatever was answered.
    ///
    /// # Errors
    /// There is no such question; the caller may see nobody's; the store is away.
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

    /// One action, also one that nobody was asked about.
    ///
    /// # Errors
    /// As [`Approvals::question`].
    pub async fn action(&self, caller: &Caller, user: Option<UserId>, action: ActionId) -> Result<Action, AgentError> {
        let whose = whose(caller, user)?;
        let found = self.actions.action(&caller.tenant, whose.as_ref(), action);
        found.await?.ok_or(AgentError::NotFound)
    }

    /// The tool of an action as it is now; `None` while its server does not offer it.
    #[must_use]
    pub fn tool(&self, action: &Action) -> Option<Arc<Tool>> {
        self.agents.directory().tool(&action.server, &action.tool)
    }

    /// Takes an answer, and goes on with the run as far as that sets it going.
    ///
    /// # Errors
    /// There is no such question; it was answered, or its time is over; a standing leave for a tool without recipients; the
    /// store is away.
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
                "{} names no recipients, so there is nobody to always allow; allowed: reject, approve_once",
                action.tool
            );
            return Err(AgentError::NotGrantable(detail));
        }
        if always && action.details.ungrantable {
            let detail = format!(
                "this call of {} gives an argument that leave for good does not cover; allowed: reject, approve_once",
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
                tracing::error!(action_id = %action.id, "a question is not what was asked: it was changed in the database");
                let why =
                    "the question is not what was asked, since somebody changed it in the database; allowed: reject";
                return Err(AgentError::NotGrantable(why.to_owned()));
            }
            Resolved::Late(status, resolution, by) => return Err(AgentError::Resolved(status, resolution, by)),
        }
        self.agents.go_on(action.root, &caller.tenant, action.user.as_str());
        Ok(Answered {
            run: action.root,
            thread: action.thread,
        })
    }

    /// Takes a person's word on an action in doubt.
    ///
    /// # Errors
    /// There is no such action, or it is not in doubt; its run is not over, or is paused and takes the word when it is resumed; the
    /// store is away.
    pub async fn settle(
        &self,
        caller: &Caller,
        user: Option<UserId>,
        action: ActionId,
        happened: bool,
        key: Option<&Idempotency>,
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

    /// The actions of a run, and of those that it called, in order. Whoever reads its thread may read them.
    ///
    /// # Errors
    /// The store is away.
    pub async fn of_run(&self, run: RunId) -> Result<Vec<Action>, AgentError> {
        Ok(self.actions.of_run(run).await?)
    }

    /// A page of standing leave, revoked ones too.
    ///
    /// # Errors
    /// As [`Approvals::pending`].
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
    /// There is none; as [`Approvals::pending`].
    pub async fn grant(&self, caller: &Caller, user: Option<UserId>, grant: GrantId) -> Result<Grant, AgentError> {
        let query = ListQuery {
            page_size: 1,
            filter: Some(format!("grant_id = \"{grant}\"")),
            ..ListQuery::default()
        };
        let found = self.grants(caller, user, query).await?.grants.pop();
        found.ok_or(AgentError::NotFound)
    }

    /// Takes standing leave back, at once for every call that was not judged yet.
    ///
    /// # Errors
    /// There is none, or it was taken back; the store is away.
    pub async fn revoke(&self, caller: &Caller, user: Option<UserId>, grant: GrantId) -> Result<(), AgentError> {
        let by = caller.name_for(user.as_ref());
        let whose = whose(caller, user)?;
        let revoked = self.actions.revoke(&caller.tenant, whose.as_ref(), grant, &by).await;
        match revoked.map_err(|error| outcome_unknown(&error, OutcomeUnknown::Revoke))? {
            true => Ok(()),
            false => Err(AgentError::NotFound),
        }
    }

    /// Live grants, for those who judge.
    ///
    /// # Errors
    /// The store is away.
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

/// A query for what waits for a person alone, the oldest first.
#[must_use]
pub fn pending_only(query: ListQuery) -> ListQuery {
    with_status(ActionStatus::AwaitingConfirmation, query)
}

/// A query for actions in doubt alone, the oldest first.
#[must_use]
pub fn in_doubt_only(query: ListQuery) -> ListQuery {
    with_status(ActionStatus::InDoubt, query)
}

/// Whose questions a caller may see and answer: everybody's of the tenant, or one user's.
fn whose(caller: &Caller, user: Option<UserId>) -> Result<Option<UserId>, AgentError> {
    match (caller.roles.contains(APPROVER), user) {
        (true, _) => Ok(None),
        (false, Some(user)) => Ok(Some(user)),
        (false, None) => Err(AgentError::MissingRole(APPROVER)),
    }
}

/// Actions of one status, of those a filter names, the oldest first unless another order is asked for.
fn with_status(status: ActionStatus, query: ListQuery) -> ListQuery {
    let own = query
        .filter
        .as_deref()
        .map(str::trim)
        .filter(|filter| !filter.is_empty());
    // After the caller's own, so that what is wrong there is told by its place.
    let filter = own.map_or_else(String::new, |filter| format!("{filter} AND "));
    ListQuery {
        filter: Some(format!("{filter}status = \"{}\"", status.as_str())),
        order_by: query.order_by.or_else(|| Some("created_at asc".to_owned())),
        ..query
    }
}

/// What the thread tells of an answer.
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

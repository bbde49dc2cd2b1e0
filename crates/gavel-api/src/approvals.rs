//! Approval requests, in-doubt actions, and grants.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::filter::{Filter, Kind, Listed, OLDEST_FIRST};
use super::names::sent;
use super::{names, page};
use crate::domain::action::{Details, Resolution};
use crate::domain::address::Recipients;
use crate::domain::ids::{ActionId, ApprovalId, GrantId, PlanningSessionId, RunId, ThreadId};
use crate::domain::plan::TaskId;
use crate::domain::policy;
use crate::domain::time::Timestamp;

page! {
    /// A page of pending approval requests.
    #[serde(rename_all = "camelCase")]
    ApprovalPage { approvals: PendingApproval }
}

impl Listed for ApprovalPage {
    const FILTERS: &'static [Filter] = &[
        Filter("tool", Kind::Text),
        Filter("user_id", Kind::Text),
        Filter("agent_id", Kind::Text),
        Filter("policy", Kind::Names(&["allow", "require_approval"])),
        Filter("created_at", Kind::Time),
    ];
    const EXAMPLE: &'static str = "tool = \"gmail_send\"";
    const ORDER: &'static str = OLDEST_FIRST;
}

page! {
    /// A page of in-doubt actions.
    #[serde(rename_all = "camelCase")]
    ActionInDoubtPage { actions: ActionInDoubt }
}

impl Listed for ActionInDoubtPage {
    const FILTERS: &'static [Filter] = ApprovalPage::FILTERS;
    const EXAMPLE: &'static str = "tool = \"gmail_send\"";
    const ORDER: &'static str = OLDEST_FIRST;
}

page! {
    /// A page of grants.
    #[serde(rename_all = "camelCase")]
    GrantPage { grants: Grant }
}

impl Listed for GrantPage {
    const FILTERS: &'static [Filter] = &[
        Filter("grant_id", Kind::Text),
        Filter("tool", Kind::Text),
        Filter("user_id", Kind::Text),
        Filter("created_at", Kind::Time),
    ];
    const EXAMPLE: &'static str = "tool = \"gmail_send\"";
}

sent! {
    /// An action that waits for an approval.
    #[serde(rename_all = "camelCase")]
    PendingApproval as "PendingApproval" {
        /// The id with which the approval is resolved.
        approval_id: ApprovalId,
        /// The outermost run.
        run_id: RunId,
        /// The thread of the run; null for a run that was triggered outside of threads.
        thread_id: Option<ThreadId>,
        /// The planning session of the run; null elsewhere.
        session_id: Option<PlanningSessionId>,
        /// The task of the session's plan; null elsewhere.
        task_id: Option<TaskId>,
        /// The call.
        action_id: ActionId,
        /// The user on whose behalf the call is made.
        user_id: String,
        /// The agent that proposes the call.
        agent_id: String,
        /// The tool.
        tool: String,
        /// Exactly the arguments of the call.
        #[shape(Shape::Object)]
        arguments: Box<RawValue>,
        /// What the approver should know.
        #[serde(flatten)]
        asked: Asked,
        /// When approval was requested, RFC 3339.
        created_at: Timestamp,
        /// When the approval expires, RFC 3339.
        expires_at: Timestamp,
    }
}

sent! {
    /// What an approver should know of a call that waits for approval, besides its arguments.
    Asked as "Asked" {
        /// All recipients; null if the tool declares no recipients.
        recipients: Option<Vec<String>>,
        /// Can a grant be given for these recipients?
        grantable: bool,
        /// The account that the call would use, as the tool's server named it; null if the server named none.
        account: Option<String>,
        /// Why the call requires approval.
        reason: String,
        /// Warnings about the call.
        warnings: Vec<String>,
    }
}

impl From<Details> for Asked {
    fn from(details: Details) -> Self {
        Self {
            grantable: details.is_grantable(),
            recipients: details.all_recipients(),
            account: details.account,
            reason: details.reason,
            warnings: details.warnings,
        }
    }
}

sent! {
    /// A call whose outcome is unknown.
    #[serde(rename_all = "camelCase")]
    ActionInDoubt as "ActionInDoubt" {
        /// The id with which the action is settled.
        action_id: ActionId,
        /// The outermost run.
        run_id: RunId,
        /// The thread of the run; null for a run that was triggered outside of threads.
        thread_id: Option<ThreadId>,
        /// The planning session of the run; null elsewhere.
        session_id: Option<PlanningSessionId>,
        /// The task of the session's plan; null elsewhere.
        task_id: Option<TaskId>,
        /// The user on whose behalf the call was made.
        user_id: String,
        /// The agent that made the call.
        agent_id: String,
        /// The tool.
        tool: String,
        /// Exactly the arguments of the call.
        #[shape(Shape::Object)]
        arguments: Box<RawValue>,
        /// All recipients; null if the tool declares no recipients.
        recipients: Option<Vec<String>>,
        /// When the call was started, RFC 3339.
        started_at: Option<Timestamp>,
    }
}

/// A user's grant: calls of this tool to exactly these recipients, each in its argument, require no approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// The id of the grant.
    #[schema(value_type = String, format = "uuid")]
    pub grant_id: GrantId,
    /// The user who holds the grant.
    pub user_id: String,
    /// The tool's server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// Digest of the tool's definition when the grant was made. Calls of a tool with another digest require approval
    /// again.
    pub tool_digest: String,
    /// All recipients it covers. It applies only to calls to all of these recipients and to no others.
    #[serde(deserialize_with = "all_recipients")]
    pub recipients: Vec<String>,
    /// The same recipients by argument. It applies only to calls that name each recipient in that argument.
    #[schema(value_type = HashMap<String, Vec<String>>, example = json!({"to": ["ann@example.com"], "bcc": ["bob@example.com"]}))]
    #[serde(deserialize_with = "recipients")]
    pub recipients_by_argument: Recipients,
    /// The person who made the grant.
    pub created_by: String,
    /// When it was made, RFC 3339.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// How many calls it has allowed.
    pub uses: u64,
    /// When it was last used, RFC 3339; null if never.
    #[schema(value_type = Option<String>, required = true)]
    pub last_used_at: Option<Timestamp>,
    /// When it was revoked, RFC 3339; null if it is active.
    #[schema(value_type = Option<String>, required = true)]
    pub revoked_at: Option<Timestamp>,
}

/// A value, or as a row stores it: the JSON text of the recipients by argument.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored<T> {
    Text(String),
    Sent(T),
}

/// A grant with unreadable recipients covers no call. It is still listed, so that it can be revoked.
fn read(text: &str) -> Recipients {
    serde_json::from_str(text).unwrap_or_else(|error| {
        tracing::error!(%error, "the recipients of a grant are unreadable, so it covers no call");
        Recipients::default()
    })
}

fn recipients<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Recipients, D::Error> {
    Ok(match Stored::deserialize(deserializer)? {
        Stored::Text(text) => read(&text),
        Stored::Sent(recipients) => recipients,
    })
}

fn all_recipients<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match Stored::deserialize(deserializer)? {
        Stored::Text(text) => read(&text).all().into_iter().map(str::to_owned).collect(),
        Stored::Sent(recipients) => recipients,
    })
}

impl Grant {
    /// The grant as the policy reads it; `None` if it was revoked.
    #[must_use]
    pub fn to_policy(self) -> Option<policy::Grant> {
        if self.revoked_at.is_some() {
            return None;
        }
        Some(policy::Grant {
            id: self.grant_id.to_string().into(),
            user: self.user_id.into(),
            server: self.server.into(),
            tool: self.tool.into(),
            digest: self.tool_digest.into(),
            recipients: self.recipients_by_argument,
        })
    }
}

/// `POST /api/agent/approvals/resolve`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ResolveBody {
    /// The approval request to resolve.
    #[schema(value_type = String, format = "uuid")]
    pub approval_id: ApprovalId,
    /// The decision of the approver.
    #[schema(value_type = names::Resolution)]
    pub decision: Resolution,
    /// The reason of the decision; the agent receives it after a rejection.
    #[schema(max_length = 4096)]
    pub reason: Option<String>,
}

/// `POST /api/agent/actions/{id}/settle`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleBody {
    /// Whether the action had its effect.
    pub happened: bool,
}

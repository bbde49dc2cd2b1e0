//! An action: a tool call that has consequences or requires approval, and its states.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::address::Recipients;
use super::ids::{ActionId, ApprovalId, GrantId, PlanningSessionId, RunId, ThreadId};
use super::names::names;
use super::policy::Lost;
use super::text::visible;

names! {
    /// The status of an action.
    ActionStatus {
        /// The model has proposed it, and the policy has not decided yet. Exists only in journals.
        Planned = "planned",
        /// It waits for an approver.
        AwaitingConfirmation = "awaiting_confirmation",
        /// An approver has approved it, and it has not started.
        Approved = "approved",
        /// It has started.
        Executing = "executing",
        /// It was executed.
        Completed = "completed",
        /// It could not start, or its server reported that it failed.
        Failed = "failed",
        /// Its outcome is unknown; a person must settle it.
        InDoubt = "in_doubt",
        /// An approver rejected it.
        Rejected = "rejected",
        /// No approver answered in time, or the run ended first.
        Expired = "expired",
    }
}

impl ActionStatus {
    /// The legal transitions. Each is one conditional UPDATE, so that only one of two concurrent writers succeeds. Its
    /// condition is built from this function, or names one status that this function allows.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        use ActionStatus::{
            Approved, AwaitingConfirmation, Completed, Executing, Expired, Failed, InDoubt, Planned, Rejected,
        };
        matches!(
            (self, next),
            (Planned, AwaitingConfirmation | Executing | Failed)
                | (AwaitingConfirmation, Approved | Rejected | Expired)
                | (Approved, Executing | Failed | Expired)
                | (Executing, Completed | Failed | InDoubt)
        )
    }

    /// Whether a settlement may change the status to `next`. It settles an in-doubt action, or corrects an earlier
    /// settlement that has had no consequence.
    #[must_use]
    pub const fn may_be_settled_as(self, next: Self) -> bool {
        use ActionStatus::{Completed, Failed, InDoubt};
        matches!((self, next), (InDoubt | Completed | Failed, Completed | Failed))
    }

    /// Whether the action has ended: its status no longer changes, unless a person settles it.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::InDoubt | Self::Rejected | Self::Expired => true,
            Self::Planned | Self::AwaitingConfirmation | Self::Approved | Self::Executing => false,
        }
    }
}

names! {
    /// An approver's answer.
    Resolution {
        /// The action must not be executed.
        Reject = "reject",
        /// The action may be executed once.
        ApproveOnce = "approve_once",
        /// The action may be executed, and so may later calls of this tool to exactly the same recipients, each in the
        /// same argument.
        ApproveAndAlwaysAllowRecipient = "approve_and_always_allow_recipient",
    }
}

impl Resolution {
    /// Whether the action may be executed.
    #[must_use]
    pub const fn approves(self) -> bool {
        !matches!(self, Self::Reject)
    }
}

/// What an approver should know before answering, in addition to the arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Details {
    /// Why it requires approval.
    pub reason: String,
    /// The text of the approval request in the thread; `None` until it is written.
    pub request: Option<String>,
    /// What is suspicious about it, for example a look-alike domain.
    pub warnings: Vec<String>,
    /// All recipients; `None` if the tool has no recipient arguments or the call names no recipients.
    pub recipients: Option<Recipients>,
    /// The call sets an argument that no grant can cover, so it can be approved only once.
    pub ungrantable: bool,
    /// The account that would be used, as named by the tool's server; approval covers it, like the arguments.
    pub account: Option<String>,
}

impl Details {
    /// All recipients, canonical and sorted.
    pub fn all_recipients(&self) -> Option<Vec<String>> {
        let recipients = self.recipients.as_ref()?;
        Some(recipients.all().into_iter().map(str::to_owned).collect())
    }

    /// Whether a grant can be made from it.
    // R-15
    pub fn is_grantable(&self) -> bool {
        !self.ungrantable && self.recipients.is_some()
    }
}

/// A stored action.
#[derive(Clone, Debug, Deserialize)]
pub struct Action {
    /// The id, the same as that of the tool call.
    pub id: ActionId,
    /// The approval request; `None` if no approval was required.
    #[serde(rename = "approval_id")]
    pub approval: Option<ApprovalId>,
    /// The run that made the call.
    #[serde(rename = "run_id")]
    pub run: RunId,
    /// The outermost run.
    #[serde(rename = "root_id")]
    pub root: RunId,
    /// The thread of the outermost run.
    #[serde(rename = "thread_id")]
    pub thread: Option<ThreadId>,
    /// The planning session of the outermost run.
    #[serde(rename = "session_id")]
    pub session: Option<PlanningSessionId>,
    /// The user on whose behalf it acts.
    #[serde(rename = "user_id")]
    pub user: String,
    /// The agent.
    #[serde(rename = "agent_id")]
    pub agent: String,
    /// Position in its run.
    pub sequence: u32,
    /// The tool's server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// Whether a call of the tool can change something.
    pub side_effect: bool,
    /// Digest of the tool's definition when approval was requested.
    pub tool_digest: String,
    /// Canonical arguments, as JSON.
    pub arguments: Box<RawValue>,
    /// What an approver should know.
    #[serde(deserialize_with = "details")]
    pub details: Details,
    /// The current status.
    pub status: ActionStatus,
    /// Microseconds since the epoch.
    pub created_at: i64,
    /// When the approval request expires; microseconds since the epoch.
    pub expires_at: Option<i64>,
    /// The approver's answer.
    pub resolution: Option<Resolution>,
    /// The approver who answered.
    pub resolved_by: Option<String>,
    /// The approver's reason.
    pub reason: Option<String>,
    /// The grant that was made with the approval, or that made an approval request unnecessary.
    #[serde(rename = "grant_id")]
    pub grant: Option<GrantId>,
    /// Why it failed: a code from the closed list.
    pub error_code: Option<String>,
    /// Why it failed, as text, if texts are kept.
    pub error_message: Option<String>,
    /// The model that proposed it.
    pub model: String,
    /// Hex SHA-256 of the canonical arguments.
    pub input_hash: String,
    /// The policy's decision: `allow` or `require_approval`.
    pub policy: String,
    /// What decided that: `rule NAME`, `grant ID` …
    pub decided_by: Option<String>,
    /// What matched the call, and did not decide.
    pub lost: Vec<Lost>,
    /// When the approver answered; microseconds since the epoch.
    pub resolved_at: Option<i64>,
    /// When it started; microseconds since the epoch.
    pub started_at: Option<i64>,
    /// When it ended; microseconds since the epoch.
    pub completed_at: Option<i64>,
    /// The person who settled it, if it was in doubt.
    pub settled_by: Option<String>,
}

/// Unreadable details become a warning, and the action becomes ungrantable.
fn details<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Details, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    if text.is_empty() {
        return Ok(Details::default());
    }
    Ok(serde_json::from_str(&text).unwrap_or_else(|error| {
        tracing::error!(%error, "the details of an approval request are unreadable");
        Details {
            warnings: vec!["the details of this call are unreadable; check all of its arguments".to_owned()],
            ungrantable: true,
            ..Details::default()
        }
    }))
}

impl Action {
    /// Whether it waits for an approver at this time, in microseconds since the epoch.
    pub fn waits(&self, now_us: i64) -> bool {
        self.status == ActionStatus::AwaitingConfirmation && self.expires_at.is_none_or(|at| at > now_us)
    }
}

/// The most characters of a tool's error text that its user is shown.
const MOST_WORDS: usize = 500;

/// A tool's error text, shortened for its user (R-16, R-17). It is `error.message` of a JSON object that has one, as
/// gavel's own servers send, else the whole text. Of that, the first line that is not blank, without invisible
/// characters, and at most 500 characters. The rest may be a stack trace or a whole page; operators find all of it in
/// the tool-call log.
pub fn in_words(message: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Said {
        error: Failure,
    }
    #[derive(serde::Deserialize)]
    struct Failure {
        message: String,
    }
    let said = serde_json::from_str::<Said>(message).map(|said| Cow::Owned(said.error.message));
    let said = said.unwrap_or(Cow::Borrowed(message));
    let line = said
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    let line = visible(line);
    match line.char_indices().nth(MOST_WORDS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

/// The error text of an action that a person settled as not executed.
pub const DID_NOT_HAPPEN: &str = "a person says that it did not happen";

#[cfg(test)]
mod tests {
    use super::*;

    /// R-16, R-17: the user sees what failed, and nothing of a program's internals.
    #[test]
    fn a_tool_s_failure_is_shown_by_its_first_line() {
        let own = r#"{"error": {"code": "not_found", "message": "There is no such thread."}}"#;
        assert_eq!(in_words(own), "There is no such thread.");
        let traced = "\n  no such\u{200b} task\u{7}\n  at Database.query (/srv/app/db.js:12:3)\n  password=hunter2";
        assert_eq!(in_words(traced), "no such task");
        assert_eq!(in_words(&"ö".repeat(600)), format!("{}…", "ö".repeat(500)));
        assert_eq!(in_words(" \n "), "");
    }

    /// R-states: nothing runs without approval, and an ended action changes only when it is settled.
    #[test]
    fn only_the_legal_transitions_are_possible() {
        use ActionStatus::*;
        let legal = [
            (Planned, AwaitingConfirmation),
            (Planned, Executing),
            (Planned, Failed),
            (AwaitingConfirmation, Approved),
            (AwaitingConfirmation, Rejected),
            (AwaitingConfirmation, Expired),
            (Approved, Executing),
            (Approved, Failed),
            (Approved, Expired),
            (Executing, Completed),
            (Executing, Failed),
            (Executing, InDoubt),
        ];
        let settled = [InDoubt, Completed, Failed].map(|from| [(from, Completed), (from, Failed)]);
        for from in ActionStatus::ALL.iter().copied() {
            for to in ActionStatus::ALL.iter().copied() {
                assert_eq!(from.may_become(to), legal.contains(&(from, to)), "{from:?} → {to:?}");
                let word = settled.as_flattened().contains(&(from, to));
                assert_eq!(from.may_be_settled_as(to), word, "{from:?} → {to:?}");
            }
        }
    }
}

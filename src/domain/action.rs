//! An action: a call of a run that has consequences or needs leave, and the states it may pass through (DESIGN.md section 6).

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::address::Recipients;
use super::ids::{ActionId, ApprovalId, GrantId, RunId, ThreadId};
use super::names::names;
use super::policy;
use super::text::visible;

names! {
    /// Where an action is.
    ActionStatus {
        /// The model has proposed it, and nobody has judged it yet. Only a journal knows such a one.
        Planned = "planned",
        /// A person is asked.
        AwaitingConfirmation = "awaiting_confirmation",
        /// A person has agreed, and it has not begun.
        Approved = "approved",
        /// It was begun.
        Executing = "executing",
        /// It had its effect.
        Completed = "completed",
        /// It could not begin, or its server says that it failed.
        Failed = "failed",
        /// It is not known whether it had its effect; a person settles that.
        InDoubt = "in_doubt",
        /// A person said no.
        Rejected = "rejected",
        /// Nobody answered in time, or the run was over first.
        Expired = "expired",
    }
}

impl ActionStatus {
    /// The legal transitions. Each is one conditional UPDATE, so that of two who try only one succeeds. Its condition is made of this,
    /// or names one status from which this allows it.
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

    /// What a person's word may make of it: a doubt is settled, and a word that led to nothing yet gives way to another.
    #[must_use]
    pub const fn may_be_settled_as(self, next: Self) -> bool {
        use ActionStatus::{Completed, Failed, InDoubt};
        matches!((self, next), (InDoubt | Completed | Failed, Completed | Failed))
    }

    /// Nothing will happen any more, unless a person settles it.
    #[must_use]
    pub const fn is_over(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::InDoubt | Self::Rejected | Self::Expired => true,
            Self::Planned | Self::AwaitingConfirmation | Self::Approved | Self::Executing => false,
        }
    }
}

names! {
    /// A person's answer.
    Resolution {
        /// It must not run.
        Reject = "reject",
        /// It may run, this once.
        ApproveOnce = "approve_once",
        /// It may run, and so may later calls of this tool to exactly the same recipients, each in the same argument.
        ApproveAndAlwaysAllowRecipient = "approve_and_always_allow_recipient",
    }
}

impl Resolution {
    /// May it run?
    #[must_use]
    pub const fn approves(self) -> bool {
        !matches!(self, Self::Reject)
    }
}

/// What a person should know before they answer, beside the arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Details {
    /// Why it needs leave.
    pub reason: String,
    /// The approval request as the thread has it; absent in requests of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// What is odd about it: a look-alike domain, say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Everybody it goes to; `None` where the tool names no recipients, or the call none.
    pub recipients: Option<Recipients>,
    /// It gives an argument that leave for good does not cover, so it can be allowed once only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ungrantable: bool,
    /// The account from which it would be done, as the tool's server named it; bound like the arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
}

impl Details {
    /// Everybody it goes to, canonical and in order.
    #[must_use]
    pub fn everybody(&self) -> Option<Vec<String>> {
        let recipients = self.recipients.as_ref()?;
        Some(recipients.all().into_iter().map(str::to_owned).collect())
    }

    /// Can a grant be given for it?
    // R-15
    #[must_use]
    pub fn is_grantable(&self) -> bool {
        !self.ungrantable && self.recipients.is_some()
    }
}

/// An action as it is stored.
#[derive(Clone, Debug)]
pub struct Action {
    /// Its id, that of the call.
    pub id: ActionId,
    /// The question to a person; none where nobody had to be asked.
    pub approval: Option<ApprovalId>,
    /// Its run.
    pub run: RunId,
    /// The outermost run.
    pub root: RunId,
    /// The thread of the outermost run.
    pub thread: Option<ThreadId>,
    /// On whose behalf.
    pub user: String,
    /// Whose agent.
    pub project: String,
    /// Which agent.
    pub agent: String,
    /// Place in its run.
    pub sequence: u32,
    /// The tool's server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// Can a call of it change something?
    pub side_effect: bool,
    /// What the tool was when leave was asked for.
    pub tool_digest: String,
    /// Canonical arguments, JSON.
    pub arguments: Box<RawValue>,
    /// What a person should know.
    pub details: Details,
    /// Where it is.
    pub status: ActionStatus,
    /// Microseconds since the epoch.
    pub created_at: i64,
    /// When an answer comes too late; microseconds since the epoch.
    pub expires_at: Option<i64>,
    /// What a person said.
    pub resolution: Option<Resolution>,
    /// Who.
    pub resolved_by: Option<String>,
    /// Why, in their words.
    pub reason: Option<String>,
    /// The standing leave that came of it, or that made a question needless.
    pub grant: Option<GrantId>,
    /// Why it failed, from the closed list.
    pub error_code: Option<String>,
    /// The same in words, as far as words are kept.
    pub error_message: Option<String>,
    /// The model that proposed it.
    pub model: String,
    /// Hex SHA-256 of the canonical arguments.
    pub input_hash: String,
    /// What the policy said: `allow` or `require_approval`.
    pub policy: String,
    /// When a person answered; microseconds since the epoch.
    pub resolved_at: Option<i64>,
    /// When it was begun; microseconds since the epoch.
    pub started_at: Option<i64>,
    /// When it was over; microseconds since the epoch.
    pub completed_at: Option<i64>,
    /// Who said what came of it, where it was in doubt.
    pub settled_by: Option<String>,
}

impl Action {
    /// Does it wait for an approver, at this time in microseconds since the epoch?
    #[must_use]
    pub fn waits(&self, now_us: i64) -> bool {
        self.status == ActionStatus::AwaitingConfirmation && self.expires_at.is_none_or(|at| at > now_us)
    }
}

/// Standing leave of a user: this tool, to exactly these recipients, each in its argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// Its id.
    #[schema(value_type = String, format = "uuid")]
    pub grant_id: GrantId,
    /// Whose.
    pub user_id: String,
    /// The tool's server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// Of the tool's definition when leave was given; calls of another one are asked about.
    pub tool_digest: String,
    /// Everybody it covers: it holds for calls to all of these and nobody else.
    pub recipients: Vec<String>,
    /// The same, each under the argument that names them: it holds for calls with each of them there.
    #[schema(value_type = HashMap<String, Vec<String>>, example = json!({"to": ["ann@example.com"], "bcc": ["bob@example.com"]}))]
    pub recipients_by_argument: Recipients,
    /// Who gave it.
    pub created_by: String,
    /// When, RFC 3339.
    pub created_at: String,
    /// How often it was used.
    pub uses: u64,
    /// When last.
    #[schema(required = true)]
    pub last_used_at: Option<String>,
    /// When it was taken back.
    #[schema(required = true)]
    pub revoked_at: Option<String>,
}

/// Characters of a tool's own words that its user is shown.
const MOST_WORDS: usize = 500;

/// What a tool says of its failure, for its user (R-16, R-17): `error.message` where it answered with an object that has one, as gavel's
/// own servers do, else its text; of either the first line with something in it, without what cannot be seen, and not more of it than a person reads. What
/// comes after that is for operators, who have all of it in the log of tools: traces of a program, or whole pages.
#[must_use]
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

/// What stands as the error of an action of which a person says so.
pub const DID_NOT_HAPPEN: &str = "a person says that it did not happen";

impl Grant {
    /// As the gate looks at it; `None` where it counts for nothing.
    #[must_use]
    pub fn leave(self) -> Option<policy::Grant> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// R-16, R-17: a user is told what went wrong, and nothing of the inside of a program.
    #[test]
    fn a_tool_s_failure_is_told_in_its_first_line() {
        let own = r#"{"error": {"code": "not_found", "message": "There is no such thread."}}"#;
        assert_eq!(in_words(own), "There is no such thread.");
        let traced = "\n  no such\u{200b} task\u{7}\n  at Database.query (/srv/app/db.js:12:3)\n  password=hunter2";
        assert_eq!(in_words(traced), "no such task");
        assert_eq!(in_words(&"ö".repeat(600)), format!("{}…", "ö".repeat(500)));
        assert_eq!(in_words(" \n "), "");
    }

    /// R-states, DESIGN.md section 6: nothing runs without leave, and what is over stays over but for a doubt that is settled.
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

//! A thread: a conversation of one user with an agent, kept (REQUIREMENTS ).

use serde::Serialize;
use utoipa::ToSchema;

use super::action::ActionStatus;
use super::agent_run::RunStatus;
use super::ids::{ActionId, RunId, ThreadId};
use super::names::names;
use super::templates::{Text, sentence};

names! {
    /// Who says a line of a thread.
    MessageRole {
        /// The user, or an approver.
        User = "user",
        /// The agent, or gavel for it.
        Assistant = "assistant",
    }
}

names! {
    /// What a line of a thread is.
    MessageKind {
        /// Words of the user or of the agent.
        Message = "message",
        /// An approval is asked for.
        ApprovalRequest = "approval_request",
        /// An approver has answered.
        Approval = "approval",
        /// An action was executed, or may have been.
        Action = "action",
        /// Somebody has found out what came of an action in doubt.
        Settlement = "settlement",
    }
}

impl MessageKind {
    /// Who says a line of this kind; that of a message is its own.
    #[must_use]
    pub const fn role(self) -> Option<MessageRole> {
        match self {
            Self::Message => None,
            Self::ApprovalRequest | Self::Action => Some(MessageRole::Assistant),
            Self::Approval | Self::Settlement => Some(MessageRole::User),
        }
    }
}

/// What happens to a message while a run of its thread is going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhileBusy {
    /// It is turned away, with the run's id.
    Refuse,
    /// Its run waits for its turn.
    Queue,
}

/// What becomes of a run when a person says no to a call of it (`runs.on_reject`).
//
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnReject {
    /// The model is told, with the reason, and goes on.
    #[default]
    Continue,
    /// It is over, and counts as completed.
    Complete,
    /// It is over, and counts as failed.
    Fail,
}

/// One line of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThreadMessage {
    /// 1, 2, 3 …
    pub number: u64,
    /// Who.
    pub role: MessageRole,
    /// What.
    pub kind: MessageKind,
    /// The words; untrusted.
    pub text: String,
    /// The run it belongs to.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// The action that it is about.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub action_id: Option<ActionId>,
    /// When, RFC 3339.
    pub created_at: String,
}

/// A thread as its user is shown it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Thread {
    /// Its id.
    #[schema(value_type = String, format = "uuid")]
    pub thread_id: ThreadId,
    /// Whose.
    pub user_id: String,
    /// Who answers in it.
    pub agent_id: String,
    /// When it began, RFC 3339.
    pub created_at: String,
    /// When something was said last.
    pub updated_at: String,
    /// A page of its messages, the latest last.
    pub messages: Vec<ThreadMessage>,
    /// How many were said in it, those that are not kept any more included.
    pub message_count: u64,
}

/// A thread in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThreadSummary {
    /// Its id.
    #[schema(value_type = String, format = "uuid")]
    pub thread_id: ThreadId,
    /// The beginning of its first line, to know it by; untrusted. Null where what was said is not kept.
    #[schema(required = true)]
    pub title: Option<String>,
    /// Whose.
    pub user_id: String,
    /// Who answers in it.
    pub agent_id: String,
    /// When it began, RFC 3339.
    pub created_at: String,
    /// When something was said last.
    pub updated_at: String,
    /// How many messages it has.
    pub message_count: u64,
    /// How it stands; null where its runs are not kept.
    #[schema(required = true)]
    pub latest_run: Option<LatestRun>,
}

/// How the latest run of a thread stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LatestRun {
    /// The run.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// As the run's own: `executing` while a call with consequences is under way.
    pub status: &'static str,
    /// As the run's own.
    pub state: &'static str,
}

impl LatestRun {
    /// `acted` is what stands out among its actions: one that is executing, or else one in doubt.
    #[must_use]
    pub fn new(run_id: RunId, status: RunStatus, acted: Option<ActionStatus>) -> Self {
        let acting = acted == Some(ActionStatus::Executing);
        let (status, state) = run_words(status, acting, acted == Some(ActionStatus::InDoubt));
        Self { run_id, status, state }
    }
}

/// The wire's word for where a run stands, and the truth where it has none. Is a call of it executing, or in doubt?
#[must_use]
pub const fn run_words(run: RunStatus, acting: bool, doubtful: bool) -> (&'static str, &'static str) {
    let status = match run {
        RunStatus::Queued => "queued",
        RunStatus::Running if acting => "executing",
        RunStatus::Running => "planning",
        RunStatus::AwaitingConfirmation => "awaiting_confirmation",
        RunStatus::Completed => "completed",
        RunStatus::Failed | RunStatus::Cancelled | RunStatus::Paused => "failed",
    };
    let state = match run {
        RunStatus::Failed | RunStatus::Cancelled if doubtful => ActionStatus::InDoubt.as_str(),
        RunStatus::Cancelled | RunStatus::Paused => run.as_str(),
        _ => status,
    };
    (status, state)
}

/// What a run says as it stands: the words of its model, and why it has no better ones. Where an outcome is unknown its model may
/// have taken the action for done, so that is said as well.
#[must_use]
pub fn end_words(status: RunStatus, summary: Option<&str>, error: Option<&str>) -> String {
    let own = || match status {
        RunStatus::Queued => Some(Text::Queued),
        RunStatus::Running | RunStatus::AwaitingConfirmation => Some(Text::Working),
        RunStatus::Cancelled => Some(Text::Cancelled),
        RunStatus::Completed | RunStatus::Failed | RunStatus::Paused => None,
    };
    let why = error.map(sentence).or_else(|| own().map(|text| text.with(&[])));
    match (summary.filter(|words| !words.trim().is_empty()), why) {
        (Some(summary), Some(why)) => format!("{summary}\n\n[{why}]"),
        (Some(summary), None) => summary.to_owned(),
        (None, why) => why.unwrap_or_default(),
    }
}

/// So many calls are named, of those that a run made.
const MOST_NAMED: usize = 20;

/// What a run has done, and what it may have, for whoever reads of its end in other words than its model's.
#[must_use]
pub fn deeds(done: &[String], doubtful: &[String]) -> Option<String> {
    let listed = |calls: &[String]| {
        let named = calls[..calls.len().min(MOST_NAMED)].join("; ");
        match calls.len().saturating_sub(MOST_NAMED) {
            0 => named,
            more => format!("{named}; and {more} more"),
        }
    };
    let mut told = Vec::new();
    for (calls, text) in [(done, Text::Done), (doubtful, Text::MaybeDone)] {
        if !calls.is_empty() {
            told.push(text.with(&[("actions", &listed(calls))]));
        }
    }
    (!told.is_empty()).then(|| format!("[{}]", told.join(" ")))
}

/// The longest title, in characters.
const TITLE: usize = 80;

/// A thread's title: the first line of what was said first, as much of it as is needed to know it by.
#[must_use]
pub fn title(first: &str) -> Option<String> {
    let line = first.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(match line.char_indices().nth(TITLE) {
        None => line.to_owned(),
        Some(_) => line.chars().take(TITLE - 1).chain(['…']).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Promise 7
    #[test]
    fn what_a_run_says_at_its_end_hides_neither_a_fault_nor_a_deed() {
        use RunStatus::{AwaitingConfirmation, Cancelled, Completed, Failed, Queued, Running};
        for (status, summary, error, expected) in [
            (Completed, Some("Sent."), None, "Sent."),
            (Failed, None, Some("it failed"), "it failed."),
            (Failed, Some("I shall."), Some("It failed."), "I shall.\n\n[It failed.]"),
            (Cancelled, None, None, "Cancelled before it was finished."),
            (
                Cancelled,
                Some("I shall."),
                None,
                "I shall.\n\n[Cancelled before it was finished.]",
            ),
            (Queued, None, None, "Waiting for an earlier message of this thread."),
            (Running, None, None, "Working on it."),
            (AwaitingConfirmation, None, None, "Working on it."),
        ] {
            assert_eq!(end_words(status, summary, error), expected);
        }
        let many: Vec<_> = (0..22).map(|n| format!("t{n}")).collect();
        assert_eq!(deeds(&[], &[]), None);
        assert_eq!(deeds(&many[..2], &[]).as_deref(), Some("[This was done: t0; t1.]"));
        assert!(
            deeds(&many, &many[..1])
                .unwrap()
                .contains("t19; and 2 more. It is not known whether this was done: t0.")
        );
        assert_eq!(run_words(RunStatus::Cancelled, false, true), ("failed", "in_doubt"));
    }

    #[test]
    fn a_title_is_the_first_line_that_says_something_and_never_too_long() {
        for (said, expected) in [
            ("E-mail Ann.\nSay I am late.", Some("E-mail Ann.".to_owned())),
            ("\n \t\r\n  milk \n", Some("milk".to_owned())),
            (" \n", None),
            ("", None),
            (&"ä".repeat(80), Some("ä".repeat(80))),
            (&"ä".repeat(81), Some(format!("{}…", "ä".repeat(79)))),
        ] {
            assert_eq!(title(said), expected, "{said:?}");
        }
    }
}

//! A thread: a stored conversation of one user with an agent.

use super::action::ActionStatus;
use super::agent_run::RunStatus;
use super::names::names;
use super::templates::{Text, sentence};

names! {
    /// The speaker of a line of a thread.
    MessageRole {
        /// The user, or an approver.
        User = "user",
        /// The agent, or gavel on its behalf.
        Assistant = "assistant",
    }
}

names! {
    /// The kind of a line of a thread.
    MessageKind {
        /// A message of the user or of the agent.
        Message = "message",
        /// An approval request.
        ApprovalRequest = "approval_request",
        /// An approver answered.
        Approval = "approval",
        /// An action was executed, or its outcome is unknown.
        Action = "action",
        /// A person settled an in-doubt action.
        Settlement = "settlement",
    }
}

impl MessageKind {
    /// The speaker of a line of this kind; `None` for a message, which has its own.
    #[must_use]
    pub const fn role(self) -> Option<MessageRole> {
        match self {
            Self::Message => None,
            Self::ApprovalRequest | Self::Action => Some(MessageRole::Assistant),
            Self::Approval | Self::Settlement => Some(MessageRole::User),
        }
    }
}

names! {
    /// What happens to a new message while a run of its thread is in progress.
    WhileBusy {
        /// It is rejected, with the run's id.
        Refuse = "refuse",
        /// Its run waits for its turn.
        Queue = "queue",
    }
}

//
names! {
    /// What happens to a run when an approver rejects a call of it (`runs.on_reject`).
    #[derive(Default)]
    OnReject {
        /// The model receives the rejection and its reason, and the run continues.
        #[default]
        Continue = "continue",
        /// The run ends as completed.
        Complete = "complete",
        /// The run ends as failed.
        Fail = "fail",
    }
}

/// The wire's `status` of a run, and its `state`, which is more precise for runs that did not complete. The flags tell
/// whether a call of it is executing or in doubt.
pub const fn run_words(run: RunStatus, acting: bool, in_doubt: bool) -> (&'static str, &'static str) {
    let status = match run {
        RunStatus::Queued => "queued",
        RunStatus::Running if acting => "executing",
        RunStatus::Running => "planning",
        RunStatus::AwaitingConfirmation => "awaiting_confirmation",
        RunStatus::Completed => "completed",
        RunStatus::Failed | RunStatus::Cancelled | RunStatus::Paused => "failed",
    };
    let state = match run {
        RunStatus::Failed | RunStatus::Cancelled if in_doubt => ActionStatus::InDoubt.as_str(),
        RunStatus::Cancelled | RunStatus::Paused => run.as_str(),
        _ => status,
    };
    (status, state)
}

/// The text of a run in its current status: its model's text, and why it did not complete. If an outcome is unknown,
/// its model may have assumed that the action was done, so the reason is added.
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

/// The most calls of a run that are named.
const MOST_NAMED: usize = 20;

/// The actions that a run has done or may have done, for readers of an end that its model did not describe.
pub fn completed_effects(done: &[String], in_doubt: &[String]) -> Option<String> {
    let listed = |calls: &[String]| {
        let named = calls[..calls.len().min(MOST_NAMED)].join("; ");
        match calls.len().saturating_sub(MOST_NAMED) {
            0 => named,
            more => format!("{named}; and {more} more"),
        }
    };
    let mut sentences = Vec::new();
    for (calls, text) in [(done, Text::Done), (in_doubt, Text::MaybeDone)] {
        if !calls.is_empty() {
            sentences.push(text.with(&[("actions", &listed(calls))]));
        }
    }
    (!sentences.is_empty()).then(|| format!("[{}]", sentences.join(" ")))
}

/// The longest title, in characters.
const TITLE: usize = 80;

/// A thread's title: the first line of its first message, shortened.
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

    /// Promise: truthful states.
    #[test]
    fn the_final_message_of_a_run_hides_neither_a_fault_nor_an_effect() {
        use RunStatus::{AwaitingConfirmation, Cancelled, Completed, Failed, Queued, Running};
        for (status, summary, error, expected) in [
            (Completed, Some("Sent."), None, "Sent."),
            (Failed, None, Some("it failed"), "it failed."),
            (Failed, Some("I will."), Some("It failed."), "I will.\n\n[It failed.]"),
            (Cancelled, None, None, "Cancelled before it was finished."),
            (
                Cancelled,
                Some("I will."),
                None,
                "I will.\n\n[Cancelled before it was finished.]",
            ),
            (Queued, None, None, "Waiting for an earlier message of this thread."),
            (Running, None, None, "Working on it."),
            (AwaitingConfirmation, None, None, "Working on it."),
        ] {
            assert_eq!(end_words(status, summary, error), expected);
        }
        let many: Vec<_> = (0..22).map(|n| format!("t{n}")).collect();
        assert_eq!(completed_effects(&[], &[]), None);
        assert_eq!(
            completed_effects(&many[..2], &[]).as_deref(),
            Some("[This was done: t0; t1.]")
        );
        assert!(
            completed_effects(&many, &many[..1])
                .unwrap()
                .contains("t19; and 2 more. Outcome unknown: t0.")
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

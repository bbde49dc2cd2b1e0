//! Asks the user at the terminal to resolve an approval request.

use std::io::IsTerminal;

use crate::api::approvals::ResolveBody;
use crate::cli::approvals::{Question, question};
use crate::cli::lines::{Lines, Next};
use crate::cli::output;
use crate::domain::action;
use anyhow::Context;

/// The user's reply.
pub(crate) enum Said {
    Answer(ResolveBody),
    /// No answer now.
    Later,
}

/// Is a user at the terminal?
pub(crate) fn is_here() -> bool {
    std::io::stdin().is_terminal() && output::person_reads_notes()
}

/// Asks until there is an answer.
pub(crate) async fn answer(one: &Question<'_>) -> anyhow::Result<Said> {
    output::note(&format!("\n{}", question(one)));
    // Text typed before the request was shown does not answer it.
    #[cfg(unix)]
    rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush)
        .context("the terminal's input cannot be discarded")?;
    let mut lines = Lines::new();
    loop {
        let next = lines
            .next("Run it? [y]es, [n]o (a reason may follow), [l]ater: ")
            .await?;
        let Next::Line(line) = next else {
            return Ok(Said::Later);
        };
        let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        let decision = match word.to_lowercase().as_str() {
            "y" | "yes" => action::Resolution::ApproveOnce,
            "n" | "no" => action::Resolution::Reject,
            "l" | "later" => return Ok(Said::Later),
            _ => continue,
        };
        return Ok(Said::Answer(ResolveBody {
            approval_id: one.approval,
            decision,
            reason: Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty()),
        }));
    }
}

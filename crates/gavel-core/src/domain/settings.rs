//! Settings that surfaces and engine hold as they are: each field is a setting of `gavel.toml`.

use std::time::Duration;

use gavel_reading::{ByText, Defaults, Digits, OneOf, settings};
use serde::{Deserialize, Serialize};

use super::thread::{OnReject, WhileBusy};
use super::time;

const HOURS: Digits<u32> = Digits(1..=8760);
const MANY: Digits<u32> = Digits(1..=1_000_000);
const TOKENS: Digits<u64> = Digits(10_000..=1_000_000_000_000);
const LENGTH: ByText<Duration> = ByText {
    allowed: "a length of time up to 24h, such as 45s, 15m or 2h",
    read: length,
};

settings! {
    /// How threads behave.
    #[derive(Clone, Debug)]
    pub struct ThreadSettings = "runs." {
        /// The agent that answers in threads (`POST /api/agent/run`).
        agent: String = ByText {
            allowed: "the name of an agent of the project `default` with one input, `query`, and without sub-agents, \
                      steps or rounds",
            read: |text| (!text.is_empty()).then(|| text.to_owned()),
        }, default("workspace");
        /// What happens to a message while a run of its thread is in progress: it is refused with 409 and that run, or
        /// it waits its turn.
        while_busy: WhileBusy = OneOf(WhileBusy::NAMES), default("refuse");
        /// What happens to a thread's run when an approver rejects an action: the agent reads the reason and continues,
        /// or the run ends as completed or as failed.
        on_reject: OnReject = OneOf(OnReject::NAMES), default("continue");
    }
}

settings! {
    /// How far planning sessions may go.
    #[derive(Clone, Debug)]
    pub struct SessionRules = "planning." {
        /// How far ahead the deadline of a planning session may be.
        max_hours: u32 = HOURS, default("168");
        /// How long a plan waits for its confirmation after its last change; then its session ends.
        confirm_hours: u32 = HOURS, default("24");
        /// What the names of branches begin with that a confirmed plan may write without a further approval.
        branch_prefix: String = ByText {
            allowed: "letters, digits, `-`, `_`, `.` and `/`, as Git accepts them in the name of a branch",
            read: branch_prefix,
        }, default("gavel/");
    }
}

settings! {
    /// The limits of the work on a plan. Stored with the run that works on it.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct TaskLimits = "planning." {
        /// Steps of one task of a plan; each step has three model calls and one tool call.
        max_steps_per_task: u32 = MANY, default("25");
        /// Steps of all tasks of a planning session.
        max_steps: u32 = MANY, default("300");
        /// Tokens that the work on a plan may use, over all its model calls.
        max_tokens: Option<u64> = TOKENS, absent("unlimited");
        /// Tokens of one request to the model (four bytes count as one); the history of a longer task is shortened.
        context_tokens: u64 = TOKENS, default("200000");
        /// How long the work on a plan waits for an unavailable model before it fails.
        model_patience: Duration = LENGTH, default("15m");
    }
}

impl Default for SessionRules {
    fn default() -> Self {
        Self::read(&Defaults(Self::rows())).unwrap_or_else(|| unreachable!("every default is allowed"))
    }
}

impl Default for TaskLimits {
    fn default() -> Self {
        Self::read(&Defaults(Self::rows())).unwrap_or_else(|| unreachable!("every default is allowed"))
    }
}

/// The beginning of the name of a branch, as Git accepts it.
fn branch_prefix(text: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let name = text.strip_suffix('/').unwrap_or(text);
    let is_part = |part: &str| !part.is_empty() && !part.starts_with(['.', '-']) && !part.ends_with(".lock");
    let is_name = text.bytes().all(fits) && name.split('/').all(is_part) && !text.contains("..");
    (text.len() <= 100 && is_name).then(|| text.to_owned())
}

fn length(text: &str) -> Option<Duration> {
    let length = time::parse_length(text)?;
    (1..=24 * 3600).contains(&length.as_secs()).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_has_a_unit_and_is_at_most_a_day() {
        for (text, seconds) in [("45s", 45), ("15m", 900), ("1h30m", 5400), ("24h", 86_400)] {
            assert_eq!(length(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for invalid in [
            "",
            "15",
            "m",
            "0s",
            "25h",
            "1d1s",
            "1.5h",
            "-1m",
            "15 m",
            "99999999999999999999s",
        ] {
            assert_eq!(length(invalid), None, "{invalid:?}");
        }
    }

    /// Names that Git refuses could never be written, so no branch would be in the scope of a plan.
    #[test]
    fn a_prefix_of_branches_is_one_that_git_accepts() {
        for prefix in ["gavel/", "bot-", "team/gavel/", "a.b_c"] {
            assert_eq!(branch_prefix(prefix).as_deref(), Some(prefix));
        }
        for invalid in [
            "",
            "/",
            "/gavel",
            "gavel//",
            "a..b",
            ".a/",
            "-a",
            "a b",
            "a~",
            "a.lock/",
            &"a".repeat(101),
        ] {
            assert_eq!(branch_prefix(invalid), None, "{invalid:?}");
        }
    }
}

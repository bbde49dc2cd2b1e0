//! What a run may use up. Limits are data; reaching one is an ending, not an error.

use std::time::Duration;

pub use crate::domain::thread::OnReject;

/// The limits of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Model calls; retries inside the adapter are not counted. `None`: as many as it takes.
    pub iterations: Option<u32>,
    /// The run's clock. `None`: as long as it takes.
    pub time: Option<Duration>,
    /// Tokens over all model calls, in and out.
    pub tokens: Option<u64>,
    /// The longest a single model call may take.
    pub ask: Duration,
    /// Calls run of one turn; identical ones count one by one.
    pub parallel_calls: usize,
    /// Kept free of tool time, so that there is time left to answer.
    pub answer_reserve: Duration,
    /// What happens when one of them is reached.
    pub at_limit: AtLimit,
    /// Is the same call again and again refused, and then the run ended?
    pub doom_loop: bool,
    /// Must it end by a verdict function? Words alone are then no end.
    pub output_due: bool,
    /// Turns in a row that try to end the run and are invalid, after which it fails (D-5). `None`: as many as it takes.
    pub invalid_outputs: Option<u32>,
    /// What becomes of it when a person says no to a call.
    pub on_reject: OnReject,
    /// Do its calls run one after another, also those that only read? (REQUIREMENTS R, Not on this surface)
    pub one_by_one: bool,
    /// Does it stop where it is not known whether a call had its effect? Else the model is told.
    pub pause_in_doubt: bool,
}

/// What happens at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtLimit {
    /// The run ends, and its calls that were not begun are not.
    End,
    /// The model is told to sum up and has one more call, within so much time.
    SumUp {
        /// The time for that call.
        grace: Duration,
    },
}

/// Model calls of a run of a thread at most.
pub const THREAD_STEPS: u32 = 3;
/// The clock of a run of a thread whose definition has none; waiting for a person does not count.
pub const THREAD_TIME: Duration = Duration::from_secs(300);
/// Steps of one run over all its resumes, for an agent that has a limit of its own.
pub const MOST_STEPS: u32 = 500;
/// Model calls of an agent that was called by another and has no limit of its own.
pub const SUB_AGENT_STEPS: u32 = 50;
/// About how much memory the journal of one run may take, in bytes, with those of the runs that it resumes: four times as much as the
/// largest model reads. A run without a limit of its own would grow for as long as its model goes on.
pub const MOST_JOURNAL: usize = 16 << 20;
/// Invalid outputs in a row after which an agent's run fails (D-5).
pub const INVALID_OUTPUTS: u32 = 5;
/// Agents that call agents: so many stand below the first one.
pub const MOST_DEPTH: u32 = 5;
/// The time to sum up.
pub const GRACE: Duration = Duration::from_secs(30);

impl Limits {
    /// The chat surface: 5 iterations, 30 s (DESIGN.md section 12).
    pub const CHAT: Self = Self {
        iterations: Some(5),
        time: Some(Duration::from_secs(30)),
        tokens: None,
        ask: Duration::from_secs(30),
        parallel_calls: 16,
        answer_reserve: Duration::from_secs(3),
        at_limit: AtLimit::End,
        doom_loop: false,
        output_due: false,
        invalid_outputs: None,
        on_reject: OnReject::Continue,
        one_by_one: false,
        pause_in_doubt: false,
    };

    /// An agent's run: no limit but those it is given.
    pub const AGENT: Self = Self {
        iterations: None,
        time: None,
        tokens: None,
        ask: Duration::from_secs(600),
        parallel_calls: 16,
        answer_reserve: Duration::ZERO,
        at_limit: AtLimit::SumUp { grace: GRACE },
        doom_loop: true,
        output_due: false,
        invalid_outputs: Some(INVALID_OUTPUTS),
        on_reject: OnReject::Continue,
        one_by_one: false,
        pause_in_doubt: true,
    };

    /// How long a tool may take now: its own limit, or what is left of the run less the reserve.
    #[must_use]
    pub fn tool_time(&self, own: Duration, elapsed: Duration) -> Duration {
        let Some(time) = self.time else { return own };
        let reserve = self.answer_reserve.min(time / 4);
        own.min(time.saturating_sub(elapsed).saturating_sub(reserve))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_leaves_time_for_the_answer() {
        let limits = Limits::CHAT;
        let second = Duration::from_secs(1);
        assert_eq!(limits.tool_time(30 * second, Duration::ZERO), 27 * second);
        assert_eq!(limits.tool_time(5 * second, 10 * second), 5 * second);
        assert_eq!(limits.tool_time(5 * second, 28 * second), Duration::ZERO);
    }

    /// a summary has its own time, so nothing is kept free for it.
    #[test]
    fn a_tool_of_an_agent_may_take_all_that_is_left() {
        let second = Duration::from_secs(1);
        let limits = Limits {
            time: Some(60 * second),
            ..Limits::AGENT
        };
        assert_eq!(limits.tool_time(30 * second, 40 * second), 20 * second);
        assert_eq!(Limits::AGENT.tool_time(30 * second, 4000 * second), 30 * second);
    }
}

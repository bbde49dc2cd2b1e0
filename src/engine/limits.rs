//! What a run may use up. Limits are data; reaching one is an ending, not an error.

use std::time::Duration;

/// The limits of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Model calls; retries inside the adapter are not counted.
    pub iterations: u32,
    /// Wall clock for the whole run.
    pub deadline: Duration,
    /// Calls run of one turn; identical ones count one by one.
    pub parallel_calls: usize,
    /// Kept free of tool time, so that there is time left to answer.
    pub answer_reserve: Duration,
}

impl Limits {
    /// The chat surface: 5 iterations, 30 s (DESIGN.md section 12).
    pub const CHAT: Self = Self {
        iterations: 5,
        deadline: Duration::from_secs(30),
        parallel_calls: 16,
        answer_reserve: Duration::from_secs(3),
    };

    /// How long a tool may take now: its own limit, or what is left of the run less the reserve.
    #[must_use]
    pub fn tool_time(&self, own: Duration, elapsed: Duration) -> Duration {
        let reserve = self.answer_reserve.min(self.deadline / 4);
        own.min(self.deadline.saturating_sub(elapsed).saturating_sub(reserve))
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
}

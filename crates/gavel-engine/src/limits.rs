//! The limits of a run. Limits are data; reaching one is an ending, not an error.

use std::sync::Arc;
use std::time::Duration;

use super::doom_loop;
use super::journal::Journal;
use super::next::Ending;
use crate::domain::agent_run::StopReason;
use crate::domain::decision::{LimitName, LimitReached};
use crate::domain::ids::RunId;
pub use crate::domain::thread::OnReject;
use crate::domain::tool::FailureCode;
use crate::ports::records::{QueryError, RecordError};

/// The limits of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Model calls, without retries inside the adapter. `None`: unlimited.
    pub iterations: Option<u32>,
    /// Time by the run's clock. `None`: unlimited.
    pub time: Option<Duration>,
    /// Its deadline. `None`: it has none.
    pub until: Option<Until>,
    /// Tokens over all model calls, input and output.
    pub tokens: Option<u64>,
    /// The longest a single model call may take.
    pub ask: Duration,
    /// Maximum calls run per turn; identical ones count separately.
    pub parallel_calls: usize,
    /// Time that tools may not use, so that the model can still answer.
    pub answer_reserve: Duration,
    /// What happens when a limit is reached.
    pub at_limit: AtLimit,
    /// Are repeated identical calls refused, and then the run ended?
    pub doom_loop: bool,
    /// Must the run end with a verdict function? Text alone then does not end it.
    pub output_due: bool,
    /// The run fails after this many invalid attempts in a row to end it (D-5). `None`: unlimited.
    pub invalid_outputs: Option<u32>,
    /// What happens when the user rejects a call.
    pub on_reject: OnReject,
    /// Do its calls run one after another, including read-only ones?
    pub one_by_one: bool,
    /// Does the run pause when a call is in doubt? Otherwise the model gets the error and continues.
    pub pause_in_doubt: bool,
}

/// The deadline of a run: an absolute time. Unlike the run's clock it does not stop while the run waits for a person or
/// for a process. Nothing begins after it, not even a final summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until {
    /// In microseconds since the epoch.
    pub at_us: i64,
    /// The same by the run's clock, if the run does not wait again.
    pub clock: Duration,
}

impl Until {
    /// For a run whose clock shows `elapsed` now.
    pub fn new(at_us: i64, now_us: i64, elapsed: Duration) -> Self {
        let left = Duration::from_micros(u64::try_from(at_us.saturating_sub(now_us)).unwrap_or(0));
        Self {
            at_us,
            clock: match left.is_zero() {
                true => Duration::ZERO,
                false => elapsed.saturating_add(left),
            },
        }
    }
}

/// What happens at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtLimit {
    /// The run ends, and its calls that were not started are not run.
    End,
    /// The model gets one more call for a final summary, with its own time limit.
    SumUp {
        /// The time for that call.
        grace: Duration,
    },
}

/// Maximum model calls of a run of a thread.
pub const THREAD_STEPS: u32 = 3;
/// The default time limit of a run of a thread; waiting for approvals does not count.
pub const THREAD_TIME: Duration = Duration::from_secs(300);
/// Maximum steps of one run over all its resumes, for an agent with its own limit.
pub const MOST_STEPS: u32 = 500;
/// Default limit of model calls for a sub-agent.
pub const SUB_AGENT_STEPS: u32 = 50;
/// Approximate memory limit for the journal of one run, in bytes, including the runs that it resumes: four times as
/// much as the largest model reads. Without it, the journal of a run without own limits would grow indefinitely.
pub const MOST_JOURNAL: usize = 16 << 20;
/// Invalid outputs in a row after which an agent's run fails (D-5).
pub const INVALID_OUTPUTS: u32 = 5;
/// Maximum depth of agents below the first one.
pub const MOST_DEPTH: u32 = 5;
/// The time for the final summary.
pub const GRACE: Duration = Duration::from_secs(30);

impl Limits {
    /// The chat surface: 5 iterations, 30 s.
    pub const CHAT: Self = Self {
        iterations: Some(5),
        time: Some(Duration::from_secs(30)),
        until: None,
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

    /// An agent's run: no limits except those it is given.
    pub const AGENT: Self = Self {
        iterations: None,
        time: None,
        ask: Duration::from_secs(600),
        answer_reserve: Duration::ZERO,
        at_limit: AtLimit::SumUp { grace: GRACE },
        doom_loop: true,
        invalid_outputs: Some(INVALID_OUTPUTS),
        pause_in_doubt: true,
        ..Self::CHAT
    };

    /// Has the deadline passed?
    pub fn is_past_deadline(&self, elapsed: Duration) -> bool {
        self.until.is_some_and(|until| elapsed >= until.clock)
    }

    /// What remains until the deadline.
    pub fn until_deadline(&self, elapsed: Duration) -> Option<Duration> {
        self.until.map(|until| until.clock.saturating_sub(elapsed))
    }

    /// How long a tool may take now: its own limit, or the run's remaining time less the reserve.
    pub fn tool_time(&self, own: Duration, elapsed: Duration) -> Duration {
        let until = self.until.map(|until| until.clock);
        let Some(time) = self.time.into_iter().chain(until).min() else {
            return own;
        };
        let reserve = self.answer_reserve.min(time / 4);
        own.min(time.saturating_sub(elapsed).saturating_sub(reserve))
    }
}

/// The limits that a run has reached: the one that ended it, and those that kept calls from running.
pub(super) fn reached(limits: &Limits, ending: &Ending, journal: &Journal) -> Vec<LimitReached> {
    let ended = match ending {
        Ending::LoopLimit | Ending::Stopped(StopReason::StepLimit, _) => {
            limits.iterations.map(|most| (LimitName::ModelCalls, most.into()))
        }
        Ending::TimeLimit | Ending::Stopped(StopReason::TimeLimit, _) => limits.time.map(|most| {
            let ms = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
            (LimitName::TimeMs, ms)
        }),
        Ending::Stopped(StopReason::TokenLimit, _) => limits.tokens.map(|most| (LimitName::Tokens, most)),
        Ending::InvalidOutput(..) => limits
            .invalid_outputs
            .map(|most| (LimitName::InvalidOutputs, most.into())),
        Ending::DoomLoop(_) => Some((LimitName::RepeatedCalls, doom_loop::ENDS_AT.into())),
        _ => None,
    };
    let refused = journal
        .ledger()
        .of_tools()
        .filter_map(|call| match call.failure_code()? {
            FailureCode::TooManyCalls => Some((LimitName::ParallelCalls, limits.parallel_calls as u64)),
            FailureCode::DoomLoop => Some((LimitName::RepeatedCalls, doom_loop::REFUSED_FROM.into())),
            _ => None,
        });
    let mut reached: Vec<LimitReached> = Vec::new();
    for (name, limit) in ended.into_iter().chain(refused) {
        if reached.iter().all(|known| known.name != name) {
            reached.push(LimitReached { name, limit });
        }
    }
    reached
}

// Why a run does not continue in this process.

/// Why a run does not continue in this process. Everything that was sent is recorded.
#[derive(Debug)]
pub enum Stop {
    /// An entry could not be made durable, or the store could not be read.
    Record(RecordError),
    /// Another process holds the run, or may hold it.
    LeaseLost,
    /// A call that was about to start may not start anymore: its approval expired, its grant was revoked, or the run was
    /// cancelled. The next worker reads which.
    ApprovalGone,
    /// The run was signaled to stop here.
    Halted,
    /// This run or a child run waits for an approval; its row records that.
    Suspended(RunId),
    /// A step of its flow was cut short. The flow resumes the step when it is itself resumed.
    StepStopped(CutStep),
}

/// A step of a flow that was cut short.
#[derive(Clone, Debug, Default)]
pub struct CutStep {
    /// Its last text.
    pub summary: Option<String>,
    /// Its model calls, including those of its own steps.
    pub steps: u32,
    /// Their tokens.
    pub tokens: u64,
    /// Was it cut short by its deadline, which is that of the flow?
    pub past_deadline: bool,
}

impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

/// A store that cannot be read counts as unavailable.
impl From<QueryError> for Stop {
    fn from(error: QueryError) -> Self {
        Self::Record(RecordError::Unavailable(Arc::from(error.to_string())))
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

    #[test]
    fn the_limit_that_ended_a_run_is_reported_with_its_value() {
        let reported = |limits: &Limits, ending: Ending| {
            let reached = reached(limits, &ending, &Journal::default());
            reached.iter().map(|one| (one.name, one.limit)).collect::<Vec<_>>()
        };
        assert_eq!(reported(&Limits::CHAT, Ending::LoopLimit), [(LimitName::ModelCalls, 5)]);
        assert_eq!(
            reported(&Limits::CHAT, Ending::TimeLimit),
            [(LimitName::TimeMs, 30_000)]
        );
        let of_tokens = Limits {
            tokens: Some(9),
            ..Limits::AGENT
        };
        let stopped = |reason| Ending::Stopped(reason, None);
        assert_eq!(
            reported(&of_tokens, stopped(StopReason::TokenLimit)),
            [(LimitName::Tokens, 9)]
        );
        assert_eq!(
            reported(&of_tokens, stopped(StopReason::StepLimit)),
            [],
            "it has no such limit"
        );
        assert_eq!(reported(&Limits::CHAT, Ending::Responded("Hi.".to_owned())), []);
    }

    /// The deadline of a run counts from the process that takes it, by its clock, and bounds its tools.
    #[test]
    fn the_deadline_is_a_time_by_the_clock_of_the_run() {
        let second = Duration::from_secs(1);
        let limits = |at_us| Limits {
            time: Some(600 * second),
            until: Some(Until::new(at_us, 100_000_000, 40 * second)),
            ..Limits::AGENT
        };
        let limits_now = limits(130_000_000);
        assert_eq!(limits_now.until_deadline(45 * second), Some(25 * second));
        assert_eq!(limits_now.tool_time(60 * second, 45 * second), 25 * second);
        assert!(!limits_now.is_past_deadline(69 * second) && limits_now.is_past_deadline(70 * second));
        for at_us in [100_000_000, 99_999_999, -1] {
            assert!(limits(at_us).is_past_deadline(Duration::ZERO));
        }
    }

    /// the final summary has its own time, so no time is reserved for it.
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

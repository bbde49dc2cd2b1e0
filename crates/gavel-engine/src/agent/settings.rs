//! The settings of a run besides its inputs: its limits and its context. Stored with the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use chrono_tz::Tz;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::domain::canonical;
use crate::domain::definition::{Approval, Definition, Flow};
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallFailure, CallResult, Entry};
use crate::domain::tool::FailureCode;
use crate::limits::{AtLimit, GRACE, Limits, OnReject, SUB_AGENT_STEPS, THREAD_STEPS, THREAD_TIME, Until};
use crate::opening::Opening;
use crate::planning::PlanningWork;
use crate::strategy::Strategy;
use crate::strategy::plan::{Execution, Scope, TaskWork};

/// The settings of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Limit of model calls, for this run alone, not counting the runs that it resumes.
    pub steps: Option<u32>,
    /// Time limit by the run's clock, in microseconds.
    pub time_us: Option<u64>,
    /// Its deadline, in microseconds since the epoch. It does not move while the run waits or is resumed, and its child
    /// runs have the same.
    pub until_us: Option<i64>,
    /// Time for the final summary, in microseconds.
    pub grace_us: u64,
    /// Token limit.
    pub tokens: Option<u64>,
    /// Depth: the number of agents above it.
    pub depth: u32,
    /// The round, if the run is one round of a loop without steps.
    pub round: Option<Round>,
    /// May it end the loop that it is a step of?
    pub in_loop: bool,
    /// W3C `traceparent` of the request.
    pub traceparent: Option<String>,
    /// The user's time zone, if the caller named it.
    pub zone: Option<Tz>,
    /// Is it a run of a thread? Then it has few model calls, and no final summary.
    pub in_thread: bool,
    /// The least approval that the surface demands, if it demands any.
    pub floor: Option<Approval>,
    /// What happens when the user rejects a call.
    pub on_reject: OnReject,
    /// The values of its planning session, by name: also in child runs.
    pub bound: Option<Arc<BTreeMap<String, String>>>,
    /// In a planning session: what persons wrote or confirmed, also in child runs. Words of a model are none of it.
    pub words: Option<Arc<Vec<String>>>,
    /// What code reads before the first turn, in place of the definition's first message.
    pub opening: Option<Arc<Opening>>,
    /// What the run does for a planning session.
    pub planning: Option<Arc<PlanningWork>>,
    /// The confirmed plan that the run works through.
    pub execution: Option<Arc<Execution>>,
    /// The task that the run works on.
    pub task: Option<Arc<TaskWork>>,
    /// What the confirmed plan allows: also in child runs.
    pub scope: Option<Arc<Scope>>,
    /// The user's answers about in-doubt calls, for a run that resumes after them: did the call happen?
    pub settled: BTreeMap<ActionId, bool>,
}

/// A round of a loop without steps, in which the agent itself is repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// The number of the round, from 1.
    pub number: u32,
    /// The maximum number of rounds.
    pub of: u32,
    /// The result of the previous round.
    pub before: Option<String>,
}

/// What the parent of an agent's run has left.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// Of its time.
    pub time: Option<Duration>,
    /// Of its model calls, if they include those of its child runs.
    pub steps: Option<u32>,
    /// Of its tokens, if they include those of its child runs.
    pub tokens: Option<u64>,
    /// The time for the child's final summary after the time limit. A parent with its own model writes the summary
    /// itself.
    pub grace: Duration,
}

impl Settings {
    /// For an agent without a parent. `time` replaces the definition's time limit.
    pub fn top(definition: &Definition, time: Option<Duration>, traceparent: Option<String>) -> Self {
        Self {
            steps: definition.limits.max_turns,
            time_us: time.or(definition.limits.max_time).map(micros),
            grace_us: micros(GRACE),
            tokens: definition.limits.max_tokens.map(u64::from),
            traceparent,
            ..Self::default()
        }
    }

    /// For a run of a thread.
    #[must_use]
    pub fn in_thread(self, floor: Approval, on_reject: OnReject) -> Self {
        Self {
            in_thread: true,
            floor: Some(floor),
            on_reject,
            ..self
        }
    }

    /// For a child run: its own limits, within what its parent has left. `timeout` replaces the definition's time limit
    ///
    pub fn called(&self, definition: &Definition, timeout: Option<Duration>, left: Left) -> Self {
        let own = timeout.or(definition.limits.max_time);
        let (time, grace) = match (own, left.time) {
            (Some(own), Some(left_time)) if own <= left_time => {
                let spare = left_time - own + left.grace;
                (Some(own), GRACE.min(spare))
            }
            (_, Some(left_time)) => (Some(left_time), left.grace),
            (own, None) => (own, GRACE),
        };
        let steps = definition.limits.max_turns.unwrap_or(SUB_AGENT_STEPS);
        let tokens = definition.limits.max_tokens.map(u64::from);
        Self {
            steps: Some(left.steps.map_or(steps, |left| left.min(steps))),
            time_us: time.map(micros),
            until_us: self.until_us,
            grace_us: micros(grace),
            tokens: tokens.into_iter().chain(left.tokens).min(),
            depth: self.depth + 1,
            traceparent: self.traceparent.clone(),
            zone: self.zone,
            floor: self.floor,
            bound: self.bound.clone(),
            words: self.words.clone(),
            scope: self.scope.clone(),
            ..Self::default()
        }
    }

    /// The limits as the engine uses them, without the deadline.
    pub fn limits(&self, output_due: bool) -> Limits {
        if self.in_thread {
            let steps = self.steps.map_or(THREAD_STEPS, |steps| steps.min(THREAD_STEPS));
            return Limits {
                iterations: Some(steps),
                time: Some(self.time_us.map_or(THREAD_TIME, Duration::from_micros)),
                tokens: self.tokens,
                at_limit: AtLimit::End,
                // There is no final summary, so the answer needs reserved time as in a chat.
                answer_reserve: Limits::CHAT.answer_reserve,
                output_due,
                one_by_one: true,
                pause_in_doubt: false,
                on_reject: self.on_reject,
                ..Limits::AGENT
            };
        }
        Limits {
            iterations: self.steps,
            time: self.time_us.map(Duration::from_micros),
            tokens: self.tokens,
            at_limit: AtLimit::SumUp {
                grace: Duration::from_micros(self.grace_us),
            },
            output_due,
            ..Limits::AGENT
        }
    }

    /// Has its deadline passed, at this time in microseconds since the epoch?
    pub fn is_past(&self, now_us: i64) -> bool {
        self.until_us.is_some_and(|until_us| until_us <= now_us)
    }

    /// The limits of a run whose clock shows `elapsed` at `now_us`, in microseconds since the epoch.
    pub fn limits_at(&self, now_us: i64, elapsed: Duration, output_due: bool) -> Limits {
        Limits {
            until: self.until_us.map(|at_us| Until::new(at_us, now_us, elapsed)),
            ..self.limits(output_due)
        }
    }

    /// For the run that works on a task: nothing but the deadline and the task's own rules limits it. `created`: what
    /// earlier tasks have created.
    #[must_use]
    pub fn on_task(self, task: TaskWork, created: BTreeSet<String>) -> Self {
        Self {
            scope: self.scope.map(|scope| scope.with(created)),
            steps: None,
            time_us: None,
            tokens: None,
            task: Some(Arc::new(task)),
            ..self
        }
    }

    /// What decides what comes next: the definition's flow, unless the run asks a model itself.
    pub fn strategy(&self, definition: &Definition) -> Strategy {
        if let Some(opening) = &self.opening {
            return Strategy::Opened(Arc::clone(opening));
        }
        if let Some(execution) = &self.execution {
            return Strategy::Plan(Arc::clone(execution));
        }
        if let Some(task) = &self.task {
            return Strategy::React(Arc::clone(task));
        }
        match (&definition.flow, &self.round) {
            (Flow::Single, _) | (_, Some(_)) => Strategy::Turns,
            // The agent itself is the only step.
            (Flow::Sequential { steps }, None) if steps.is_empty() => Strategy::Turns,
            (flow @ (Flow::Sequential { .. } | Flow::Loop { .. }), None) => Strategy::Steps(flow.clone()),
        }
    }

    /// The result of an in-doubt call that the user has settled.
    pub fn settled(&self, call: ActionId) -> Option<Entry> {
        let outcome = if *self.settled.get(&call)? {
            let said = json!({"settled": "the user says that this call had its effect; its result is unknown"});
            Ok(Arc::from(canonical::to_raw(&said)))
        } else {
            Err(CallFailure::new(
                FailureCode::ToolError,
                "the user says that this call did not have its effect".to_owned(),
            ))
        };
        let result = CallResult::sent(outcome, Duration::ZERO);
        Some(Entry::Result { call, result })
    }

    /// Reads the settings of an existing run.
    ///
    /// # Errors
    /// They are of a later version, or damaged. No run continues without them, since they restrict it.
    pub fn read(kept: &RawValue) -> Result<Self, String> {
        serde_json::from_str(kept.get()).map_err(|error| format!("its settings cannot be read: {error}"))
    }

    /// The stored form.
    pub fn to_raw(&self) -> Arc<RawValue> {
        let raw = serde_json::value::to_raw_value(self);
        Arc::from(raw.unwrap_or_else(|error| unreachable!("settings print as JSON: {error}")))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A run of a thread has no final summary, so its tools leave time for the answer; an agent's tools need not.
    #[test]
    fn a_tool_of_a_thread_leaves_time_for_the_answer() {
        let minute = Duration::from_secs(60);
        let settings = Settings {
            time_us: Some(micros(minute)),
            ..Settings::default()
        };
        let left = |settings: Settings| settings.limits(false).tool_time(minute, Duration::ZERO);
        assert_eq!(left(settings.clone()), minute);
        assert_eq!(
            left(settings.in_thread(Approval::SideEffects, OnReject::Continue)),
            Duration::from_secs(57)
        );
    }

    /// A part that cannot be read may be a restriction, so nothing of the rest is used without it.
    #[test]
    fn settings_are_read_whole_or_not_at_all() {
        let settings = Settings {
            zone: Some(Tz::Europe__Berlin),
            until_us: Some(5),
            ..Settings::default().in_thread(Approval::SideEffects, OnReject::Continue)
        };
        let kept = settings.to_raw();
        assert_eq!(Settings::read(&kept), Ok(settings));
        for (whole, damaged) in [
            ("Europe/Berlin", "Mars/Base"),
            ("side_effects", "nothing"),
            (":5", ":\"5\""),
        ] {
            let damaged = RawValue::from_string(kept.get().replace(whole, damaged)).unwrap();
            let error = Settings::read(&damaged).unwrap_err();
            assert!(error.starts_with("its settings cannot be read: "), "{error}");
        }
        assert!(Settings::read(RawValue::NULL).is_err());
    }
}

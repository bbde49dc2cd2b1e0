//! What a run was given beside its inputs: its limits and its place. Kept with the run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono_tz::Tz;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::domain::canonical;
use crate::domain::definition::{Definition, Flow};
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallFailure, CallResult, Entry};
use crate::domain::tool::FailureCode;
use crate::engine::limits::{AtLimit, GRACE, Limits, OnReject, SUB_AGENT_STEPS, THREAD_STEPS, THREAD_TIME};

/// Of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Model calls, of this run and without the ones before a resume.
    pub steps: Option<u32>,
    /// The run's clock, microseconds.
    pub time_us: Option<u64>,
    /// The time to sum up, microseconds.
    pub grace_us: u64,
    /// Tokens.
    pub tokens: Option<u64>,
    /// How many agents stand above it.
    pub depth: u32,
    /// The round of a loop without steps that it is.
    pub round: Option<Round>,
    /// May it end the loop that it goes round in?
    pub in_loop: bool,
    /// W3C `traceparent` of the request.
    pub traceparent: Option<String>,
    /// The user's time zone, where the caller has named it. One that another version knew is as none.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "zone")]
    pub zone: Option<Tz>,
    /// Is it a run of a thread? Then it has few model calls, and no summing up.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub in_thread: bool,
    /// Does every side effect need leave, whatever the definition says?
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub needs_leave: bool,
    /// What becomes of it when a person says no.
    pub on_reject: OnReject,
    /// What a person said of calls in doubt, for a run that goes on after them: did it happen?
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settled: BTreeMap<ActionId, bool>,
}

fn zone<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Tz>, D::Error> {
    let name = Option::<String>::deserialize(from)?;
    Ok(name.and_then(|name| name.parse().ok()))
}

/// A round of a loop without steps: the agent itself goes round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// From 1.
    pub number: u32,
    /// At most so many.
    pub of: u32,
    /// What the round before came to.
    pub before: Option<String>,
}

/// What the caller of an agent has left.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// Of its clock.
    pub time: Option<Duration>,
    /// Of its steps, where they are counted over all that it calls.
    pub steps: Option<u32>,
    /// Of its tokens, where they are counted so.
    pub tokens: Option<u64>,
    /// May the called one sum up when that time is over? A caller with a model of its own does that itself.
    pub grace: Duration,
}

impl Settings {
    /// For an agent that nobody called; `time` takes the place of the definition's.
    #[must_use]
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
    pub fn in_thread(self, on_reject: OnReject) -> Self {
        Self {
            in_thread: true,
            needs_leave: true,
            on_reject,
            ..self
        }
    }

    /// For an agent that another one called: its own limits, within what its caller has left. `timeout` takes the place of the
    /// definition's time.
    #[must_use]
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
            grace_us: micros(grace),
            tokens: tokens.into_iter().chain(left.tokens).min(),
            depth: self.depth + 1,
            round: None,
            in_loop: false,
            traceparent: self.traceparent.clone(),
            zone: self.zone,
            in_thread: false,
            needs_leave: self.needs_leave,
            on_reject: OnReject::Continue,
            settled: BTreeMap::new(),
        }
    }

    /// As the engine has them.
    #[must_use]
    pub fn limits(&self, output_due: bool) -> Limits {
        if self.in_thread {
            let steps = self.steps.map_or(THREAD_STEPS, |steps| steps.min(THREAD_STEPS));
            return Limits {
                iterations: Some(steps),
                time: Some(self.time_us.map_or(THREAD_TIME, Duration::from_micros)),
                tokens: self.tokens,
                at_limit: AtLimit::End,
                // There is no summing up, so the answer needs its time as in a chat.
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

    /// The flow that this run is, unless it asks a model itself.
    #[must_use]
    pub fn flow<'a>(&self, definition: &'a Definition) -> Option<&'a Flow> {
        match (&definition.flow, &self.round) {
            (Flow::Single, _) | (_, Some(_)) => None,
            // The agent is its own only step.
            (Flow::Sequential { steps }, None) if steps.is_empty() => None,
            (flow @ (Flow::Sequential { .. } | Flow::Loop { .. }), None) => Some(flow),
        }
    }

    /// What is known now of a call that was in doubt, as its result.
    #[must_use]
    pub fn settled(&self, call: ActionId) -> Option<Entry> {
        let outcome = if *self.settled.get(&call)? {
            let said = json!({"settled": "a person says that this call had its effect; what it answered is not known"});
            Ok(Arc::from(canonical::to_raw(&said)))
        } else {
            Err(CallFailure::new(
                FailureCode::ToolError,
                "a person says that this call did not have its effect".to_owned(),
            ))
        };
        let result = CallResult {
            outcome,
            sent: true,
            duration_us: 0,
        };
        Some(Entry::Result { call, result })
    }

    /// Those of a run that is there; what an older gavel did not keep is as if it had not been given.
    #[must_use]
    pub fn read(kept: &RawValue) -> Self {
        serde_json::from_str(kept.get()).unwrap_or_default()
    }

    /// As they are kept.
    #[must_use]
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

    /// DESIGN.md section 2: a run of a thread does not sum up, so its tools leave time for the answer; an agent's need not.
    #[test]
    fn a_tool_of_a_thread_leaves_time_for_the_answer() {
        let minute = Duration::from_secs(60);
        let settings = Settings {
            time_us: Some(micros(minute)),
            ..Settings::default()
        };
        let left = |settings: Settings| settings.limits(false).tool_time(minute, Duration::ZERO);
        assert_eq!(left(settings.clone()), minute);
        assert_eq!(left(settings.in_thread(OnReject::Continue)), Duration::from_secs(57));
    }

    /// What another version kept reads as far as it is known: a zone that is not does not drop what the run may not do.
    #[test]
    fn a_zone_that_is_not_known_takes_nothing_else_with_it() {
        for (zone, read) in [("Europe/Berlin", Some(Tz::Europe__Berlin)), ("Mars/Base", None)] {
            let kept = json!({"in_thread": true, "needs_leave": true, "zone": zone}).to_string();
            let settings = Settings::read(&RawValue::from_string(kept).unwrap());
            assert_eq!(
                (settings.zone, settings.in_thread, settings.needs_leave),
                (read, true, true)
            );
        }
        assert_eq!(Settings::read(RawValue::NULL), Settings::default());
    }
}

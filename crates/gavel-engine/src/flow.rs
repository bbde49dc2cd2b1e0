//! Flows: runs whose calls come from the definition instead of a model. As everywhere, the next step is read
//! from the journal; each step is an agent's run of its own.

use crate::journal::Journal;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::context::AgentContext;
use super::ledger::Call;
use super::limits::CutStep;
use super::limits::Limits;
use super::next::{Ending, Next};
use super::record::current;
use super::run::Context;
use crate::domain::agent_run::StopReason;
use crate::domain::canonical;
use crate::domain::decision::Usage;
use crate::domain::definition::{Definition, Flow, InputType, Step};
use crate::domain::ids::ActionId;
use crate::domain::journal::{Completion, Entry, Target};
use crate::domain::templates::{MOST_RENDERED, Template};
use crate::domain::tool::FailureCode;

/// The result of a step, as the journal stores it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepOutput {
    /// The structured output, or the final text.
    pub output: Value,
    /// Did the agent end the loop?
    pub exits_loop: bool,
    /// Its model calls, including those of its own steps.
    pub steps: u32,
    /// The tokens of these calls.
    pub usage: Usage,
}

impl StepOutput {
    /// The output in its stored form.
    pub fn to_raw(&self) -> Arc<RawValue> {
        let raw = serde_json::value::to_raw_value(self);
        Arc::from(raw.unwrap_or_else(|error| unreachable!("it prints as JSON: {error}")))
    }

    pub(crate) fn read(data: &RawValue) -> Self {
        serde_json::from_str(data.get()).unwrap_or_else(|_| Self {
            output: Value::from(data.get()),
            exits_loop: false,
            steps: 0,
            usage: Usage::default(),
        })
    }

    fn completion(self) -> Completion {
        match self.output {
            Value::String(text) => Completion::Text(text),
            value => Completion::Output(Arc::from(canonical::to_raw(&value).get())),
        }
    }
}

/// Decides from the journal which step is next. Steps completed before a resume are not repeated.
pub(super) fn next<'a>(journal: &'a Journal, flow: &Flow, limits: &Limits, elapsed: Duration) -> Next<'a> {
    let ledger = journal.ledger();
    let (step, round) = match ledger.last_step() {
        None => (0, 1),
        Some((call, step, round)) => {
            let past_deadline = limits.is_past_deadline(elapsed);
            let Some(result) = call.result() else {
                return unfinished_step(call, past_deadline);
            };
            let done = match &result.outcome {
                Ok(data) => StepOutput::read(data),
                // Its approval request was not answered before the deadline.
                Err(failure) if past_deadline && failure.code == FailureCode::Expired => {
                    return Next::End(Ending::PAST_DEADLINE);
                }
                Err(failure) => {
                    let name = flow.steps().get(step as usize).map_or("round", |step| &step.name);
                    return Next::End(Ending::StepFailed(format!(
                        "the step {name:?} failed: {}",
                        failure.message
                    )));
                }
            };
            let last_of_round = step as usize + 1 >= flow.steps().len().max(1);
            match (flow, last_of_round) {
                (Flow::Loop { .. }, _) if done.exits_loop => return Next::End(Ending::Flow(done.completion())),
                (_, false) => (step + 1, round),
                (Flow::Loop { max_iterations, .. }, true) if round < *max_iterations => (0, round + 1),
                _ => return Next::End(Ending::Flow(done.completion())),
            }
        }
    };
    match limit_reached(journal, limits, elapsed, &CutStep::default()) {
        Some(reason) => Next::End(Ending::Stopped(reason, None)),
        None => Next::Step(step, round),
    }
}

/// What comes next for the call of a step that has no result.
pub(super) fn unfinished_step<'a>(call: Call<'a>, past_deadline: bool) -> Next<'a> {
    let this = vec![call.proposed];
    match (call.was_started(), call.was_approved(), call.awaits_approval()) {
        (true, ..) => Next::Recover(this),
        // An answer that refuses the step is its result, also after the deadline.
        (false, Some(false), _) => Next::Act(this),
        (false, ..) if past_deadline => Next::End(Ending::PAST_DEADLINE),
        (false, _, true) => Next::Suspend(vec![call.id()]),
        (false, _, false) => Next::Act(this),
    }
}

/// The flow's own limit that is reached, if any. Includes the usage of a step that was cut short.
pub(super) fn limit_reached(
    journal: &Journal,
    limits: &Limits,
    elapsed: Duration,
    cut: &CutStep,
) -> Option<StopReason> {
    let (steps, tokens) = spent(journal, cut);
    let reached = [
        (
            cut.past_deadline || limits.is_past_deadline(elapsed),
            StopReason::Deadline,
        ),
        (limits.time.is_some_and(|time| elapsed >= time), StopReason::TimeLimit),
        (
            limits.iterations.is_some_and(|most| steps >= most),
            StopReason::StepLimit,
        ),
        (limits.tokens.is_some_and(|most| tokens >= most), StopReason::TokenLimit),
    ];
    reached
        .into_iter()
        .find_map(|(reached, reason)| reached.then_some(reason))
}

/// The call of the last step, if the step did not complete.
pub(super) fn unfinished(journal: &Journal) -> Option<ActionId> {
    let ledger = journal.ledger();
    let (call, ..) = ledger.last_step()?;
    (!call.succeeded()).then_some(call.id())
}

/// The output of the last completed step.
pub(super) fn last_output(journal: &Journal) -> Option<String> {
    let ledger = journal.ledger();
    let mut outputs = ledger.calls().rev().filter_map(Call::data);
    outputs.next().map(|data| text(&StepOutput::read(data).output))
}

/// Model calls and tokens since the last resume. The output of a step that was resumed counts all of its attempts, and
/// so does the entry that marks the resume.
pub(super) fn spent(journal: &Journal, cut: &CutStep) -> (u32, u64) {
    let (steps, usage) = total(journal);
    let (steps, tokens) = (
        steps.saturating_add(cut.steps),
        usage.total().saturating_add(cut.tokens),
    );
    match current(journal).first() {
        Some(Entry::Resumed {
            steps: before, usage, ..
        }) => (steps.saturating_sub(*before), tokens.saturating_sub(usage.total())),
        _ => (steps, tokens),
    }
}

/// Model calls and tokens of all completed steps.
pub(super) fn total(journal: &Journal) -> (u32, Usage) {
    let ledger = journal.ledger();
    ledger
        .calls()
        .filter_map(Call::data)
        .map(|data| StepOutput::read(data))
        .fold((0, Usage::default()), |(steps, mut usage), done| {
            usage += done.usage;
            (steps.saturating_add(done.steps), usage)
        })
}

/// The journal entry of a step: its call, with the inputs of its agent.
///
/// # Errors
/// The inputs would be too long; the error names the text and the limit.
pub(super) fn step(context: &Context, journal: &Journal, step: u32, round: u32) -> Result<Entry, String> {
    let (agent, arguments) = match &context.agent {
        Some(place) => arguments(&context.definition, place, journal, step)?,
        None => (String::new(), Map::new()),
    };
    let target = Target::Agent(Arc::from(agent.as_str()));
    Ok(journal.step((step, round), target, agent, &Value::Object(arguments)))
}

/// The agent of a step, and its inputs.
fn arguments(
    definition: &Definition,
    place: &AgentContext,
    journal: &Journal,
    step: u32,
) -> Result<(String, Map<String, Value>), String> {
    let flow = &definition.flow;
    let at = step as usize;
    let Some(step) = flow.steps().get(at) else {
        // The agent itself is the loop.
        return Ok((definition.name.clone(), place.input.clone()));
    };
    let too_long = |name: &str, what: String| {
        format!(
            "the input {name:?} of the step {:?} of the agent {:?}: {what}",
            step.name, definition.name
        )
    };
    let mut length: usize = 0;
    let known = |name: &str| known(place, flow, journal, at, name);
    let mut arguments = Map::new();
    let takes = place.snapshot.get(&step.agent).map(|member| &member.definition.inputs);
    for (name, takes) in takes.into_iter().flatten() {
        let value = match step.input.get(name) {
            Some(template) => rendered(template, known).map_err(|what| too_long(name, what))?,
            None => known(name),
        };
        length = length.saturating_add(value.as_ref().map_or(0, |value| text(value).len()));
        if length > MOST_RENDERED {
            let what =
                format!("with it the step's inputs would be {length} bytes long; at most {MOST_RENDERED} are allowed");
            return Err(too_long(name, what));
        }
        match (value, takes.kind) {
            // A structured output becomes JSON text where the input is a string.
            (Some(value), InputType::String) => arguments.insert(name.clone(), text(&value).into()),
            (Some(value), _) => arguments.insert(name.clone(), value),
            // In the first round of a loop, outputs of the previous round are empty.
            (None, InputType::String) if takes.required && matches!(flow, Flow::Loop { .. }) => {
                arguments.insert(name.clone(), "".into())
            }
            (None, _) => None,
        };
    }
    Ok((step.agent.clone(), arguments))
}

/// The value of a name in a step's template: the output of an earlier step, else an input of the flow. In a loop, any
/// step's output from the previous round is available too.
fn known(place: &AgentContext, flow: &Flow, journal: &Journal, by: usize, name: &str) -> Option<Value> {
    let at = flow.steps().iter().position(|step: &Step| step.name == name);
    let Some(at) = at.filter(|at| *at < by || matches!(flow, Flow::Loop { .. })) else {
        return place.input.get(name).cloned();
    };
    let ledger = journal.ledger();
    let mut earlier = ledger.calls().rev();
    let step = earlier.find(|call| call.step.is_some_and(|(step, _)| step as usize == at))?;
    step.data().map(|data| StepOutput::read(data).output)
}

/// A template that is a single placeholder keeps the value's type; otherwise the result is text.
///
/// # Errors
/// The text would be too long.
fn rendered(template: &str, known: impl Fn(&str) -> Option<Value>) -> Result<Option<Value>, String> {
    // Checked when the definition was read.
    let Ok(parsed) = Template::parse(template) else {
        return Ok(None);
    };
    if let Some(name) = template.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'))
        && parsed.names().eq([name])
    {
        return Ok(known(name));
    }
    let text = parsed.render(|name| Some(known(name).as_ref().map_or_else(String::new, text)));
    text.map(|text| Some(Value::from(text)))
        .map_err(|error| error.to_string())
}

/// A value within a text: strings unchanged, everything else as JSON.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

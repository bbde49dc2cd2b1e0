//! What a run records of a child run that has ended.

use std::sync::Arc;

use serde_json::json;
use serde_json::value::RawValue;

use super::{Ended, Settings};
use crate::api::runs::InDoubtCall;
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::canonical;
use crate::domain::definition::Flow;
use crate::domain::journal::CallFailure;
use crate::domain::tool::FailureCode;
use crate::flow::StepOutput;
use crate::limits::{CutStep, Stop};
use crate::strategy::Strategy;

/// What the parent records of the run of the agent `name`. `settings`: those of the parent.
pub(super) fn outcome(
    strategy: &Strategy,
    settings: &Settings,
    name: &str,
    ended: Ended,
) -> Result<Result<Arc<RawValue>, CallFailure>, Stop> {
    match strategy {
        Strategy::Steps(flow) => step_result(settings, flow, ended),
        // It continues if the run of the plan is resumed.
        Strategy::Plan(_) if ended.stop_reason == Some(StopReason::ProcessLost) => Err(cut_short(ended)),
        Strategy::Plan(_) => Ok(task_result(settings, ended)),
        Strategy::Turns | Strategy::Opened(_) | Strategy::React(_) => Ok(tool_result(settings, name, ended)),
    }
}

/// The result that a model gets of an agent that it called. An agent that was cut short has failed, and its message
/// contains its progress.
fn tool_result(settings: &Settings, name: &str, ended: Ended) -> Result<Arc<RawValue>, CallFailure> {
    if ended.status == RunStatus::Completed {
        let output = ended.value();
        return Ok(Arc::from(canonical::to_raw(&json!({"output": output}))));
    }
    Err(failure(settings, name, &ended))
}

/// The result that the work on a plan records of a task. However its run ended, its outcome says what the task has come
/// to.
fn task_result(settings: &Settings, ended: Ended) -> Result<Arc<RawValue>, CallFailure> {
    match &ended.output {
        Some(_) => Ok(StepOutput {
            output: ended.structured(),
            exits_loop: false,
            steps: ended.steps,
            usage: ended.usage,
        }
        .to_raw()),
        None => Err(failure(settings, "its run", &ended)),
    }
}

/// The result that a flow records of a step. A step that was cut short stays open, so that it can be resumed.
fn step_result(settings: &Settings, flow: &Flow, ended: Ended) -> Result<Result<Arc<RawValue>, CallFailure>, Stop> {
    match ended.status {
        RunStatus::Completed => Ok(Ok(StepOutput {
            // If the agent itself is the loop, its output is formatted at the end of the last round.
            output: if flow.steps().is_empty() {
                ended.structured()
            } else {
                ended.value()
            },
            exits_loop: ended.exits_loop,
            steps: ended.steps,
            usage: ended.usage,
        }
        .to_raw())),
        RunStatus::Paused => Err(cut_short(ended)),
        _ => Ok(Err(failure(settings, "it", &ended))),
    }
}

fn cut_short(ended: Ended) -> Stop {
    Stop::StepStopped(CutStep {
        steps: ended.steps,
        tokens: ended.usage.total(),
        past_deadline: ended.stop_reason == Some(StopReason::Deadline),
        summary: ended.summary,
    })
}

fn failure(settings: &Settings, name: &str, ended: &Ended) -> CallFailure {
    let said = |call: &InDoubtCall| settings.settled.get(&call.action_id).copied();
    let in_doubt = ended.in_doubt.iter().any(|call| said(call).is_none());
    let verb = match ended.status {
        RunStatus::Paused => "was cut short",
        RunStatus::Cancelled => "was cancelled",
        _ => "failed",
    };
    let code = match ended.status {
        // The parent does not continue either, until a user settles the call.
        _ if in_doubt => FailureCode::InDoubt,
        RunStatus::Cancelled => FailureCode::Cancelled,
        _ => FailureCode::ToolError,
    };
    let mut message = format!("{name} {verb}");
    if let Some(error) = &ended.error_message {
        message.push_str(": ");
        message.push_str(error);
    }
    if let Some(summary) = &ended.summary {
        message.push_str(". Progress so far: ");
        message.push_str(summary);
    }
    for (call, happened) in ended.in_doubt.iter().filter_map(|call| Some((call, said(call)?))) {
        let had = if happened { "had" } else { "did not have" };
        let InDoubtCall { tool, parameters, .. } = call;
        message.push_str(&format!(
            ". The user says that its call {tool} {parameters} {had} its effect"
        ));
    }
    CallFailure::new(code, message)
}

//! One agent calls another: as a tool of its model, or as a step of its flow.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{Ended, Left, Place, Round};
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::canonical;
use crate::domain::definition::Flow;
use crate::domain::ids::RunId;
use crate::domain::journal::{CallFailure, CallResult, Entry, Judgement, Proposed, Target};
use crate::domain::nesting;
use crate::domain::tool::FailureCode;
use crate::engine::act::child_begun;
use crate::engine::flow::{self, StepOutput};
use crate::engine::limits::{AtLimit, MOST_DEPTH};
use crate::engine::log::Stop;
use crate::engine::{Engine, Run};
use crate::ports::records::{OpenDecision, QueryError, RecordError};
use crate::ports::runs::{Created, NewRun, Parent};

/// May this agent be called, and with which exact arguments?
pub(crate) fn judge(run: &Run, name: &str, given: &RawValue) -> Judgement {
    let refuse = |code, message: String| Judgement::Refuse { code, message };
    let member = run
        .agent
        .as_ref()
        .and_then(|place| Some((place, place.bundle.get(name)?)));
    let Some((place, member)) = member else {
        return refuse(
            FailureCode::UnknownTool,
            format!("{name:?} is not among the agents offered"),
        );
    };
    if place.settings.depth >= MOST_DEPTH {
        let message = format!("agents call each other at most {MOST_DEPTH} deep; do this without {name:?}");
        return refuse(FailureCode::LimitReached, message);
    }
    if !nesting::within(given.get().as_bytes(), nesting::MAX_LEVELS) {
        let message = format!("the arguments nest deeper than {} levels", nesting::MAX_LEVELS);
        return refuse(FailureCode::InvalidArguments, message);
    }
    let read = serde_json::from_str::<Map<String, Value>>(given.get());
    let checked = match read {
        Ok(given) => member.definition.check_arguments(given).map_err(|errors| {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            errors.join("; ")
        }),
        Err(error) => Err(format!("the arguments must be a JSON object: {error}")),
    };
    match checked {
        Ok(arguments) => Judgement::Allow {
            arguments: Arc::from(canonical::to_raw(&Value::Object(arguments))),
        },
        Err(message) => refuse(FailureCode::InvalidArguments, message),
    }
}

/// The run to go on with for a call that was begun: the one that is there, or, where that was cut short and this flow is
/// resumed, a new one that goes on with it.
pub(crate) async fn go_on_with(run: &Run, call: &Proposed) -> Result<(RunId, Option<RunId>), Stop> {
    let Some(place) = &run.agent else {
        return Err(Stop::LeaseLost);
    };
    let Some(begun) = child_begun(&run.journal, call.id) else {
        return Ok((RunId::new(), None));
    };
    let started = |entry: &Entry| matches!(entry, Entry::Started { call: id, .. } if *id == call.id);
    let resumed = |entry: &Entry| matches!(entry, Entry::Resumed { .. });
    // Of a run that was resumed since only flows have open calls.
    if run.journal.iter().rposition(resumed) < run.journal.iter().rposition(started) {
        return Ok((begun, None));
    }
    let stored = place.agents.runs.load(begun).await.map_err(unread)?;
    match stored {
        Some(stored) if stored.status == RunStatus::Paused => Ok((RunId::new(), Some(begun))),
        // Not written yet, or there: either way it is the one.
        Some(_) | None => Ok((begun, None)),
    }
}

/// Makes the run of the agent that is called, unless it is there, and drives it to its end.
pub(crate) async fn call(
    engine: &Engine,
    run: &Run,
    call: &Proposed,
    arguments: &Arc<RawValue>,
    resumes: Option<RunId>,
) -> Result<CallResult, Stop> {
    let began = engine.clock.instant();
    let (Some(place), Some(log), Some(child)) = (&run.agent, &run.log, child_begun(&run.journal, call.id)) else {
        return Err(Stop::LeaseLost);
    };
    let Target::Agent(name) = &call.target else {
        return Err(Stop::LeaseLost);
    };
    let Some(member) = place.bundle.get(name) else {
        let message = format!("{name:?} is not among the agents that were there when this run began");
        return Ok(failed(FailureCode::UnknownTool, message));
    };
    let mut settings = place.settings.called(&member.definition, left(engine, run, place));
    if let Some(flow) = place.flow() {
        settings.in_loop = matches!(flow, Flow::Loop { .. });
        settings.round = round(flow, &run.journal, call);
    }
    let new = NewRun {
        id: child,
        project: place.project.clone(),
        agent: Arc::clone(name),
        version: None,
        decision: OpenDecision {
            id: child.decision(),
            message: Arc::from(arguments.get()),
            definition_hash: Arc::clone(&member.definition.hash),
            created_at: engine.clock.now_us(),
            ..run.record.clone()
        },
        parent: Some(Parent {
            run: log.run,
            action: call.id,
            lease: log.lease,
        }),
        resumes,
        snapshot: place.bundle.snapshot(),
        input: Arc::clone(arguments),
        settings: settings.to_raw(),
        queued: false,
        claim: None,
    };
    match place.agents.runs.create(new).await? {
        Created::New(_) | Created::Replayed(_) => {}
        Created::LeaseLost => return Err(Stop::LeaseLost),
        Created::NotPaused(_) | Created::ResumedBy(_) | Created::Mismatch => {
            let message = "the run to go on with is not there to be gone on with";
            return Ok(failed(FailureCode::Unavailable, message.to_owned()));
        }
    }
    let agents = Arc::clone(&place.agents);
    let live = log.live.of(child);
    let ended = agents
        .drive(child, log.lease, live, run.cancel.child_token(), log.halt.clone())
        .await?;
    let duration = engine.clock.instant().saturating_duration_since(began);
    let outcome = if place.flow().is_some() {
        step_result(ended)?
    } else {
        tool_result(name, ended)
    };
    Ok(CallResult {
        outcome,
        sent: true,
        duration_us: i64::try_from(duration.as_micros()).unwrap_or(i64::MAX),
    })
}

/// What the caller has left.
fn left(engine: &Engine, run: &Run, place: &Place) -> Left {
    let elapsed = run.elapsed(engine.clock.instant());
    let time = run.limits.time.map(|time| time.saturating_sub(elapsed));
    if place.flow().is_none() {
        return Left {
            time,
            steps: None,
            grace: Duration::ZERO,
        };
    }
    // A flow counts the steps of all it calls, and has nobody but them to sum up.
    let spent = flow::steps(&run.journal);
    let grace = match run.limits.at_limit {
        AtLimit::SumUp { grace } => grace,
        AtLimit::End => Duration::ZERO,
    };
    Left {
        time,
        steps: run.limits.iterations.map(|most| most.saturating_sub(spent)),
        grace,
    }
}

/// The round this step is, where the agent itself goes round.
fn round(flow: &Flow, journal: &[Entry], call: &Proposed) -> Option<Round> {
    let Flow::Loop { steps, max_iterations } = flow else {
        return None;
    };
    if !steps.is_empty() {
        return None;
    }
    let number = journal.iter().rev().find_map(|entry| match entry {
        Entry::Step { round, call: step, .. } if step.id == call.id => Some(*round),
        _ => None,
    });
    Some(Round {
        number: number.unwrap_or(1),
        of: *max_iterations,
        before: flow::last_output(journal),
    })
}

fn failed(code: FailureCode, message: String) -> CallResult {
    CallResult {
        outcome: Err(CallFailure { code, message }),
        sent: false,
        duration_us: 0,
    }
}

/// What a model is told of an agent that it called. One that was cut short has not done its job, and says how far it came.
fn tool_result(name: &str, ended: Ended) -> Result<Arc<RawValue>, CallFailure> {
    if ended.status == RunStatus::Completed {
        let output = ended.value();
        return Ok(Arc::from(canonical::to_raw(&json!({"output": output}))));
    }
    Err(failure(name, &ended))
}

/// What a flow keeps of a step. One that was cut short stays open, so that it can be gone on with.
fn step_result(ended: Ended) -> Result<Result<Arc<RawValue>, CallFailure>, Stop> {
    match ended.status {
        RunStatus::Completed => Ok(Ok(StepOutput {
            output: ended.value(),
            exits_loop: ended.exits_loop,
            steps: ended.steps,
        }
        .to_raw())),
        RunStatus::Paused => Err(Stop::StepStopped(ended.summary)),
        _ => Ok(Err(failure("it", &ended))),
    }
}

fn failure(name: &str, ended: &Ended) -> CallFailure {
    let (code, verb) = match ended.status {
        // Whoever called it does not go on either, until a person says what happened.
        RunStatus::Paused if ended.stop_reason == Some(StopReason::InDoubt) => (FailureCode::InDoubt, "was cut short"),
        RunStatus::Paused => (FailureCode::ToolError, "was cut short"),
        RunStatus::Cancelled => (FailureCode::Cancelled, "was cancelled"),
        _ => (FailureCode::ToolError, "failed"),
    };
    let mut message = format!("{name} {verb}");
    if let Some(error) = &ended.error_message {
        message.push_str(": ");
        message.push_str(error);
    }
    if let Some(summary) = &ended.summary {
        message.push_str(". How far it came: ");
        message.push_str(summary);
    }
    CallFailure { code, message }
}

/// The store cannot be read: as good as not there.
pub(super) fn unread(error: QueryError) -> Stop {
    Stop::Record(RecordError::Unavailable(Arc::from(error.to_string())))
}

//! Calls from one agent to another: as a tool of its model, or as a step of its flow.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{AgentContext, Ended, Left, Round, Settings};
use crate::domain::agent_run::{InDoubtCall, RunStatus};
use crate::domain::canonical;
use crate::domain::definition::{Definition, Flow};
use crate::domain::ids::RunId;
use crate::domain::journal::{CallFailure, CallResult, Entry, Proposed, Target};
use crate::domain::tool::FailureCode;
use crate::engine::flow::{self, StepOutput};
use crate::engine::ledger::{Call, Ledger};
use crate::engine::limits::AtLimit;
use crate::engine::log::{self, CutStep, Log, Stop};
use crate::engine::next::current;
use crate::engine::{Engine, Run, record};
use crate::ports::commit::Spent;
use crate::ports::records::{OpenDecision, QueryError, RecordError};
use crate::ports::runs::{Created, NewRun, Origin, Parent, Reopen, Reopened, ReopenedFor, RunState};

/// The child run that continues a started call, and whether it must be started again: it was cut short, and this run is
/// resumed since.
pub(crate) async fn resume_child(run: &Run, call: &Proposed) -> Result<(RunId, bool), Stop> {
    let Some(place) = run.context.agent.as_ref().filter(|_| run.record.log().is_some()) else {
        return Err(Stop::LeaseLost);
    };
    let journal = &run.record.journal;
    let ledger = Ledger::of(journal);
    let state = ledger.call(call.id);
    let Some(child) = state.and_then(Call::child) else {
        return Ok((RunId::new(), true));
    };
    let started = state.and_then(Call::last_start).map(|(at, _)| at);
    let resumed = journal.len() - current(journal).len();
    let run_state = place.agents.runs.run_state(child).await.map_err(unread)?;
    let is_paused = run_state.is_some_and(|child| child.status == RunStatus::Paused);
    Ok((child, is_paused && started.is_some_and(|started| started < resumed)))
}

/// Ends the child runs that have not ended, in their current state.
pub(crate) async fn cancel_called(engine: &Engine, run: &mut Run) -> Result<(), Stop> {
    let (Some(place), Some(log)) = (&run.context.agent, run.record.log()) else {
        return Ok(());
    };
    let mut results = Vec::new();
    let ledger = Ledger::of(&run.record.journal);
    // A call that was resumed to settle its outcome counts as in progress until it has ended again.
    for call in ledger.calls().filter(|call| call.is_in_progress()) {
        let (Target::Agent(name), Some(child)) = (&call.proposed.target, call.child()) else {
            continue;
        };
        if place.agents.runs.run_state(child).await.map_err(unread)?.is_none() {
            continue;
        }
        let began = engine.clock.instant();
        let ended = drive(place, log, run, child).await?;
        // A step that was cut short has no result.
        if let Ok(outcome) = outcome(run, place, name, ended) {
            let result = ended_after(engine, began, outcome);
            results.push(Entry::Result {
                call: call.id(),
                result,
            });
        }
    }
    results.into_iter().for_each(|result| run.push(result));
    Ok(())
}

/// Drives a child run. If this run is cancelled, the child run is cancelled too, and awaited.
async fn drive(place: &AgentContext, log: &Log, run: &Run, child: RunId) -> Result<Ended, Stop> {
    let _calling = place.calling.lock().await;
    place
        .agents
        .drive_logged(
            log.of(child, flows(log, run)),
            run.context.cancel.child_token(),
            Some(&place.bundle),
        )
        .await
}

/// The flows to which the child run belongs as a step. A run that a model calls is no step: the parent counts its own
/// model calls.
fn flows(log: &Log, run: &Run) -> Vec<Spent> {
    if run.context.strategy.flow().is_none() {
        return Vec::new();
    }
    let (steps, usage) = run.context.strategy.total(&run.record.journal);
    record::with_flows(log, steps, usage)
}

/// What the parent records of a child run.
fn outcome(
    run: &Run,
    place: &AgentContext,
    name: &str,
    ended: Ended,
) -> Result<Result<Arc<RawValue>, CallFailure>, Stop> {
    match run.context.strategy.flow() {
        Some(flow) => step_result(place, flow, ended),
        None => Ok(tool_result(place, name, ended)),
    }
}

fn ended_after(engine: &Engine, began: Instant, outcome: Result<Arc<RawValue>, CallFailure>) -> CallResult {
    let took = engine.clock.instant().saturating_duration_since(began);
    CallResult {
        outcome,
        sent: true,
        duration_us: i64::try_from(took.as_micros()).unwrap_or(i64::MAX),
    }
}

/// Creates the child run, unless it exists, and drives it to its end. A child run that was cut short, and started again
/// since, is reopened first.
pub(crate) async fn call(
    engine: &Engine,
    run: &Run,
    call: &Proposed,
    arguments: &Arc<RawValue>,
) -> Result<CallResult, Stop> {
    let began = engine.clock.instant();
    let ledger = Ledger::of(&run.record.journal);
    let state = ledger.call(call.id);
    let child = state.and_then(Call::child);
    let starts = state.and_then(Call::last_start).map_or(0, |(_, starts)| starts);
    let (Some(place), Some(log), Some(child)) = (&run.context.agent, run.record.log(), child) else {
        return Err(Stop::LeaseLost);
    };
    let Target::Agent(name) = &call.target else {
        return Err(Stop::LeaseLost);
    };
    let Some(member) = place.bundle.get(name) else {
        let message = format!("{name:?} was not among the agents when this run began");
        return Ok(failed(FailureCode::UnknownTool, message));
    };
    let (input, timeout) = given(run, place, call, &member.definition, arguments);
    let mut settings = place.settings.called(&member.definition, timeout, left(engine, run));
    if let Some(flow) = run.context.strategy.flow() {
        settings.in_loop = matches!(flow, Flow::Loop { .. });
        settings.round = round(flow, &run.record.journal, call);
    }
    let again = match starts > 1 {
        true => place.agents.runs.run_state(child).await.map_err(unread)?,
        false => None,
    };
    if let Some(run_state) = again
        && run_state.status == RunStatus::Paused
        && (run_state.attempt as usize) + 1 < starts
    {
        // The step that made an in-doubt call receives the user's answer about it.
        settings.settled = place.settings.settled.clone();
        reopen(engine, place, log, child, &run_state, &settings).await?;
    }
    let new = NewRun {
        id: child,
        project: place.project.clone(),
        agent: Arc::clone(name),
        version: None,
        decision: OpenDecision {
            id: child.decision(),
            message: Arc::from(input.get()),
            definition_hash: Arc::clone(&member.definition.hash),
            created_at: engine.clock.now_us(),
            ..run.record.decision.clone()
        },
        origin: Origin::Called(Parent {
            run: log.run,
            action: call.id,
            lease: log.hold.lease(),
        }),
        snapshot: place.bundle.snapshot(),
        input,
        settings: settings.to_raw(),
        entries: Vec::new(),
        queued: false,
        claim: None,
    };
    match place.agents.runs.create(new).await? {
        Created::New(_) | Created::Replayed(_) => {}
        Created::LeaseLost => return Err(Stop::LeaseLost),
        Created::Mismatch | Created::ThreadBusy(_) | Created::NoThread => {
            let message = "the run of the agent could not be created";
            return Ok(failed(FailureCode::Unavailable, message.to_owned()));
        }
    }
    let ended = drive(place, log, run, child).await?;
    Ok(ended_after(engine, began, outcome(run, place, name, ended)?))
}

/// Reopens a child run that was cut short.
async fn reopen(
    engine: &Engine,
    place: &AgentContext,
    log: &Log,
    child: RunId,
    run_state: &RunState,
    settings: &Settings,
) -> Result<(), Stop> {
    let reopen = Reopen {
        run: child,
        attempt: run_state.attempt,
        place: ReopenedFor::Parent(log.hold.lease()),
        settings: settings.to_raw(),
        entry: log::resumed(run_state.steps, run_state.usage),
        at_us: engine.clock.now_us(),
    };
    match place.agents.runs.reopen(reopen).await? {
        // One that is not paused was reopened in a commit that was not acknowledged.
        Reopened::Yes(_) | Reopened::NotPaused(_) => Ok(()),
        Reopened::LeaseLost | Reopened::NotFound | Reopened::ResumedBy(_) | Reopened::Replayed | Reopened::Mismatch => {
            Err(Stop::LeaseLost)
        }
    }
}

/// The input and the time limit of a child run. A model sets the limit by an argument of the call; else the definition
/// sets it, for a sub-agent or for a step.
fn given(
    run: &Run,
    place: &AgentContext,
    call: &Proposed,
    called: &Definition,
    arguments: &Arc<RawValue>,
) -> (Arc<RawValue>, Option<Duration>) {
    if let Some(flow) = run.context.strategy.flow() {
        let ledger = Ledger::of(&run.record.journal);
        let place = ledger.call(call.id).and_then(|call| call.step);
        let step = place.and_then(|(step, _)| flow.steps().get(step as usize));
        return (Arc::clone(arguments), step.and_then(|step| step.timeout));
    }
    let by_definition = place.definition.timeout_of(&called.name);
    match serde_json::from_str(arguments.get()) {
        Ok(read) => {
            let (input, by_model) = called.split_call(read);
            let input = Arc::from(canonical::to_raw(&Value::Object(input)));
            (input, by_model.or(by_definition))
        }
        // The gate has read them as an object.
        Err(_) => (Arc::clone(arguments), by_definition),
    }
}

/// The limits that the parent has left.
fn left(engine: &Engine, run: &Run) -> Left {
    let elapsed = run.record.elapsed(engine.clock.instant());
    let time = run.context.limits.time.map(|time| time.saturating_sub(elapsed));
    if run.context.strategy.flow().is_none() {
        return Left {
            time,
            steps: None,
            tokens: None,
            grace: Duration::ZERO,
        };
    }
    // A flow counts its steps' usage as its own, and only its steps can write a summary.
    let (steps, tokens) = flow::spent(&run.record.journal, &CutStep::default());
    let grace = match run.context.limits.at_limit {
        AtLimit::SumUp { grace } => grace,
        AtLimit::End => Duration::ZERO,
    };
    Left {
        time,
        steps: run.context.limits.iterations.map(|most| most.saturating_sub(steps)),
        tokens: run.context.limits.tokens.map(|most| most.saturating_sub(tokens)),
        grace,
    }
}

/// The current round, if the agent itself is the loop.
fn round(flow: &Flow, journal: &[Entry], call: &Proposed) -> Option<Round> {
    let Flow::Loop { steps, max_iterations } = flow else {
        return None;
    };
    if !steps.is_empty() {
        return None;
    }
    let number = Ledger::of(journal).call(call.id).and_then(|call| call.step);
    Some(Round {
        number: number.map_or(1, |(_, round)| round),
        of: *max_iterations,
        before: flow::last_output(journal),
    })
}

fn failed(code: FailureCode, message: String) -> CallResult {
    CallResult {
        outcome: Err(CallFailure::new(code, message)),
        sent: false,
        duration_us: 0,
    }
}

/// The result that a model gets of an agent that it called. An agent that was cut short has failed, and its message
/// contains its progress.
fn tool_result(place: &AgentContext, name: &str, ended: Ended) -> Result<Arc<RawValue>, CallFailure> {
    if ended.status == RunStatus::Completed {
        let output = ended.value();
        return Ok(Arc::from(canonical::to_raw(&json!({"output": output}))));
    }
    Err(failure(place, name, &ended))
}

/// The result that a flow records of a step. A step that was cut short stays open, so that it can be resumed.
fn step_result(place: &AgentContext, flow: &Flow, ended: Ended) -> Result<Result<Arc<RawValue>, CallFailure>, Stop> {
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
        RunStatus::Paused => Err(Stop::StepStopped(CutStep {
            steps: ended.steps,
            tokens: ended.usage.total(),
            summary: ended.summary,
        })),
        _ => Ok(Err(failure(place, "it", &ended))),
    }
}

fn failure(place: &AgentContext, name: &str, ended: &Ended) -> CallFailure {
    let said = |call: &InDoubtCall| place.settings.settled.get(&call.action_id).copied();
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

/// A store that cannot be read counts as unavailable.
pub(super) fn unread(error: QueryError) -> Stop {
    Stop::Record(RecordError::Unavailable(Arc::from(error.to_string())))
}

//! Ends a run: its row, the rest of its journal and its decision, in one commit.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::drive::shown;
use super::history::History;
use super::prepare::{self, Known, Unable, formatted};
use super::summary::{fail_in_doubt, final_message, lacks_model_summary, recovered_from, summarize};
use super::{Agents, Settings};
use crate::api::planning::Cleanup;
use crate::api::runs::{AgentRun, InDoubtCall};
use crate::domain::action::ActionStatus;
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::definition::Flow;
use crate::domain::ids::RunId;
use crate::domain::journal::{CallFailure, Entry, Target, Verdict};
use crate::domain::planning_session::SessionReason;
use crate::domain::tool::FailureCode;
use crate::domain::{canonical, thread};
use crate::flow::StepOutput;
use crate::journal::Journal;
use crate::ledger::Call;
use crate::limits::{CutStep, Limits, Stop};
use crate::log::Log;
use crate::next::Ending;
use crate::ports::BoxFuture;
use crate::ports::commit::{Committed, Fact, Planned, RunEnd};
use crate::ports::runs::{RunState, StoredRun};
use crate::record::{self, Durability, Record};
use crate::run::{Context, Run};
use crate::snapshot::DefinitionSnapshot;
use crate::strategy::plan::{self, TaskWork};
use crate::strategy::{Strategy, react};
use crate::{approvals, derive, flow, write};

impl Agents {
    /// Ends a run that cannot start or continue. Boxed, since agents call each other from within.
    pub(super) fn unable<'a>(
        self: &'a Arc<Self>,
        stored: &'a StoredRun,
        journal: Journal,
        log: Log,
        Unable { ending, detail }: Unable,
    ) -> BoxFuture<'a, Result<Ended, Stop>> {
        Box::pin(async move {
            let began = self.engine.clock.instant();
            let mut record = Record {
                journal,
                fault_detail: detail,
                ..Record::new(stored.decision.clone(), Durability::Log(log), began)
            };
            // The step of a flow stays open, so that it can be resumed.
            let is_flow = record
                .journal
                .iter()
                .any(|entry| matches!(entry, Entry::Step { call, .. } if matches!(call.target, Target::Agent(_))));
            let stays = matches!(ending, Ending::Waiting(_) | Ending::Stopped(StopReason::ProcessLost, _));
            if !(is_flow && stays) {
                let why = "the run could not continue";
                let results = record::unfinished_calls(&record, why, FailureCode::Unavailable);
                record.journal.extend(results);
            }
            // What a session left behind is removed whatever ends its run.
            if let Ok(settings) = Settings::read(&stored.settings)
                && let Some(execution) = settings.execution
                && let Ok(parts) = prepare::parts(self, stored, Known::Bundle(None), true).await
            {
                let log = record.log().cloned().ok_or(Stop::LeaseLost)?;
                let run = parts.run(
                    self,
                    stored,
                    Journal::default(),
                    Duration::ZERO,
                    log,
                    CancellationToken::new(),
                );
                let mut run = Run { record, ..run };
                plan::clean_up(&self.engine, &mut run, &execution).await?;
                return self.finish(stored, run.record, Some(&run.context), &ending).await;
            }
            self.finish(stored, record, None, &ending).await
        })
    }

    /// Writes the run's row, the rest of its journal and its decision, in one commit.
    ///
    /// `context` is absent if the run could not be prepared.
    // Longer than a screen: every fact of the one commit that ends a run, each derived once.
    pub(super) async fn finish(
        &self,
        stored: &StoredRun,
        mut record: Record,
        context: Option<&Context>,
        ending: &Ending,
    ) -> Result<Ended, Stop> {
        let own = &record.journal;
        let is_fresh = record.log().is_some_and(|log| log.is_fresh);
        let now_us = self.engine.clock.now_us();
        // `None`: they cannot be read, which is why the run ends.
        let settings = Settings::read(&stored.settings).ok();
        let (strategy, limits) = match (context, &settings) {
            (Some(context), _) => (&context.strategy, context.limits),
            (None, Some(settings)) => (&Strategy::Turns, settings.limits_at(now_us, Duration::ZERO, false)),
            (None, None) => (&Strategy::Turns, Limits::AGENT),
        };
        let formatted = formatted(context.map(|context| &*context.definition), ending);
        let too_long = formatted.as_ref().err().cloned().map(Ending::TooLong);
        let ending = too_long.as_ref().unwrap_or(ending);
        let formatted = formatted.unwrap_or_default();
        let is_formatted = formatted.is_some();
        let derived = derive::derive(own, ending);
        let mut end = summarize(&record, strategy, &limits, ending, formatted);
        let task = task_work(settings.as_ref(), context);
        let is_of_session = stored.origin.session().is_some() || task.is_some();
        let fails = match end.stop_reason {
            // It can be resumed all the same, and its child runs with it.
            Some(StopReason::ProcessLost) => stored.origin.parent().is_none(),
            // A run of a thread cannot be resumed: its user sends another message, within the limits of threads. Nor can
            // one of a planning session, which asks for another plan.
            _ => stored.origin.thread().is_some() || is_of_session,
        };
        if fails && end.status == RunStatus::Paused {
            end.status = RunStatus::Failed;
        }
        let started = stored.started_at.unwrap_or(now_us);
        let duration = Duration::from_micros(u64::try_from(now_us - started).unwrap_or(0));
        let response = end.summary.as_deref().or(end.error_message.as_deref());
        let mut decision = record.closed(
            &self.engine.prices,
            &derived,
            response.unwrap_or_default(),
            (duration, now_us),
            None,
        );
        if decision.error_detail.is_none() {
            decision.error_detail = end.error_message.as_deref().map(|error| match ending {
                // The error quotes arguments, which the decision log stores only as `records.content` allows.
                Ending::Rejected(..) => "the user rejected a call".into(),
                _ => error.into(),
            });
        }
        end.in_doubt = self.calls_in_doubt(&record.journal).await?;
        // The decisions of a flow's steps count their tokens, so the flow's own decision counts none.
        (end.steps, end.usage) = strategy.total(&record.journal);
        // A step that did not complete counts as well, and its in-doubt calls are those of the flow.
        if strategy.has_steps()
            && let Some(step) = self.unfinished_step(&record.journal).await?
        {
            end.steps = end.steps.saturating_add(step.end.steps);
            end.usage += step.end.usage;
            end.in_doubt = step.end.in_doubt;
        }
        if let Some(work) = &task {
            // However it ends: the run that works through the plan reads what the task has come to. With a call in doubt
            // the task can be complete; the session is not, before a person has settled the call.
            let calls = end.in_doubt.iter().map(|call| call.action_id).collect();
            let outcome = react::outcome(&record.journal, work, ending, end.error_message.as_deref(), calls);
            end.output = serde_json::value::to_raw_value(&outcome).ok().map(Arc::from);
        }
        if end.status == RunStatus::Completed && !end.in_doubt.is_empty() {
            fail_in_doubt(&mut end);
            decision.error_detail = end.error_message.as_deref().map(Arc::from);
        }
        let completed_effects = match stored.origin.thread().is_some()
            && lacks_model_summary(&end, ending)
            && end.stop_reason != Some(StopReason::InDoubt)
        {
            true => self.completed_effects(&record, stored.id).await?,
            false => None,
        };
        let said = final_message(stored, &end, completed_effects.as_deref()).map(Fact::Said);
        let message = end.error_message.as_deref();
        let planned = self
            .planned(stored, settings.as_ref(), &record, ending, message)
            .await?;
        end.recovered_from = recovered_from(own, end.status);
        end.completed_at = Some(now_us);
        let exits_loop = exits_loop(own);
        let shown = is_fresh.then(|| shown(stored, &end, decision.outcome)).flatten();
        let acted = !is_fresh || acted(&record.journal);
        let facts = approvals::outcomes(&record).into_iter().map(Fact::Outcome);
        let facts = facts
            .chain([Fact::Closed(decision), Fact::Ended(end.clone(), acted)])
            .chain(said)
            .chain(planned);
        if write::commit(&self.engine, &mut record, facts.collect()).await? != Committed::Written {
            return Err(Stop::LeaseLost);
        }
        tracing::info!(
            run_id = %stored.id,
            agent = %stored.agent,
            status = end.status.as_str(),
            stop_reason = end.stop_reason.map(StopReason::as_str),
            steps = end.steps,
            "an agent run ended"
        );
        Ok(Ended {
            end,
            formatted: is_formatted,
            exits_loop,
            in_thread: stored.origin.thread().is_some(),
            shown: shown.map(Box::new),
        })
    }

    /// The effects, completed or in doubt, of a run that ends without a message of its own, including its child runs.
    async fn completed_effects(&self, record: &Record, id: RunId) -> Result<Option<String>, Stop> {
        let known = self.actions.of_run(id).await?;
        let new = approvals::outcomes(record);
        let ledger = record.journal.ledger();
        let (mut done, mut in_doubt) = (Vec::new(), Vec::new());
        for action in known.iter().filter(|action| action.side_effect) {
            let outcome = new.iter().rev().find(|outcome| outcome.id == action.id);
            let summary = match ledger.call(action.id) {
                Some(call) => approvals::render_call(call),
                // Made by a child run.
                None => action.tool.clone(),
            };
            match outcome.map_or(action.status, |outcome| outcome.status) {
                ActionStatus::Completed => done.push(summary),
                ActionStatus::InDoubt | ActionStatus::Executing => in_doubt.push(summary),
                _ => {}
            }
        }
        Ok(thread::completed_effects(&done, &in_doubt))
    }

    /// In-doubt calls. For an agent that was called, its own in-doubt calls, since those are what a user can settle.
    async fn calls_in_doubt(&self, journal: &Journal) -> Result<Vec<InDoubtCall>, Stop> {
        let mut found = Vec::new();
        let ledger = journal.ledger();
        for call in ledger.calls().filter(|call| call.is_in_doubt()) {
            let called = match call.child() {
                Some(child) => self.runs.run_state(child).await?,
                None => None,
            };
            match called.map(|called| called.end.in_doubt) {
                Some(theirs) if !theirs.is_empty() => found.extend(theirs),
                _ => found.push(InDoubtCall {
                    action_id: call.id(),
                    tool: call.name().to_string(),
                    parameters: serde_json::from_str(call.proposed.call.args.get()).unwrap_or_default(),
                }),
            }
        }
        Ok(found)
    }

    /// What the end of a run leads to in its planning session, if it works for one.
    async fn planned(
        &self,
        stored: &StoredRun,
        settings: Option<&Settings>,
        record: &Record,
        ending: &Ending,
        message: Option<&str>,
    ) -> Result<Option<Fact>, Stop> {
        let Some(session) = stored.origin.session().copied() else {
            return Ok(None);
        };
        if let Some(execution) = settings.and_then(|settings| settings.execution.as_ref()) {
            let mut worked = execution.ended(&record.journal, ending, message);
            // A journal that cannot be read does not say what its tasks made.
            if record.journal.is_empty()
                && !self.runs.journal(stored.id, 0, 1).await?.is_empty()
                && let Some(end) = &mut worked.ended
            {
                end.cleanup = Some(Cleanup::unknown("it was not done"));
            }
            return Ok(Some(Fact::Worked(session, Box::new(worked))));
        }
        let opening = settings.and_then(|settings| settings.opening.as_deref());
        let planned = settings.and_then(|settings| settings.planning.as_ref()).map_or_else(
            // Its settings cannot be read.
            || Planned::None(SessionReason::Internal, message.unwrap_or("the run failed").into()),
            |work| work.planned(session, opening, &record.journal, ending, message),
        );
        Ok(Some(Fact::Planned(session, planned)))
    }

    /// The run of a flow's last step, if it did not complete.
    async fn unfinished_step(&self, journal: &Journal) -> Result<Option<RunState>, Stop> {
        let begun = flow::unfinished(journal).and_then(|call| journal.ledger().call(call).and_then(Call::child));
        match begun {
            Some(child) => Ok(self.runs.run_state(child).await?),
            None => Ok(None),
        }
    }
}

/// The task that a run works on, if it is one of a plan.
fn task_work(settings: Option<&Settings>, context: Option<&Context>) -> Option<Arc<TaskWork>> {
    match context.map(|context| &context.strategy) {
        Some(Strategy::React(work)) => Some(Arc::clone(work)),
        Some(_) => None,
        None => settings?.task.clone(),
    }
}

/// Has a call of the journal an action, or a child run? Most reads have neither.
fn acted(journal: &Journal) -> bool {
    let ledger = journal.ledger();
    ledger.calls().any(|call| call.is_action() || call.child().is_some())
}

// A run that has ended, for its caller.

/// The outcome of a run, for its caller.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How it ended.
    pub end: RunEnd,
    /// Was the final text made from the output by the definition's own template?
    pub formatted: bool,
    /// Did the agent end the loop that it is a step of?
    pub exits_loop: bool,
    /// Does it belong to a thread? Then another run may wait for its end.
    pub in_thread: bool,
    /// Its public view, if this process created it and knows its whole row.
    pub shown: Option<Box<AgentRun>>,
}

impl Ended {
    /// The value for its caller: the final text if there is no structured output or the definition formats it, else the
    /// output.
    pub fn value(&self) -> Value {
        if self.formatted {
            Value::from(self.end.summary.clone().unwrap_or_default())
        } else {
            self.structured()
        }
    }

    /// The structured output if there is one, else the final text.
    pub fn structured(&self) -> Value {
        let output = self.end.output.as_deref();
        match output.map(|output| serde_json::from_str(output.get())) {
            Some(Ok(value)) => value,
            _ => Value::from(self.end.summary.clone().unwrap_or_default()),
        }
    }
}

pub(super) fn exits_loop(journal: &[Entry]) -> bool {
    let last = journal.iter().rev().find_map(Entry::turn);
    matches!(
        last,
        Some((_, [only])) if matches!(only.target, Target::Verdict(Ok(Verdict::Complete { exits_loop: true, .. })))
    )
}

/// The outcome of a run that had already ended, from its row and its own history.
pub(super) fn ended(
    stored: StoredRun,
    history: Result<History, String>,
    known: Option<&Arc<DefinitionSnapshot>>,
) -> Ended {
    let bundle = DefinitionSnapshot::read_once(&stored.snapshot, known).ok();
    let member = bundle.as_ref().and_then(|bundle| bundle.get(&stored.agent));
    Ended {
        end: stored.end,
        formatted: member.is_some_and(|member| member.definition.process_output.is_some()),
        exits_loop: history.is_ok_and(|history| exits_loop(&history.journal)),
        in_thread: stored.origin.thread().is_some(),
        shown: None,
    }
}

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
        Strategy::Plan(_) if ended.end.stop_reason == Some(StopReason::ProcessLost) => Err(cut_short(ended)),
        Strategy::Plan(_) => Ok(task_result(settings, ended)),
        Strategy::Turns | Strategy::Opened(_) | Strategy::React(_) => Ok(tool_result(settings, name, ended)),
    }
}

/// The result that a model gets of an agent that it called. An agent that was cut short has failed, and its message
/// contains its progress.
fn tool_result(settings: &Settings, name: &str, ended: Ended) -> Result<Arc<RawValue>, CallFailure> {
    if ended.end.status == RunStatus::Completed {
        let output = ended.value();
        return Ok(Arc::from(canonical::to_raw(&json!({"output": output}))));
    }
    Err(failure(settings, name, &ended))
}

/// The result that the work on a plan records of a task. However its run ended, its outcome says what the task has come
/// to.
fn task_result(settings: &Settings, ended: Ended) -> Result<Arc<RawValue>, CallFailure> {
    match &ended.end.output {
        Some(_) => Ok(StepOutput {
            output: ended.structured(),
            exits_loop: false,
            steps: ended.end.steps,
            usage: ended.end.usage,
        }
        .to_raw()),
        None => Err(failure(settings, "its run", &ended)),
    }
}

/// The result that a flow records of a step. A step that was cut short stays open, so that it can be resumed.
fn step_result(settings: &Settings, flow: &Flow, ended: Ended) -> Result<Result<Arc<RawValue>, CallFailure>, Stop> {
    match ended.end.status {
        RunStatus::Completed => Ok(Ok(StepOutput {
            // If the agent itself is the loop, its output is formatted at the end of the last round.
            output: if flow.steps().is_empty() {
                ended.structured()
            } else {
                ended.value()
            },
            exits_loop: ended.exits_loop,
            steps: ended.end.steps,
            usage: ended.end.usage,
        }
        .to_raw())),
        RunStatus::Paused => Err(cut_short(ended)),
        _ => Ok(Err(failure(settings, "it", &ended))),
    }
}

fn cut_short(ended: Ended) -> Stop {
    Stop::StepStopped(CutStep {
        steps: ended.end.steps,
        tokens: ended.end.usage.total(),
        past_deadline: ended.end.stop_reason == Some(StopReason::Deadline),
        summary: ended.end.summary,
    })
}

fn failure(settings: &Settings, name: &str, ended: &Ended) -> CallFailure {
    let said = |call: &InDoubtCall| settings.settled.get(&call.action_id).copied();
    let in_doubt = ended.end.in_doubt.iter().any(|call| said(call).is_none());
    let verb = match ended.end.status {
        RunStatus::Paused => "was cut short",
        RunStatus::Cancelled => "was cancelled",
        _ => "failed",
    };
    let code = match ended.end.status {
        // The parent does not continue either, until a user settles the call.
        _ if in_doubt => FailureCode::InDoubt,
        RunStatus::Cancelled => FailureCode::Cancelled,
        _ => FailureCode::ToolError,
    };
    let mut message = format!("{name} {verb}");
    if let Some(error) = &ended.end.error_message {
        message.push_str(": ");
        message.push_str(error);
    }
    if let Some(summary) = &ended.end.summary {
        message.push_str(". Progress so far: ");
        message.push_str(summary);
    }
    for (call, happened) in ended.end.in_doubt.iter().filter_map(|call| Some((call, said(call)?))) {
        let had = if happened { "had" } else { "did not have" };
        let InDoubtCall { tool, parameters, .. } = call;
        message.push_str(&format!(
            ". The user says that its call {tool} {parameters} {had} its effect"
        ));
    }
    CallFailure::new(code, message)
}

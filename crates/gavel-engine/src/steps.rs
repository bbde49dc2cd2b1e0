//! The loop: asks a run's strategy for the next step, and takes it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::json;

use super::limits::Stop;
use super::log::Log;
use super::next::{Ending, Next};
use super::run::{Engine, Run};
use super::strategy::{Strategy, plan, react};
use super::{act, ask, context, flow, limits, memory, notices, opening, write};
use crate::domain::agent_run::StopReason;
use crate::domain::canonical;
use crate::domain::journal::{CallResult, Entry, Phase, Proposed, Target, Verdict};
use crate::domain::tool::FailureCode;
use crate::ports::records::RecordError;

impl Engine {
    /// Runs to the end, or until an approval is required. A panic or a cancellation ends the run as [`Ending::Broken`],
    /// with its journal intact, so that its decision can still be written.
    ///
    /// # Errors
    /// [`RecordError`] when an intent could not be made durable: nothing was sent, and the run does not continue.
    pub async fn run(&self, run: &mut Run) -> Result<Ending, RecordError> {
        match self.go(run).await {
            Ok(ending) => Ok(ending),
            Err(Stop::Record(error)) => Err(error),
            Err(Stop::LeaseLost | Stop::ApprovalGone | Stop::Halted | Stop::Suspended(_) | Stop::StepStopped(_)) => {
                Ok(Ending::Broken)
            }
        }
    }

    /// Like [`Engine::run`], for a run with a log. A cancelled run ends as [`Ending::Cancelled`]. A run that stops in
    /// this process may continue in another one.
    pub(super) async fn go(&self, run: &mut Run) -> Result<Ending, Stop> {
        let cancel = run.context.cancel.clone();
        let children = run.context.children.clone();
        // A child run is cancelled or stopped together with this one, and reaches its own end first.
        let called_ended = async || {
            if let Some(children) = &children {
                children.idle().await;
            }
        };
        let cancelled = async {
            cancel.cancelled().await;
            called_ended().await;
        };
        let at_once = run.record.log().map(|log| log.halt.at_once.clone());
        let cut = async {
            match at_once {
                Some(at_once) => at_once.cancelled().await,
                None => std::future::pending().await,
            }
            called_ended().await;
        };
        let stopped = ("the service was stopped", Ending::Broken);
        let cut_short = run.record.log().map_or(stopped, Log::cut_short);
        let (why, ending) = tokio::select! {
            // First, so that nothing more starts after it.
            biased;
            () = cancelled => cut_short,
            () = cut => return Err(self.halted(run).await),
            ended = AssertUnwindSafe(self.steps(run)).catch_unwind() => match ended {
                Ok(Err(Stop::Halted)) => return Err(self.halted(run).await),
                Ok(Err(Stop::StepStopped(cut))) => {
                    let elapsed = run.record.elapsed(self.clock.instant());
                    let own = flow::limit_reached(&run.record.journal, &run.context.limits, elapsed, &cut);
                    return Ok(Ending::Stopped(own.unwrap_or(StopReason::Step), cut.summary));
                }
                Ok(Ok(Ending::Cancelled)) => cut_short,
                Ok(ended) => return ended,
                Err(_) => ("the service failed", Ending::Broken),
            },
        };
        if ending == Ending::Broken {
            tracing::error!(decision_id = %run.record.decision.id, "a run did not reach its end: {why}");
            run.close_calls(why, FailureCode::LimitReached);
        } else {
            if let Some(children) = children {
                let results = children.cancel(run).await?;
                results.into_iter().for_each(|result| run.push(result));
            }
            match ending {
                Ending::Cancelled => run.close_calls(why, FailureCode::Cancelled),
                // A step stays open, and continues if the run is resumed.
                _ if run.context.strategy.has_steps() => {}
                _ => run.close_calls(why, FailureCode::Unavailable),
            }
        }
        Ok(ending)
    }

    /// Records in the journal that the run was handed over, so that the next worker does not treat it as a crash.
    async fn halted(&self, run: &mut Run) -> Stop {
        if run.record.log().is_some_and(|log| log.intending) {
            // The last append is unconfirmed, so nothing may be written after it.
            return Stop::Halted;
        }
        run.push(Entry::Halted);
        match write::flush(self, run, Vec::new()).await {
            Ok(()) => Stop::Halted,
            Err(stop) => stop,
        }
    }

    async fn steps(&self, run: &mut Run) -> Result<Ending, Stop> {
        loop {
            if run.is_cancelled() {
                return Ok(Ending::Cancelled);
            }
            let halts = run
                .record
                .log()
                .is_some_and(|log| log.halt.between_steps.is_cancelled());
            if halts {
                // Saves the model's last turn, so that it is not requested again.
                write::flush(self, run, Vec::new()).await?;
                return Err(Stop::Halted);
            }
            let elapsed = run.record.elapsed(self.clock.instant());
            let next = run
                .context
                .strategy
                .next(&run.record.journal, &run.context.limits, elapsed);
            if memory::may_end(&next, &run.record.journal)
                && let Err(why) = memory::count(&run.record.journal, &run.record.decision, &mut run.record.remembered)
            {
                return Ok(Ending::TooLong(why));
            }
            match next {
                Next::Ask => ask::ask(self, run).await,
                Next::Act(calls) => {
                    let calls: Vec<Proposed> = calls.into_iter().cloned().collect();
                    act::act(self, run, &calls).await?;
                }
                Next::Recover(calls) => {
                    let calls: Vec<Proposed> = calls.into_iter().cloned().collect();
                    act::recover(self, run, &calls).await?;
                }
                Next::SoftStop(reason) => {
                    run.push(notices::sum_up(reason, elapsed, run.context.limits.output_due));
                    // Saved at once; otherwise the next worker would grant the same time again.
                    write::flush(self, run, Vec::new()).await?;
                }
                Next::OutputDue => run.push(notices::output_due()),
                Next::Step(step, round) => match step_entry(run, step, round) {
                    Ok(entry) => run.push(entry),
                    Err(why) => return Ok(Ending::TooLong(why)),
                },
                Next::Phase(phase, again) => begin_phase(run, (phase, again), elapsed),
                Next::Reflected(call, answer) => {
                    let entry = answered(call, answer);
                    let changes = changes_plan(call);
                    run.push(entry);
                    if changes {
                        // A new version of the plan is written with the reflection that makes it, before anything follows.
                        write::flush(self, run, Vec::new()).await?;
                    }
                }
                Next::AskAfter(pause) => {
                    // Until the deadline, which asks nothing more.
                    let left = run.context.limits.until_deadline(elapsed).unwrap_or(Duration::MAX);
                    if paused(run, pause.min(left)).await && pause < left {
                        ask::ask(self, run).await;
                    }
                }
                Next::AwaitSettlement(calls) => return Ok(Ending::Unsettled(calls)),
                Next::Open => match opened(run, self.clock.now_us()) {
                    Ok(entry) => run.push(entry),
                    Err(why) => return Ok(Ending::TooLong(why)),
                },
                Next::Refuse(calls, code) => {
                    let answers: Vec<_> = calls.into_iter().map(|call| refusal(call, code)).collect();
                    for answer in answers {
                        run.push(answer);
                    }
                }
                Next::Suspend(calls) => return Ok(Ending::Suspended(calls)),
                Next::End(ending) => {
                    run.record.limits = limits::reached(&run.context.limits, &ending, &run.record.journal);
                    return Ok(ending);
                }
            }
        }
    }
}

/// The entry of the next step of a flow, or of the next read.
fn step_entry(run: &Run, step: u32, round: u32) -> Result<Entry, String> {
    let journal = &run.record.journal;
    match &run.context.strategy {
        Strategy::Opened(opening) => Ok(opening::step(opening, &run.context.toolset, journal, step)),
        Strategy::Plan(execution) => Ok(plan::step(execution, journal, step)),
        Strategy::Turns | Strategy::Steps(_) | Strategy::React(_) => flow::step(&run.context, journal, step, round),
    }
}

/// The first message of a run that began with reads.
fn opened(run: &Run, now_us: i64) -> Result<Entry, String> {
    let words = match &run.context.strategy {
        Strategy::Opened(opening) => opening::message(opening, &run.record.journal)?,
        Strategy::Turns | Strategy::Steps(_) | Strategy::Plan(_) | Strategy::React(_) => String::new(),
    };
    Ok(Entry::User(context::message(&words, now_us, run.context.zone, &[])))
}

fn begin_phase(run: &mut Run, phase: (Phase, bool), elapsed: Duration) {
    let context = &run.context;
    if let Strategy::React(work) = &context.strategy {
        let now = (&context.limits, elapsed);
        let entry = react::prompt(phase, work, &run.record.journal, &context.toolset, now);
        run.push(entry);
    }
}

/// The answer to a reflection, as the model gets it.
fn answered(call: &Proposed, answer: Result<(), (FailureCode, String)>) -> Entry {
    match answer {
        Ok(()) => Entry::Result {
            call: call.id,
            result: CallResult {
                outcome: Ok(Arc::from(canonical::to_raw(&json!({"accepted": true})))),
                sent: false,
                duration_us: 0,
            },
        },
        Err((code, message)) => Entry::failed(call.id, code, message),
    }
}

fn changes_plan(call: &Proposed) -> bool {
    matches!(&call.target, Target::Verdict(Ok(Verdict::Reflect(reflection))) if !reflection.plan_changes.is_empty())
}

/// Waits, until the pause has passed or the process is to stop. False: look again first.
async fn paused(run: &Run, pause: Duration) -> bool {
    let Some(log) = run.record.log() else {
        tokio::time::sleep(pause).await;
        return true;
    };
    tokio::select! {
        () = tokio::time::sleep(pause) => true,
        () = log.halt.between_steps.cancelled() => false,
    }
}

/// The result of a call that is not run.
fn refusal(call: &Proposed, code: FailureCode) -> Entry {
    let (code, message) = match (&call.target, code) {
        (Target::Verdict(Err(error)), _) => (FailureCode::InvalidArguments, error.clone()),
        (_, FailureCode::MixedWithVerdict) => (
            code,
            "a verdict must be called alone; none of these calls was run".to_owned(),
        ),
        (_, FailureCode::TooManyCalls) => (code, "too many calls in one turn; this one was not run".to_owned()),
        (_, FailureCode::DoomLoop) => (code, notices::doom_loop()),
        (_, FailureCode::LimitReached) => (
            code,
            "the limit of this run is reached; this call was not run".to_owned(),
        ),
        (_, FailureCode::Rejected) => (
            FailureCode::Cancelled,
            "the user rejected another call, which ended the run; this call was not executed".to_owned(),
        ),
        (_, other) => (other, "this call was not run".to_owned()),
    };
    Entry::failed(call.id, code, message)
}

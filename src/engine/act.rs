//! Tool calls: judge, record, call, record. The only caller of [`Tools::call`].
//!
//! [`Tools::call`]: crate::ports::tools::Tools::call

mod ready;
mod recover;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::value::RawValue;
use tracing::{Instrument, Span};

pub(super) use self::recover::recover;
use super::events::tool_name;
use super::leave::{self, Answer};
use super::log::{self, Stop};
use super::policy::{self, Bounds, OwnBounds};
use super::{Engine, Run, agent, checks, derive, spans};
use crate::domain::event::Event;
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::{CallFailure, CallResult, Entry, Judgement, Proposed, Target};
use crate::domain::policy::Grant;
use crate::domain::tool::{FailureCode, Tool};
use crate::ports::records::{Intent, RecordError};
use crate::ports::tools::{CallReply, CallRequest};
use crate::telemetry;

/// With less time left a call is not sent a second time.
const WORTH_A_SECOND: Duration = Duration::from_secs(1);

/// A call that may run.
struct Cleared<'a> {
    call: &'a Proposed,
    what: What<'a>,
    arguments: Arc<RawValue>,
    key: String,
}

enum What<'a> {
    Tool(&'a Arc<Tool>),
    Agent,
}

impl Cleared<'_> {
    /// May it run beside its neighbours?
    fn only_reads(&self) -> bool {
        matches!(self.what, What::Tool(tool) if !tool.side_effect)
    }
}

/// Judges `calls`, makes the intents of their side effects durable, and runs them.
///
/// Side effects run one after another in the model's order, and so do agents; neighbours that only read run at once.
/// Without a log all intents are one commit; with one, each effect is on it before it is begun, and the one before with
/// its result.
pub(super) async fn act(engine: &Engine, run: &mut Run, calls: &[Proposed]) -> Result<(), Stop> {
    if run.can_wait {
        run.grants = leave::grants(run, calls).await;
    }
    let cleared = judge_all(engine, run, calls).await;
    ready::look_ahead(engine, run, calls).await;
    if run.log.is_none() {
        let all: Vec<_> = cleared.iter().collect();
        let intents = intents(engine, run, &all);
        intend(engine, run, intents).await?;
    }
    let at_once = !run.limits.one_by_one;
    for group in cleared.chunk_by(|a, b| at_once && a.only_reads() && b.only_reads()) {
        if run.is_cancelled() {
            return Ok(());
        }
        if !run.is_ours() {
            return Err(Stop::LeaseLost);
        }
        let group = approved_as_they_are(engine, run, group).await;
        for one in &group {
            started(engine, run, one, child_of(&one.what));
        }
        if run.log.is_some() {
            let intents = intents(engine, run, &group);
            log::flush(engine, run, intents).await?;
        }
        results(engine, run, &group).await?;
        // By itself: an append that announces nothing is written even where nobody waits for it any more.
        log::flush(engine, run, Vec::new()).await?;
    }
    log::flush(engine, run, Vec::new()).await
}

/// Of calls that a person approved, now or for good, those whose tools are what they were then (promise 4). Their server is asked
/// right before they begin: it may have changed while others were answered or ran, and not every server says so. The others fail,
/// and nothing of them is sent.
async fn approved_as_they_are<'a, 'b>(
    engine: &Engine,
    run: &mut Run,
    group: &'b [Cleared<'a>],
) -> Vec<&'b Cleared<'a>> {
    let mut good = Vec::with_capacity(group.len());
    for one in group {
        let (journal, id) = (&run.journal, one.call.id);
        let approved = leave::answer(journal, id).is_some() || leave::granted(journal, id).is_some();
        let What::Tool(tool) = &one.what else {
            good.push(one);
            continue;
        };
        if !approved {
            good.push(one);
            continue;
        }
        let message = match is_as_it_was(engine, tool).await {
            Some(true) => {
                good.push(one);
                continue;
            }
            Some(false) => policy::not_as_it_was(&tool.name),
            None => format!(
                "{} is not there, so whether it still offers this as it was approved cannot be looked at",
                tool.server
            ),
        };
        run.push(failed(one.call.id, FailureCode::Unavailable, message));
    }
    good
}

/// Does its server still offer a tool as it was? It is asked now; `None` when it does not answer, for whatever reason: that is its own
/// text, and for operators.
async fn is_as_it_was(engine: &Engine, tool: &Tool) -> Option<bool> {
    if let Err(why) = engine.tools.read_anew(&tool.server).await {
        tracing::warn!(server = %tool.server, tool = %tool.name, why, "what a server offers cannot be looked at");
        return None;
    }
    let same = |now: &Arc<Tool>| now.server == tool.server && now.name == tool.name && now.digest == tool.digest;
    Some(engine.tools.catalog().tools.iter().any(same))
}

/// Runs a group and appends what came of it.
async fn results(engine: &Engine, run: &mut Run, group: &[&Cleared<'_>]) -> Result<(), Stop> {
    let shared: &Run = run;
    let results = join_all(group.iter().map(|one| async move {
        match &one.what {
            What::Tool(tool) => Ok(traced(engine, shared, one, tool).await),
            What::Agent => agent::call(engine, shared, one.call, &one.arguments, None).await,
        }
    }))
    .await;
    for (one, result) in group.iter().zip(results) {
        let result = result?;
        run.push(Entry::Result {
            call: one.call.id,
            result,
        });
    }
    Ok(())
}

const LEASE_LOST: &str = "another process may have taken the run up; the call was not sent";
/// The arguments that were allowed.
pub(super) fn allowed(journal: &[Entry], id: ActionId) -> Option<Arc<RawValue>> {
    journal.iter().rev().find_map(|entry| match entry {
        Entry::Judged {
            call,
            judgement: Judgement::Allow { arguments, .. },
        } if *call == id => Some(Arc::clone(arguments)),
        _ => None,
    })
}

/// The run of the agent that was called, the last one where it was resumed.
pub(super) fn child_begun(journal: &[Entry], id: ActionId) -> Option<RunId> {
    children(journal, id).next_back()
}

/// The runs of the agent that was called: the first one, and those that went on with it.
pub(super) fn children_begun(journal: &[Entry], id: ActionId) -> Vec<RunId> {
    children(journal, id).collect()
}

fn children(journal: &[Entry], id: ActionId) -> impl DoubleEndedIterator<Item = RunId> {
    journal.iter().filter_map(move |entry| match entry {
        Entry::Started { call, child, .. } if *call == id => *child,
        _ => None,
    })
}

/// When a call was begun first, in microseconds since the epoch.
fn begun_at(journal: &[Entry], id: ActionId) -> Option<i64> {
    journal.iter().find_map(|entry| match entry {
        Entry::Started { call, at_us, .. } if *call == id => Some(*at_us),
        _ => None,
    })
}

fn child_of(what: &What<'_>) -> Option<RunId> {
    matches!(what, What::Agent).then(RunId::new)
}

fn cleared<'a>(call: &'a Proposed, what: What<'a>, arguments: Arc<RawValue>) -> Cleared<'a> {
    Cleared {
        call,
        what,
        arguments,
        key: call.id.to_string(),
    }
}

async fn judge_all<'a>(engine: &Engine, run: &mut Run, calls: &'a [Proposed]) -> Vec<Cleared<'a>> {
    let mut allowed = Vec::with_capacity(calls.len());
    for call in calls {
        let asked = match leave::answer(&run.journal, call.id) {
            None => None,
            Some(Answer::Yes(arguments)) => Some(Arc::clone(arguments)),
            Some(Answer::No(code, message)) => {
                run.push(failed(call.id, code, message));
                continue;
            }
        };
        let judgement = match &call.target {
            Target::Agent(name) => agent::judge(run, name, &call.call.args),
            _ => judge(engine, call, bounds(engine, run, &run.grants)).await,
        };
        // Leave was given for exactly these arguments, of the tool as it was then; everything else is judged anew.
        let judgement = match (judgement, asked) {
            (Judgement::RequireApproval { arguments, .. } | Judgement::Allow { arguments, .. }, Some(asked)) => {
                match arguments.get() == asked.get() {
                    true => Judgement::Allow { arguments, by: None },
                    false => Judgement::Refuse {
                        code: FailureCode::Denied,
                        message: "leave was given for other arguments".to_owned(),
                        by: Vec::new(),
                    },
                }
            }
            (judgement, _) => judgement,
        };
        run.push(Entry::Judged {
            call: call.id,
            judgement: judgement.clone(),
        });
        match (judgement, &call.target) {
            (Judgement::Allow { arguments, .. }, Target::Tool(tool)) => {
                allowed.push(cleared(call, What::Tool(tool), arguments));
            }
            (Judgement::Allow { arguments, .. }, Target::Agent(_)) => {
                allowed.push(cleared(call, What::Agent, arguments));
            }
            (Judgement::Refuse { code, message, .. }, _) => {
                tracing::info!(decision_id = %run.record.id, code = code.as_str(), "a proposed call was not run");
                run.push(failed(call.id, code, message));
            }
            // Waits for a person; `next` suspends on it.
            (Judgement::RequireApproval { .. }, _) => {}
            (Judgement::Allow { .. }, _) => {
                run.push(failed(call.id, FailureCode::UnknownTool, "not a tool".to_owned()));
            }
        }
    }
    allowed
}

/// Judges a call; where that takes long, on a thread of its own.
async fn judge(engine: &Engine, call: &Proposed, bounds: Bounds<'_>) -> Judgement {
    if let Some(judgement) = policy::judge_quickly(call, bounds) {
        return judgement;
    }
    let (owned, proposed) = (OwnBounds::new(bounds, &engine.policy), call.clone());
    checks::apart(bounds.tenant, bounds.user, move || {
        policy::judge(&proposed, owned.bounds())
    })
    .await
    .unwrap_or_else(|busy| Judgement::Refuse {
        code: FailureCode::LimitReached,
        message: busy,
        by: Vec::new(),
    })
}

/// Within which a run's calls are judged, now.
fn bounds<'a>(engine: &'a Engine, run: &'a Run, grants: &'a [Grant]) -> Bounds<'a> {
    Bounds {
        tenant: &run.record.tenant,
        user: &run.record.user,
        agent: run.agent.as_ref().map(|place| place.definition.name.as_str()),
        surface: run.record.surface,
        approval: run.approval,
        can_wait: run.can_wait,
        policy: &engine.policy,
        grants,
        missing: &run.toolset.missing,
        zone: run.zone,
        now_us: engine.clock.now_us(),
    }
}

pub(super) fn failed(call: ActionId, code: FailureCode, message: String) -> Entry {
    Entry::Result {
        call,
        result: CallResult {
            outcome: Err(CallFailure::new(code, message)),
            sent: false,
            duration_us: 0,
        },
    }
}

/// The side effects among them, as they are to be recorded before they are sent.
fn intents(engine: &Engine, run: &Run, cleared: &[&Cleared<'_>]) -> Vec<Intent> {
    let now = engine.clock.now_us();
    let effects = cleared.iter().filter_map(|one| match one.what {
        What::Tool(tool) if tool.side_effect => Some((one, tool)),
        _ => None,
    });
    effects
        .map(|(one, tool)| Intent {
            id: one.call.id,
            decision: run.record.id,
            tenant: run.record.tenant.clone(),
            sequence: one.call.sequence,
            tool: Arc::clone(tool),
            arguments: Arc::clone(&one.arguments),
            ruled: derive::ruled(&run.journal, one.call.id),
            idempotency_key: Arc::from(one.key.as_str()),
            started_at: now,
        })
        .collect()
}

/// Commit 1: what is about to be done is durable before it is done.
async fn intend(engine: &Engine, run: &mut Run, intents: Vec<Intent>) -> Result<(), RecordError> {
    if intents.is_empty() {
        return Ok(());
    }
    run.intended.extend(intents.iter().map(|intent| intent.id));
    if run.opened {
        engine.recorder.intend(intents).await
    } else {
        // Set before the commit: when its outcome is not known, recovery must find the row.
        run.opened = true;
        engine.recorder.open(run.record.clone(), intents).await
    }
}

fn started(engine: &Engine, run: &mut Run, one: &Cleared<'_>, child: Option<RunId>) {
    if let Some(sink) = &mut run.events {
        sink.tell(Event::ToolCall {
            sequence: one.call.sequence,
            tool: tool_name(one.call),
            parameters: Arc::clone(&one.arguments),
        });
    }
    run.push(Entry::Started {
        call: one.call.id,
        at_us: engine.clock.now_us(),
        child,
    });
}

/// The call in a span of its own.
async fn traced(engine: &Engine, run: &Run, one: &Cleared<'_>, tool: &Arc<Tool>) -> CallResult {
    let span = spans::tool_call(tool, one.call.id);
    let result = call(engine, run, one, tool).instrument(span.clone()).await;
    spans::called(&span, &result);
    result
}

/// Sends the call. When it is not known whether it arrived and a second one can do no harm, it is sent once more in the
/// time that is left of it.
async fn call(engine: &Engine, run: &Run, one: &Cleared<'_>, tool: &Arc<Tool>) -> CallResult {
    let began = engine.clock.instant();
    let took = || engine.clock.instant().saturating_duration_since(began);
    let time = run.limits.tool_time(tool.timeout, run.elapsed(began));
    let reply = if time.is_zero() {
        let message = "no time was left for this call; it was not sent".to_owned();
        CallReply::NotSent(CallFailure::new(FailureCode::LimitReached, message))
    } else {
        attempt(engine, run, one, tool, time, Nth::First).await
    };
    let (outcome, sent) = match reply {
        CallReply::Data(data) => (Ok(data), true),
        CallReply::NotSent(failure) => (Err(failure), false),
        CallReply::Failed(failure) => (Err(failure), true),
        CallReply::Unknown(failure) => {
            let left = time.saturating_sub(took());
            (once_more(engine, run, one, tool, left, failure).await, true)
        }
    };
    CallResult {
        outcome,
        sent,
        duration_us: i64::try_from(took().as_micros()).unwrap_or(i64::MAX),
    }
}

/// Which attempt at a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nth {
    First,
    Further,
}

/// Sends it, unless the run may be somebody else's by now, who does the same.
async fn attempt(
    engine: &Engine,
    run: &Run,
    one: &Cleared<'_>,
    tool: &Arc<Tool>,
    time: Duration,
    nth: Nth,
) -> CallReply {
    if !run.is_ours() {
        return CallReply::NotSent(CallFailure::new(FailureCode::Unavailable, LEASE_LOST.to_owned()));
    }
    // The server's work hangs under this call's span, or without one under the caller's.
    let own_place = telemetry::traceparent(&Span::current());
    let request = CallRequest {
        tool,
        arguments: &one.arguments,
        tenant: run.record.tenant.as_str(),
        user: &tool.user(&run.record.tenant, &run.record.user),
        origin: run.record.surface,
        run_id: &run.record.id.to_string(),
        action_id: one.call.id,
        idempotency_key: &one.key,
        first_attempt_us: (nth == Nth::Further)
            .then(|| begun_at(&run.journal, one.call.id))
            .flatten(),
        account: run
            .can_wait
            .then(|| leave::account(&run.journal, one.call.id))
            .flatten(),
        traceparent: own_place.as_deref().or(run.traceparent.as_deref()),
        timeout: time,
        cancel: &run.cancel,
        has_leave: leave::answer(&run.journal, one.call.id).is_some()
            || leave::granted(&run.journal, one.call.id).is_some(),
        hold: run.log.as_ref().map(|log| &log.hold),
    };
    engine.tools.call(request).await
}

/// After an attempt of which nobody knows what it did. Only the tool's data settles that: a second attempt that did not
/// reach it says nothing of the first. Nor does a tool's error: a second delete finds nothing because the first has worked,
/// and who cannot reach its database now cannot see what stands there under our key.
async fn once_more(
    engine: &Engine,
    run: &Run,
    one: &Cleared<'_>,
    tool: &Arc<Tool>,
    left: Duration,
    first: CallFailure,
) -> Result<Arc<RawValue>, CallFailure> {
    let asked = engine.clock.instant();
    let may = tool.repeatable()
        && left > WORTH_A_SECOND
        && !run.cancel.is_cancelled()
        && tokio::time::timeout(left, may_still(engine, run, one.call, tool))
            .await
            .unwrap_or(false);
    let left = left.saturating_sub(engine.clock.instant().saturating_duration_since(asked));
    if may && left > WORTH_A_SECOND {
        tracing::info!(decision_id = %run.record.id, tool = %tool.name, "no answer to a repeatable call; sent again");
        match attempt(engine, run, one, tool, left, Nth::Further).await {
            CallReply::Data(data) => return Ok(data),
            CallReply::Failed(failure) if !tool.side_effect => return Err(failure),
            CallReply::NotSent(_) | CallReply::Failed(_) | CallReply::Unknown(_) => {}
        }
    }
    Err(if tool.side_effect { in_doubt(&first) } else { first })
}

/// May a call that was begun be sent once more? Leave is for the tool as it was (promise 4); leave for good may have been taken back
/// since, the run cancelled, at another process too, and the operator's rules be others.
async fn may_still(engine: &Engine, run: &Run, call: &Proposed, tool: &Tool) -> bool {
    if let Some(log) = &run.log
        && !matches!(log.runs.is_cancelled(log.run).await, Ok(false))
    {
        return false;
    }
    let granted = leave::granted(&run.journal, call.id);
    let answered = leave::answer(&run.journal, call.id).is_some();
    if (answered || granted.is_some()) && is_as_it_was(engine, tool).await != Some(true) {
        return false;
    }
    let grants = match granted {
        Some(_) => leave::grants(run, std::slice::from_ref(call)).await,
        None => Vec::new(),
    };
    match judge(engine, call, bounds(engine, run, &grants)).await {
        Judgement::Allow { .. } => true,
        Judgement::RequireApproval { .. } => answered,
        // What is not valid any more, such as a time that has come, does no harm: it may have been done when it was. A check that
        // could not be made allows nothing.
        Judgement::Refuse { code, .. } => !matches!(code, FailureCode::Denied | FailureCode::LimitReached),
    }
}

fn in_doubt(failure: &CallFailure) -> CallFailure {
    let message = format!(
        "it is not known whether this call had its effect ({}); do not repeat it, tell the person",
        failure.message
    );
    CallFailure {
        words_of: failure.words_of,
        ..CallFailure::new(FailureCode::InDoubt, message)
    }
}

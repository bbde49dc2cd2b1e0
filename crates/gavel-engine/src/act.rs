//! Tool calls: decide, record, call, record.

mod send;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub(super) use self::send::recover;
use self::send::{Nth, attempt, traced};
use super::gate::{self, Attempt, Decision, Delegates, Facts, Offered};
use super::ledger::{Call, Resolution};
use super::limits::Stop;
use super::record::Durability;
use super::run::{Engine, Run};
use super::strategy::Strategy;
use super::strategy::plan::created;
use super::{approvals, write};
use crate::domain::canonical;
use crate::domain::ids::RunId;
use crate::domain::journal::{CallResult, Entry, PolicyDecision, Proposed, Target};
use crate::domain::known::Known;
use crate::domain::policy::Grant;
use crate::domain::tool::{FailureCode, Tool};
use crate::ports::commit::{Commit, Fact};
use crate::ports::records::{OpenCall, RecordError};
use crate::ports::tools::CallReply;

/// A call that may run.
struct Cleared<'a> {
    call: &'a Proposed,
    callee: Callee<'a>,
    arguments: Arc<RawValue>,
    key: String,
}

enum Callee<'a> {
    Tool(&'a Arc<Tool>),
    Agent,
}

impl Cleared<'_> {
    /// May it run concurrently with its neighbors?
    fn only_reads(&self) -> bool {
        matches!(self.callee, Callee::Tool(tool) if !tool.side_effect)
    }
}

/// Decides on `calls`, makes the intents of their side effects durable, and runs them.
///
/// Side effects run one after another in the model's order, and so do agents; adjacent read-only calls run
/// concurrently. Without a log, all intents are one commit. With a log, each effect is written before it starts,
/// together with the previous effect's result, and each read together with its own result.
pub(super) async fn act(engine: &Engine, run: &mut Run, calls: &[Proposed]) -> Result<(), Stop> {
    let grants = match run.can_wait() {
        true => approvals::grants(run, calls).await,
        false => Vec::new(),
    };
    let facts = facts(engine, run, calls, grants);
    let cleared = decide_all(engine, run, &facts, calls).await;
    preflight(engine, run, calls).await;
    if run.record.log().is_none() {
        let all: Vec<_> = cleared.iter().collect();
        let intents = intents(engine, run, &all);
        intend(engine, run, intents).await?;
    }
    let at_once = !run.context.limits.one_by_one;
    for group in cleared.chunk_by(|a, b| at_once && a.only_reads() && b.only_reads()) {
        if run.is_cancelled() {
            return Ok(());
        }
        if !run.record.is_ours() {
            return Err(Stop::LeaseLost);
        }
        let group = as_they_were(engine, run, &facts, group).await;
        for one in &group {
            started(engine, run, one, child_of(&one.callee));
        }
        if run.record.log().is_some() {
            let intents = intents(engine, run, &group);
            if !group.iter().all(|one| one.only_reads()) || write::announces(run, &intents) {
                write::flush(engine, run, intents).await?;
            }
        }
        results(engine, run, &group).await?;
        // In a separate append: one that announces nothing is written even if no task waits for it anymore.
        write::flush(engine, run, Vec::new()).await?;
    }
    write::flush(engine, run, Vec::new()).await
}

/// Decides once more on the approved and granted calls of a group, with what their servers offer now: right before they
/// start, since the tools may have changed meanwhile, and not every server announces this (promise: exact approvals).
/// Calls that may not run fail and are not sent.
async fn as_they_were<'a, 'b>(
    engine: &Engine,
    run: &mut Run,
    facts: &Facts,
    group: &'b [Cleared<'a>],
) -> Vec<&'b Cleared<'a>> {
    let mut good = Vec::with_capacity(group.len());
    for one in group {
        let resolution = match (&one.callee, run.record.journal.ledger().call(one.call.id)) {
            (Callee::Tool(_), Some(call)) if call.is_by_user() => call.resolution(),
            (Callee::Tool(_) | Callee::Agent, _) => {
                good.push(one);
                continue;
            }
        };
        let facts = Facts {
            offered: offered(engine, &one.callee).await,
            ..facts.clone()
        };
        match decide(engine, one.call, &facts, resolution, Attempt::First)
            .await
            .outcome
        {
            PolicyDecision::Allow { .. } => good.push(one),
            PolicyDecision::RequireApproval { details, .. } => {
                run.push(Entry::failed(one.call.id, FailureCode::Denied, details.reason));
            }
            PolicyDecision::Refuse { code, message, .. } => run.push(Entry::failed(one.call.id, code, message)),
        }
    }
    good
}

/// Asks a tool's server what it offers now. Why it does not answer is the server's own text, for operators only.
async fn offered(engine: &Engine, callee: &Callee<'_>) -> Offered {
    let Callee::Tool(tool) = callee else {
        return Offered::Later;
    };
    if let Err(why) = engine.tools.refresh_server(&tool.server).await {
        tracing::warn!(server = %tool.server, tool = %tool.name, why, "the tools of a server cannot be read");
        return Offered::Unknown;
    }
    let catalog = engine.tools.catalog();
    let mut same = catalog
        .tools
        .iter()
        .filter(|now| now.server == tool.server && now.name == tool.name);
    Offered::Tool(same.next().map(|now| Arc::clone(&now.digest)))
}

/// Runs a group of calls and appends their results.
async fn results(engine: &Engine, run: &mut Run, group: &[&Cleared<'_>]) -> Result<(), Stop> {
    let shared: &Run = run;
    let results = join_all(group.iter().map(|one| async move {
        match &one.callee {
            Callee::Tool(tool) => Ok(traced(engine, shared, one, tool, None).await),
            Callee::Agent => called(shared, one.call, &one.arguments).await,
        }
    }));
    let (results, written) = write::meanwhile(engine, run, results).await?;
    if let Some(log) = run.record.log_mut() {
        log.written = written;
    }
    for (one, result) in group.iter().zip(results) {
        let result = result?;
        run.push(Entry::Result {
            call: one.call.id,
            result,
        });
    }
    Ok(())
}

/// Calls another agent.
async fn called(run: &Run, call: &Proposed, arguments: &Arc<RawValue>) -> Result<CallResult, Stop> {
    let children = run.context.children.as_ref().ok_or(Stop::LeaseLost)?;
    children.call(run, call, arguments).await
}

const LEASE_LOST: &str = "another process may have claimed the run; the call was not sent";

fn child_of(what: &Callee<'_>) -> Option<RunId> {
    matches!(what, Callee::Agent).then(RunId::new)
}

fn cleared<'a>(call: &'a Proposed, callee: Callee<'a>, arguments: Arc<RawValue>) -> Cleared<'a> {
    Cleared {
        call,
        callee,
        arguments,
        key: call.id.to_string(),
    }
}

/// Decides on calls that were not started. Returns those that may run.
async fn decide_all<'a>(engine: &Engine, run: &mut Run, facts: &Facts, calls: &'a [Proposed]) -> Vec<Cleared<'a>> {
    let mut allowed = Vec::with_capacity(calls.len());
    let ledger = run.record.journal.ledger();
    let resolution = |call: &Proposed| ledger.call(call.id).and_then(Call::resolution);
    let resolutions: Vec<_> = calls.iter().map(resolution).collect();
    for (call, resolution) in calls.iter().zip(resolutions) {
        // The journal has the approver's refusal already.
        let is_refusal = matches!(resolution, Some(Resolution::Refused(..)));
        let decided = decide(engine, call, facts, resolution, Attempt::First).await;
        let (decision, answer) = (decided.outcome, decided.answer);
        if !is_refusal {
            run.push(Entry::Decided {
                call: call.id,
                decision: decision.clone(),
                lost: answer.map_or_else(Vec::new, |answer| answer.lost().collect()),
            });
        }
        match decision {
            PolicyDecision::Allow { arguments, .. } => match &call.target {
                Target::Tool(tool) => allowed.push(cleared(call, Callee::Tool(tool), arguments)),
                Target::Agent(_) => allowed.push(cleared(call, Callee::Agent, arguments)),
                Target::Unresolved(_) | Target::Verdict(_) | Target::Unknown => {
                    run.push(Entry::failed(
                        call.id,
                        FailureCode::UnknownTool,
                        "not a tool".to_owned(),
                    ));
                }
            },
            PolicyDecision::Refuse { code, message, .. } => {
                tracing::info!(decision_id = %run.record.decision.id, code = code.as_str(), "a proposed call was not run");
                run.push(Entry::failed(call.id, code, message));
            }
            // Waits for an approval; `next` suspends on it.
            PolicyDecision::RequireApproval { .. } => {}
        }
    }
    allowed
}

/// Decides on a call; on a separate thread if that takes long.
async fn decide(
    engine: &Engine,
    call: &Proposed,
    facts: &Facts,
    resolution: Option<Resolution>,
    attempt: Attempt,
) -> Decision {
    if let Some(decision) = gate::decide_quickly(call, facts, resolution.as_ref(), attempt) {
        return decision;
    }
    let (call, owned) = (call.clone(), facts.clone());
    let decided = engine.checks.apart(&facts.tenant, &facts.user, move || {
        gate::decide(&call, &owned, resolution.as_ref(), attempt)
    });
    decided.await.unwrap_or_else(Decision::busy)
}

/// What the gate has to know about a run, and these calls, now.
fn facts(engine: &Engine, run: &Run, calls: &[Proposed], grants: Vec<Grant>) -> Facts {
    let (agent, scope) = (run.context.agent.as_ref(), run.context.scope.as_ref());
    let (tenant, user) = (run.record.decision.tenant.clone(), run.record.decision.user.clone());
    Facts {
        agent: agent.map(|_| run.context.definition.name.as_str().into()),
        approval: run.context.definition.approval,
        floor: run.context.floor,
        can_wait: run.can_wait(),
        grants,
        delegates: agent.map(|place| Delegates {
            snapshot: Arc::clone(&place.snapshot),
            depth: place.depth,
        }),
        missing: run.context.toolset.missing.clone(),
        bound: run.context.bound.clone(),
        scope: scope.map(|scope| scope.with(created(&run.record.journal))),
        known: run
            .context
            .words
            .as_ref()
            .map(|words| Arc::new(known(run, words, calls))),
        zone: run.context.zone,
        now_us: engine.clock.now_us(),
        ..Facts::new(tenant, user, run.record.decision.surface, Arc::clone(&engine.policy))
    }
}

/// What these calls may send out of the session of a run unasked. Pages of the repository count as long as the session
/// cannot have written them: in a planning run, and in the first task before its first side effect.
fn known(run: &Run, words: &[String], calls: &[Proposed]) -> Known {
    let mut tools = calls.iter().filter_map(|call| call.target.tool());
    if !tools.any(|tool| tool.asks_the_world()) {
        return Known::default();
    }
    let mut known = Known::of(words);
    let mut is_unchanged = match &run.context.strategy {
        Strategy::React(work) => work.is_first(),
        // An agent that a task calls does not know what the session wrote before.
        _ => run.context.scope.is_none(),
    };
    for call in run.record.journal.ledger().calls() {
        let may_write = call.has_side_effect() || call.tool().is_none();
        is_unchanged &= !may_write || !call.was_started();
        let (Some(tool), Some(data)) = (call.tool(), call.data()) else {
            continue;
        };
        let read = |data: &RawValue| serde_json::from_str::<Value>(data.get()).unwrap_or_default();
        if tool.asks_the_world() {
            known.add_sources(&read(data));
        } else if is_unchanged && tool.is_of_repository() && !tool.side_effect {
            known.add_page(&read(data));
        }
    }
    known
}

/// The intents of the side effects among the calls, to be recorded before they are sent.
fn intents(engine: &Engine, run: &Run, cleared: &[&Cleared<'_>]) -> Vec<OpenCall> {
    let now = engine.clock.now_us();
    let ledger = run.record.journal.ledger();
    let effects = cleared.iter().filter(|one| match one.callee {
        Callee::Tool(tool) => tool.side_effect,
        Callee::Agent => false,
    });
    let calls = effects.filter_map(|one| ledger.call(one.call.id));
    calls.map(|call| run.record.open_call(call, Some(now))).collect()
}

/// Commit 1: makes intents durable before their calls are sent.
async fn intend(engine: &Engine, run: &mut Run, intents: Vec<OpenCall>) -> Result<(), RecordError> {
    if intents.is_empty() {
        return Ok(());
    }
    let mut facts = Vec::with_capacity(intents.len() + 1);
    if let Durability::Commits { opened, intended } = &mut run.record.durability {
        intended.extend(intents.iter().map(|intent| intent.id));
        if !*opened {
            // Set before the commit: if its outcome is unknown, recovery must find the row.
            *opened = true;
            facts.push(Fact::Opened(run.record.decision.clone()));
        }
    }
    facts.extend(intents.into_iter().map(Fact::Intended));
    engine.recorder.commit(Commit::of_process(facts)).await.map(drop)
}

fn started(engine: &Engine, run: &mut Run, one: &Cleared<'_>, child: Option<RunId>) {
    run.push(Entry::Started {
        call: one.call.id,
        at_us: engine.clock.now_us(),
        child,
    });
}

// Asks servers about calls before their approval is requested (`preflight` in `mcp.json`).

/// The longest time for a server's preflight answer.
const TO_BE_READY: Duration = Duration::from_secs(5);

/// The longest account name, in bytes: the length of the longest email address.
const LONGEST_ACCOUNT: usize = 320;

/// Asks servers about all calls that require approval, concurrently. A call fails with the server's message if the user
/// must connect an account first, or if the tool does not accept the arguments. Then no approval is requested. For the
/// other calls, approvers are shown the account that the call would use. If a server cannot answer, approval is
/// requested.
async fn preflight(engine: &Engine, run: &mut Run, calls: &[Proposed]) {
    let shared: &Run = run;
    let ledger = shared.record.journal.ledger();
    let waiting = calls.iter().filter_map(|call| {
        let tool = call.target.tool()?;
        // A person decides first whether the text of a read may leave.
        let name = tool.settings.preflight.as_deref().filter(|_| !tool.asks_the_world())?;
        let state = ledger.call(call.id).filter(|state| state.requires_approval())?;
        Some((state, tool, name))
    });
    let replies = waiting.map(|(call, tool, name)| async move {
        let reply = looked_at(engine, shared, call, tool, name).await;
        (call.id(), reply)
    });
    let replies = join_all(replies).await;
    for (id, reply) in replies {
        match reply {
            Some(CallReply::Failed(failure))
                if matches!(failure.code, FailureCode::AuthRequired | FailureCode::InvalidArguments) =>
            {
                run.push(Entry::failed(id, failure.code, failure.message));
            }
            Some(CallReply::Data(data)) => {
                let said: Ready = serde_json::from_str(data.get()).unwrap_or_default();
                let decided = run
                    .record
                    .journal
                    .entries_mut()
                    .iter_mut()
                    .rev()
                    .find_map(|entry| match entry {
                        Entry::Decided { call, decision, .. } if *call == id => Some(decision),
                        _ => None,
                    });
                // The entry is not written yet.
                if let Some(PolicyDecision::RequireApproval { details, .. }) = decided {
                    details.account = said.account.filter(|name| name.len() <= LONGEST_ACCOUNT);
                }
            }
            Some(CallReply::Failed(_) | CallReply::NotSent(_) | CallReply::Unknown(_)) | None => {}
        }
    }
}

/// A server's preflight answer for a call; `None` if it cannot be asked.
async fn looked_at(engine: &Engine, run: &Run, call: Call<'_>, tool: &Tool, name: &str) -> Option<CallReply> {
    let catalog = engine.tools.catalog();
    let mut offered = catalog.tools.iter();
    let asked = offered.find(|other| other.server == tool.server && *other.name == *name && !other.side_effect);
    let Some(asked) = asked else {
        tracing::warn!(server = %tool.server, tool = %tool.name, ready = %name, "the preflight tool does not exist or is not read-only");
        return None;
    };
    let mut arguments = json!({"for": &*tool.name});
    if asked.input.has_property("arguments") {
        arguments["arguments"] = serde_json::from_str(call.requested()?.get()).unwrap_or_default();
    }
    if let Some(identity) = &asked.identity_argument {
        arguments[&**identity] = asked
            .user(&run.record.decision.tenant, &run.record.decision.user)
            .into_owned()
            .into();
    }
    let time = TO_BE_READY.min(
        run.context
            .limits
            .tool_time(asked.timeout, run.record.elapsed(engine.clock.instant())),
    );
    let one = Cleared {
        key: format!("{}:ready", call.id()),
        ..cleared(
            call.proposed,
            Callee::Tool(asked),
            Arc::from(canonical::to_raw(&arguments)),
        )
    };
    Some(attempt(engine, run, &one, asked, time, Nth::First).await)
}

/// A server's answer for a call that could be made.
#[derive(Default, Deserialize)]
struct Ready {
    account: Option<String>,
}

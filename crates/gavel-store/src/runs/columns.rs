//! The columns of runs and of their journals.

use std::time::Duration;

use super::super::db::Value;
use super::super::table::{Column, Table};
use crate::api::runs::InDoubtCall;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::RunId;
use crate::ports::commit::RunEnd;
use crate::ports::runs::{LoggedEntry, NewRun, Parent};

/// A run that begins.
pub(crate) struct Beginning {
    pub(super) run: NewRun,
    pub(super) status: RunStatus,
    pub(super) created_at: i64,
    /// The lease of a run that this process works on.
    pub(super) lease: Option<Duration>,
}

impl Beginning {
    fn parent(&self) -> Option<&Parent> {
        self.run.origin.parent()
    }

    /// The fence, and how many processes have taken it.
    fn fence(&self) -> Value {
        i64::from(self.lease.is_some()).into()
    }
}

type Run = Column<Beginning, RunEnd>;

/// The columns of `agent_run`. `lease_until` of a queued run says since when it waits; the lease of an outermost run covers
/// those below it.
#[rustfmt::skip] // A line for each.
pub(crate) static RUN: Table<Beginning, RunEnd> = Table { name: "agent_run", columns: &[
    Run::open("id", |new, _| new.run.id.into()).shown(),
    Run::open("root_id", |new, _| new.parent().map_or(new.run.id, |parent| parent.lease.run).into()),
    Run::open("project_id", |new, _| (&new.run.project).into()).shown(),
    Run::open("agent_id", |new, _| (&new.run.agent).into()).shown(),
    Run::both("status", |new, _| new.status.into(), |end, _| end.status.into())
        .shown(),
    Run::open("user_id", |new, _| (&new.run.decision.user).into()),
    Run::open("parent_run_id", |new, _| new.parent().map(|parent| parent.run).into()).shown(),
    Run::open("parent_action_id", |new, _| new.parent().map(|parent| parent.action).into()),
    Run::open("tenant", |new, _| (&new.run.decision.tenant).into()),
    Run::open("version", |new, _| new.run.version.into()).shown_as("definition_version"),
    Run::open("definition_hash", |new, _| (&new.run.decision.definition_hash).into()).shown(),
    Run::open("snapshot_hash", |new, _| (&new.run.snapshot.hash).into()),
    Run::open("input", |new, _| (&*new.run.input).into()),
    Run::open("settings", |new, _| (&*new.run.settings).into()),
    Run::open("holder", |new, with| new.lease.map_or(Value::Text(None), |_| with.owner.clone())),
    Run::derived("lease_until", "@now + CAST(? AS BIGINT)", |new, _| match new.parent() {
        Some(_) => Value::Int(None),
        None => new.lease.unwrap_or_default().into(),
    }).closed("NULL"),
    Run::open("fence", |new, _| new.fence()),
    Run::open("takes", |new, _| new.fence()),
    Run::open("thread_id", |new, _| new.run.origin.thread().map(|place| place.thread).into()),
    Run::open("session_id", |new, _| new.run.origin.session().map(|place| place.session).into()),
    Run::close("stop_reason", |end, _| end.stop_reason.into()).shown(),
    Run::open("created_at", |new, _| new.created_at.into()).shown(),
    Run::open("started_at", |new, _| (new.status == RunStatus::Running).then_some(new.created_at).into()).shown(),
    Run::close("completed_at", |end, _| end.completed_at.into()).shown(),
    // 0 if the clock was set back.
    Run::elsewhere("CASE WHEN completed_at < started_at THEN 0 ELSE (completed_at - started_at) / 1000 END")
        .shown_as("duration_ms"),
    Run::close("summary", |end, _| end.summary.as_ref().into()).shown(),
    Run::close("output", |end, _| end.output.as_deref().into()).shown(),
    Run::close("error_message", |end, _| end.error_message.as_ref().into()).shown(),
    Run::close("recovered_from", |end, _| end.recovered_from.into()).shown(),
    Run::close("in_doubt", |end, _| in_doubt(&end.in_doubt)).shown(),
    Run::elsewhere("attempts").shown(),
    Run::both("steps", |_, _| 0_u32.into(), |end, _| end.steps.into()).shown(),
    Run::both("input_tokens", |_, _| 0_u32.into(), |end, _| end.usage.input_tokens.into())
        .shown_as("usage.input_tokens"),
    Run::both("output_tokens", |_, _| 0_u32.into(), |end, _| end.usage.output_tokens.into())
        .shown_as("usage.output_tokens"),
    Run::both("thought_tokens", |_, _| 0_u32.into(), |end, _| end.usage.thought_tokens.into())
        .shown_as("usage.thought_tokens"),
    Run::both("cached_tokens", |_, _| 0_u32.into(), |end, _| end.usage.cached_tokens.into())
        .shown_as("usage.cached_tokens"),
    Run::elsewhere("(SELECT decision.outcome_category FROM decision_log decision WHERE decision.id = agent_run.id)")
        .shown_as("outcome_category"),
] };

/// In-doubt calls as a row stores them.
pub(crate) fn in_doubt(calls: &[InDoubtCall]) -> Value {
    match calls {
        [] => Value::Text(None),
        calls => Value::json(calls),
    }
}

/// An entry, with the outermost run whose events it belongs to.
pub(super) type Entered = (RunId, LoggedEntry);

type Entry = Column<Entered>;

/// The columns of `agent_run_entry`.
#[rustfmt::skip] // A line for each.
pub(super) static ENTRY: Table<Entered> = Table { name: "agent_run_entry", columns: &[
    Entry::open("root_id", |(root, _), _| (*root).into()),
    Entry::open("position", |(_, logged), _| logged.position.into()).shown(),
    Entry::open("run_id", |(_, logged), _| logged.run.into()).shown_as("run"),
    Entry::open("number", |(_, logged), _| logged.entry.number.into()).shown_as("entry.number"),
    Entry::open("created_at", |(_, logged), _| logged.entry.at_us.into()).shown_as("entry.at_us"),
    Entry::open("elapsed_us", |(_, logged), _| logged.entry.elapsed_us.into()).shown_as("entry.elapsed_us"),
    Entry::open("body", |(_, logged), _| (&logged.entry.body).into()).shown_as("entry.body"),
] };

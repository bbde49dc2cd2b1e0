//! The columns of actions, grants and threads.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::super::content::capped;
use super::super::db::Value;
use super::super::table::{Column, Table};
use crate::domain::action::{ActionStatus, in_words};
use crate::domain::ids::{ActionId, GrantId, RunId, TenantId, ThreadId, UserId};
use crate::ports::commit::{ActionOutcome, NewAction};
use crate::ports::runs::NewRun;

type Action = Column<NewAction, ActionOutcome>;

fn status(action: &NewAction) -> ActionStatus {
    match action.approval {
        Some(_) => ActionStatus::AwaitingConfirmation,
        None => ActionStatus::Executing,
    }
}

fn lifetime(action: &NewAction) -> Option<Duration> {
    action.approval.map(|(_, lifetime)| lifetime)
}

/// The columns of `agent_action`. A row begins as a copy of its run's (`run`) and that of the outermost run (`root`).
#[rustfmt::skip] // A line for each.
pub(crate) static ACTION: Table<NewAction, ActionOutcome> = Table { name: "agent_action", columns: &[
    Action::open("id", |new, _| new.id.into()).shown(),
    Action::open("approval_id", |new, _| new.approval.map(|(approval, _)| approval).into()).shown(),
    Action::computed("run_id", "run.id").shown(),
    Action::computed("root_id", "run.root_id").shown(),
    Action::computed("thread_id", "root.thread_id").shown(),
    Action::elsewhere("(SELECT root.session_id FROM agent_run root WHERE root.id = agent_action.root_id)")
        .shown_as("session_id"),
    Action::computed("tenant", "run.tenant"),
    Action::computed("project_id", "run.project_id"),
    Action::both("status", |new, _| status(new).into(), |end, _| end.status.into())
        .shown(),
    Action::open("policy", |new, _| if new.approval.is_some() { "require_approval" } else { "allow" }.into())
        .shown(),
    Action::open("tool", |new, _| capped(&new.tool.name).into()).shown(),
    Action::computed("user_id", "run.user_id").shown(),
    Action::computed("agent_id", "run.agent_id").shown(),
    Action::computed("created_at", "@now").shown(),
    Action::open("sequence", |new, _| new.sequence.into()).shown(),
    Action::open("server", |new, _| (&new.tool.server).into()).shown(),
    Action::open("tool_digest", |new, _| (&new.tool.digest).into()).shown(),
    Action::open("side_effect", |new, _| new.tool.side_effect.into()).shown(),
    Action::open("arguments", |new, _| (&*new.arguments).into()).shown(),
    Action::open("input_hash", |new, _| hex::encode(Sha256::digest(new.arguments.get())).into()).shown(),
    Action::open("details", |new, _| Value::json(&new.details)).shown(),
    Action::open("model", |new, _| (&new.model).into()).shown(),
    Action::open("grant_id", |new, _| new.grant.into()).shown(),
    Action::derived("expires_at", "@now + CAST(? AS BIGINT)", |new, _| {
        lifetime(new).map_or(Value::Int(None), Value::from)
    }).shown(),
    Action::derived("started_at", "CASE WHEN ? THEN NULL ELSE @now END", |new, _| new.approval.is_some().into()).shown(),
    Action::elsewhere("completed_at").closed("@now").shown(),
    Action::close("error_code", |end, _| end.error.as_ref().map(|(code, _)| *code).into()).shown(),
    Action::close("error_message", |end, with| match &end.error {
        Some((code, message)) => with.content.failure(*code, &in_words(message)),
        None => Value::Text(None),
    }).shown(),
    Action::elsewhere("resolution").shown(),
    Action::elsewhere("resolved_by").shown(),
    Action::elsewhere("resolved_at").shown(),
    Action::elsewhere("reason").shown(),
    Action::elsewhere("settled_by").shown(),
] };

/// A grant that a resolution creates.
pub(crate) struct NewGrant {
    pub(super) id: GrantId,
    pub(super) tenant: TenantId,
    pub(super) user: UserId,
    pub(super) server: String,
    pub(super) tool: String,
    /// JSON.
    pub(super) recipients: String,
    pub(super) tool_digest: String,
    pub(super) action: ActionId,
    pub(super) by: Arc<str>,
}

type Grant = Column<NewGrant>;

/// The columns of `approval_grant`.
#[rustfmt::skip] // A line for each.
pub(crate) static GRANT: Table<NewGrant> = Table { name: "approval_grant", columns: &[
    Grant::open("id", |new, _| new.id.into()).shown_as("grant_id"),
    Grant::open("tenant", |new, _| (&new.tenant).into()),
    Grant::open("tool", |new, _| (&new.tool).into()).shown(),
    Grant::open("user_id", |new, _| (&new.user).into()).shown(),
    Grant::computed("created_at", "@now").shown(),
    Grant::open("server", |new, _| (&new.server).into()).shown(),
    Grant::open("recipients", |new, _| (&new.recipients).into()).shown(),
    Grant::elsewhere("recipients").shown_as("recipients_by_argument"),
    Grant::open("tool_digest", |new, _| (&new.tool_digest).into()).shown(),
    Grant::open("action_id", |new, _| new.action.into()),
    Grant::open("created_by", |new, _| (&new.by).into()).shown(),
    Grant::elsewhere("uses").shown(),
    Grant::elsewhere("last_used_at").shown(),
    Grant::elsewhere("revoked_at").shown(),
] };

/// A column of a thread's latest run; NULL if its runs have been deleted.
macro_rules! latest_run {
    ($what:literal) => {
        concat!(
            "(SELECT ",
            $what,
            " FROM agent_run run WHERE run.thread_id = thread.id ORDER BY run.created_at DESC, run.id DESC LIMIT 1)"
        )
    };
}

type Thread = Column<NewRun>;

/// The columns of `thread`, which begins with a run. Each subquery reads one or two rows of an index. Its alias keeps it
/// apart from the columns that the list is ordered by.
#[rustfmt::skip] // A line for each.
pub(crate) static THREAD: Table<NewRun> = Table { name: "thread", columns: &[
    Thread::open("id", |run, _| run.origin.thread().map(|place| place.thread).into()).shown_as("thread_id"),
    Thread::open("tenant", |run, _| (&run.decision.tenant).into()),
    Thread::open("agent_id", |run, _| (&run.agent).into()).shown(),
    Thread::open("user_id", |run, _| (&run.decision.user).into()).shown(),
    Thread::open("created_at", |run, _| run.decision.created_at.into()).shown(),
    Thread::open("updated_at", |run, _| run.decision.created_at.into()).shown(),
    Thread::elsewhere("messages").shown_as("message_count"),
    Thread::elsewhere("(SELECT substr(said.body, 1, 1000) FROM thread_message said \
        WHERE said.thread_id = thread.id AND said.role = 'user' ORDER BY said.number LIMIT 1)").shown_as("title"),
    Thread::elsewhere(latest_run!("run.id")).shown_as("latest_run.run_id"),
    Thread::elsewhere(latest_run!("run.status")).shown_as("latest_run.status"),
    Thread::elsewhere(latest_run!(
        "(SELECT CASE MAX(CASE acted.status WHEN 'executing' THEN 2 WHEN 'in_doubt' THEN 1 ELSE 0 END) \
         WHEN 2 THEN 'executing' WHEN 1 THEN 'in_doubt' END FROM agent_action acted WHERE acted.root_id = run.id)"
    )).shown_as("latest_run.acted"),
] };

type LineColumn = Column<Line>;

/// A line of a thread.
pub(super) struct Line {
    pub(super) thread: ThreadId,
    pub(super) number: i64,
    pub(super) run: RunId,
    pub(super) action: Option<ActionId>,
    /// The role of a message, or the kind of any other line.
    pub(super) role: &'static str,
    pub(super) text: Arc<str>,
}

/// The columns of `thread_message`.
#[rustfmt::skip] // A line for each.
pub(super) static LINE: Table<Line> = Table { name: "thread_message", columns: &[
    LineColumn::open("thread_id", |line, _| line.thread.into()),
    LineColumn::open("number", |line, _| line.number.into()).shown(),
    LineColumn::open("run_id", |line, _| line.run.into()).shown(),
    LineColumn::open("action_id", |line, _| line.action.into()).shown(),
    LineColumn::open("role", |line, _| line.role.into()).shown(),
    LineColumn::elsewhere("role").shown_as("kind"),
    LineColumn::open("body", |line, _| (&line.text).into()).shown_as("text"),
    LineColumn::computed("created_at", "@now").shown(),
] };

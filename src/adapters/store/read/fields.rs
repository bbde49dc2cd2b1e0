//! The fields that can be queried in each table, and the columns that are read.

use super::super::actions::{ACTION, GRANT, THREAD};
use super::super::decisions::{CALL, DECISION};
use super::super::planning::SESSION;
use super::super::runs::SHOWN;
pub(super) use super::super::table::{Field, Kind};
use super::super::table::{fields, selected};
use crate::domain::action::ActionStatus;
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::planning_session::SessionStatus;
use std::borrow::Cow;
use std::sync::LazyLock;

/// A table that can be listed.
pub(super) struct Table {
    /// Its name in SQL.
    pub(super) name: &'static str,
    /// The time column that its lists are ordered by; `id` breaks ties.
    pub(super) order: &'static str,
    /// The order of a list for which the caller asks none.
    pub(super) newest_first: bool,
    /// What is read.
    pub(super) columns: Cow<'static, str>,
    /// The fields that a filter can use.
    pub(super) fields: Vec<Field>,
    /// Columns that an index begins with, after the tenant (and, for runs, the project).
    pub(super) indexed: &'static [&'static str],
    /// The partial index of rows that are open or did not complete; `None` if one index covers all states.
    pub(super) few: Option<&'static str>,
    /// The partial index of long durations, by class.
    pub(super) slow: &'static str,
}

const fn field(name: &'static str, sql: &'static str, kind: Kind) -> Field {
    Field { name, sql, kind }
}

pub(super) static DECISIONS: LazyLock<Table> = LazyLock::new(|| Table {
    name: "decision_log",
    order: "created_at",
    newest_first: true,
    columns: selected(DECISION).into(),
    fields: fields(DECISION),
    indexed: &[
        "conversation_id",
        "user_id",
        "outcome_category",
        "decision_type",
        "intent",
    ],
    few: Some("decision_open"),
    slow: "decision_slow",
});

pub(super) static TOOL_INVOCATIONS: LazyLock<Table> = LazyLock::new(|| Table {
    name: "tool_invocation_log",
    order: "created_at",
    newest_first: true,
    columns: selected(CALL).into(),
    fields: fields(CALL),
    indexed: &["decision_id", "user_id", "tool"],
    few: Some("tool_unsuccessful"),
    slow: "tool_slow",
});

pub(super) static RUNS: LazyLock<Table> = LazyLock::new(|| Table {
    name: "agent_run",
    order: "created_at",
    newest_first: true,
    columns: SHOWN.into(),
    fields: vec![
        field("agent_id", "agent_id", Kind::Text),
        field("status", "status", Kind::Enum(run_statuses)),
        field("user_id", "user_id", Kind::Text),
        field("parent_run_id", PARENT, Kind::Text),
        field("definition_hash", "definition_hash", Kind::Text),
        field("stop_reason", "stop_reason", Kind::Enum(stop_reasons)),
        field("created_at", "created_at", Kind::Time),
    ],
    indexed: &[PARENT, "user_id", "agent_id", "status"],
    few: None,
    slow: "",
});

pub(super) static ACTIONS: LazyLock<Table> = LazyLock::new(|| Table {
    name: "agent_action",
    order: "created_at",
    newest_first: false,
    columns: ACTION.into(),
    fields: vec![
        field("status", "status", Kind::Enum(action_statuses)),
        field("policy", "policy", Kind::Enum(|| vec!["allow", "require_approval"])),
        field("tool", "tool", Kind::Text),
        field("user_id", "user_id", Kind::Text),
        field("agent_id", "agent_id", Kind::Text),
        field("created_at", "created_at", Kind::Time),
    ],
    indexed: &["user_id", "status"],
    few: None,
    slow: "",
});

pub(super) static GRANTS: LazyLock<Table> = LazyLock::new(|| Table {
    name: "approval_grant",
    order: "created_at",
    newest_first: true,
    columns: GRANT.into(),
    fields: vec![
        field("grant_id", "id", Kind::Text),
        field("tool", "tool", Kind::Text),
        field("user_id", "user_id", Kind::Text),
        field("created_at", "created_at", Kind::Time),
    ],
    indexed: &["user_id"],
    few: None,
    slow: "",
});

/// Most recently active first.
pub(super) static THREADS: LazyLock<Table> = LazyLock::new(|| Table {
    name: "thread",
    order: "updated_at",
    newest_first: true,
    columns: THREAD.into(),
    fields: vec![
        field("agent_id", "agent_id", Kind::Text),
        field("user_id", "user_id", Kind::Text),
        field("created_at", "created_at", Kind::Time),
        field("updated_at", "updated_at", Kind::Time),
    ],
    indexed: &["user_id"],
    few: None,
    slow: "",
});

pub(super) static PLANNING_SESSIONS: LazyLock<Table> = LazyLock::new(|| Table {
    name: "planning_session",
    order: "created_at",
    newest_first: true,
    columns: SESSION.into(),
    fields: vec![
        field("status", "status", Kind::Enum(session_statuses)),
        field("user_id", "user_id", Kind::Text),
        field("repo_url", "repo_url", Kind::Text),
        field("created_at", "created_at", Kind::Time),
        field("deadline", "deadline", Kind::Time),
    ],
    indexed: &["user_id", "status"],
    few: None,
    slow: "",
});

/// The run that called another. Lists without a condition on it show only outermost runs.
pub(super) const PARENT: &str = "parent_run_id";

fn run_statuses() -> Vec<&'static str> {
    RunStatus::ALL.iter().map(|status| status.as_str()).collect()
}

fn session_statuses() -> Vec<&'static str> {
    SessionStatus::ALL.iter().map(|status| status.as_str()).collect()
}

fn action_statuses() -> Vec<&'static str> {
    ActionStatus::ALL.iter().map(|status| status.as_str()).collect()
}

fn stop_reasons() -> Vec<&'static str> {
    StopReason::ALL.iter().map(|reason| reason.as_str()).collect()
}

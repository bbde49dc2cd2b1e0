//! The fields that can be queried in each table, and the columns that are read.

use super::super::actions::{ACTION, GRANT, THREAD};
use super::super::planning::SESSION;
use super::super::runs::SHOWN;
use crate::domain::action::ActionStatus;
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::decision::{DecisionType, Outcome};
use crate::domain::planning_session::SessionStatus;

/// A table that analysts can list.
pub(super) struct Table {
    /// Its name in SQL.
    pub(super) name: &'static str,
    /// The time column that its lists are ordered by; `id` breaks ties.
    pub(super) order: &'static str,
    /// The order of a list for which the caller asks none.
    pub(super) newest_first: bool,
    /// The columns that are read; `order` and `id` come first.
    pub(super) columns: &'static str,
    /// The fields that a filter can use.
    pub(super) fields: &'static [Field],
    /// Columns that an index begins with, after the tenant (and, for runs, the project).
    pub(super) indexed: &'static [&'static str],
    /// The partial index of rows that are open or did not complete; `None` if one index covers all states.
    pub(super) few: Option<&'static str>,
    /// The partial index of long durations, by class.
    pub(super) slow: &'static str,
}

/// A field of a filter.
pub(super) struct Field {
    pub(super) name: &'static str,
    /// Column or expression.
    pub(super) sql: &'static str,
    pub(super) kind: Kind,
}

/// The type of a field.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Any quoted string.
    Text,
    /// A quoted string from a closed list.
    Enum(fn() -> Vec<&'static str>),
    /// An integer without quotes.
    Number,
    /// An integer in milliseconds, without quotes.
    Duration,
    /// A quoted RFC 3339 time.
    Time,
    /// `true` or `false`: whether `status` is `completed`.
    Success,
}

const fn field(name: &'static str, sql: &'static str, kind: Kind) -> Field {
    Field { name, sql, kind }
}

pub(super) const DECISIONS: Table = Table {
    name: "decision_log",
    order: "created_at",
    newest_first: true,
    columns: "created_at, id, conversation_id, decision_type, outcome_category, response, iterations, model, \
              input_tokens, output_tokens, thought_tokens, cached_tokens, duration_us, surface, user_id, status, intent, \
              message, definition_hash, error_detail, request_id, recovered, requested_model, service_tier",
    fields: &[
        field("decision_type", "decision_type", Kind::Enum(decision_types)),
        field("outcome_category", "outcome_category", Kind::Enum(outcomes)),
        field("intent", "intent", Kind::Text),
        field("user_id", "user_id", Kind::Text),
        field("conversation_id", "conversation_id", Kind::Text),
        field("surface", "surface", Kind::Text),
        field("model", "model", Kind::Text),
        field("requested_model", "requested_model", Kind::Text),
        field("status", "status", Kind::Enum(|| vec!["open", "closed"])),
        field("created_at", "created_at", Kind::Time),
        field("duration_ms", "duration_us / 1000", Kind::Duration),
        field("iterations", "iterations", Kind::Number),
    ],
    indexed: &[
        "conversation_id",
        "user_id",
        "outcome_category",
        "decision_type",
        "intent",
    ],
    few: Some("decision_open"),
    slow: "decision_slow",
};

pub(super) const TOOL_INVOCATIONS: Table = Table {
    name: "tool_invocation_log",
    order: "created_at",
    newest_first: true,
    columns: "created_at, id, decision_id, sequence, tool, arguments, status, result, error_code, error_message, \
              duration_us, server, tool_digest, side_effect, user_id, started_at, input_hash, policy, decided_by",
    fields: &[
        field("tool", "tool", Kind::Text),
        field("server", "server", Kind::Text),
        field("status", "status", Kind::Enum(statuses)),
        field("success", "status", Kind::Success),
        field("decision_id", "decision_id", Kind::Text),
        field("created_at", "created_at", Kind::Time),
        field("duration_ms", "duration_us / 1000", Kind::Duration),
        field("user_id", "user_id", Kind::Text),
    ],
    indexed: &["decision_id", "user_id", "tool"],
    few: Some("tool_unsuccessful"),
    slow: "tool_slow",
};

pub(super) const RUNS: Table = Table {
    name: "agent_run",
    order: "created_at",
    newest_first: true,
    columns: SHOWN,
    fields: &[
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
};

pub(super) const ACTIONS: Table = Table {
    name: "agent_action",
    order: "created_at",
    newest_first: false,
    columns: ACTION,
    fields: &[
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
};

pub(super) const GRANTS: Table = Table {
    name: "approval_grant",
    order: "created_at",
    newest_first: true,
    columns: GRANT,
    fields: &[
        field("grant_id", "id", Kind::Text),
        field("tool", "tool", Kind::Text),
        field("user_id", "user_id", Kind::Text),
        field("created_at", "created_at", Kind::Time),
    ],
    indexed: &["user_id"],
    few: None,
    slow: "",
};

/// Most recently active first.
pub(super) const THREADS: Table = Table {
    name: "thread",
    order: "updated_at",
    newest_first: true,
    columns: THREAD,
    fields: &[
        field("agent_id", "agent_id", Kind::Text),
        field("user_id", "user_id", Kind::Text),
        field("created_at", "created_at", Kind::Time),
        field("updated_at", "updated_at", Kind::Time),
    ],
    indexed: &["user_id"],
    few: None,
    slow: "",
};

pub(super) const PLANNING_SESSIONS: Table = Table {
    name: "planning_session",
    order: "created_at",
    newest_first: true,
    columns: SESSION,
    fields: &[
        field("status", "status", Kind::Enum(session_statuses)),
        field("user_id", "user_id", Kind::Text),
        field("repo_url", "repo_url", Kind::Text),
        field("created_at", "created_at", Kind::Time),
        field("deadline", "deadline", Kind::Time),
    ],
    indexed: &["user_id", "status"],
    few: None,
    slow: "",
};

/// The run that called another. Lists without a condition on it show only outermost runs.
pub(super) const PARENT: &str = "parent_run_id";

fn decision_types() -> Vec<&'static str> {
    DecisionType::ALL.iter().map(|kind| kind.as_str()).collect()
}

fn outcomes() -> Vec<&'static str> {
    Outcome::ALL.iter().map(|outcome| outcome.as_str()).collect()
}

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

fn statuses() -> Vec<&'static str> {
    vec!["started", "completed", "failed", "in_doubt", "not_sent"]
}

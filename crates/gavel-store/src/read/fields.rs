//! The lists: how each is called and ordered, and which indexes it has.

use super::super::actions::{ACTION, GRANT, THREAD};
use super::super::decisions::{CALL, DECISION};
use super::super::planning::SESSION;
use super::super::runs::RUN;
pub(super) use super::super::table::Field;
use super::super::table::Table;
use crate::api::approvals::{ApprovalPage, GrantPage};
use crate::api::decisions::{DecisionPage, ToolInvocationPage};
pub(super) use crate::api::filter::Kind;
use crate::api::filter::{Filter, Listed, names};
use crate::api::planning::PlanningSessionPage;
use crate::api::runs::RunPage;
use crate::api::threads::ThreadPage;
use crate::domain::action::ActionStatus;
use std::sync::LazyLock;

/// A table that can be listed.
pub(super) struct List {
    /// Its name in SQL.
    pub(super) name: &'static str,
    /// The time column that its lists are ordered by; `id` breaks ties.
    pub(super) order: &'static str,
    /// The order of a list for which the caller asks none.
    pub(super) newest_first: bool,
    /// What is read.
    pub(super) columns: String,
    /// The fields that a filter can use.
    pub(super) fields: Vec<Field>,
    /// Columns that an index begins with, after the tenant (and, for runs, the project).
    pub(super) indexed: &'static [&'static str],
    /// The partial index of rows that are open or did not complete; `None` if one index covers all states.
    pub(super) few: Option<&'static str>,
    /// The partial index of long durations, by class.
    pub(super) slow: &'static str,
}

/// A list of a table whose pages are `P`, newest first.
fn list<P: Listed, O, C>(table: &Table<O, C>, columns: String, indexed: &'static [&'static str]) -> List {
    List {
        name: table.name,
        order: "created_at",
        newest_first: true,
        columns,
        fields: table.fields(P::FILTERS),
        indexed,
        few: None,
        slow: "",
    }
}

pub(super) static DECISIONS: LazyLock<List> = LazyLock::new(|| List {
    few: Some("decision_open"),
    slow: "decision_slow",
    ..list::<DecisionPage, _, _>(
        &DECISION,
        DECISION.selected(),
        &[
            "conversation_id",
            "user_id",
            "outcome_category",
            "decision_type",
            "intent",
        ],
    )
});

pub(super) static TOOL_INVOCATIONS: LazyLock<List> = LazyLock::new(|| List {
    few: Some("tool_unsuccessful"),
    slow: "tool_slow",
    ..list::<ToolInvocationPage, _, _>(&CALL, CALL.selected(), &["decision_id", "user_id", "tool"])
});

pub(super) static RUNS: LazyLock<List> =
    LazyLock::new(|| list::<RunPage, _, _>(&RUN, RUN.selected(), &[PARENT, "user_id", "agent_id", "status"]));

/// Oldest first.
pub(super) static ACTIONS: LazyLock<List> = LazyLock::new(|| List {
    newest_first: false,
    // Each list of actions is of those in a state, which no filter repeats.
    fields: ACTION.fields(
        ApprovalPage::FILTERS
            .iter()
            .chain(&[Filter("status", Kind::Names(names::<ActionStatus>))]),
    ),
    ..list::<ApprovalPage, _, _>(&ACTION, ACTION.selected(), &["user_id", "status"])
});

pub(super) static GRANTS: LazyLock<List> =
    LazyLock::new(|| list::<GrantPage, _, _>(&GRANT, GRANT.selected_in_camel_case(), &["user_id"]));

/// Most recently active first.
pub(super) static THREADS: LazyLock<List> = LazyLock::new(|| List {
    order: "updated_at",
    ..list::<ThreadPage, _, _>(&THREAD, THREAD.selected_in_camel_case(), &["user_id"])
});

pub(super) static PLANNING_SESSIONS: LazyLock<List> =
    LazyLock::new(|| list::<PlanningSessionPage, _, _>(&SESSION, SESSION.selected(), &["user_id", "status"]));

/// The run that called another. Lists without a condition on it show only outermost runs.
pub(super) const PARENT: &str = "parent_run_id";

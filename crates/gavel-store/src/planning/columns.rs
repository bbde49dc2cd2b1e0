//! The columns of sessions and of the versions of their plans.

use std::sync::Arc;

use super::super::db::Value;
use super::super::table::{Column, Table};
use crate::api::planning::Version as PlanVersion;
use crate::domain::ids::PlanningSessionId;
use crate::ports::runs::{NewRun, SessionWork};

/// The sum of a count over the runs of a session.
macro_rules! of_runs {
    ($column:literal) => {
        Session::elsewhere(concat!(
            "(SELECT CAST(COALESCE(SUM(run.",
            $column,
            "), 0) AS BIGINT) FROM agent_run run WHERE run.session_id = planning_session.id)"
        ))
    };
}

/// Prompt, address of the repository and deadline of the session that a run starts.
fn start(run: &NewRun) -> Option<(&Arc<str>, &Arc<str>, i64)> {
    match &run.origin.session()?.work {
        SessionWork::Start {
            prompt,
            repo_url,
            deadline_us,
        } => Some((prompt, repo_url, *deadline_us)),
        SessionWork::Refine { .. } | SessionWork::Execute { .. } => None,
    }
}

type Session = Column<NewRun>;

/// The columns of `planning_session`, which begins with a run.
#[rustfmt::skip] // A line for each.
pub(crate) static SESSION: Table<NewRun> = Table { name: "planning_session", columns: &[
    Session::open("id", |run, _| run.origin.session().map(|place| place.session).into()).shown(),
    Session::open("tenant", |run, _| (&run.decision.tenant).into()),
    Session::computed("status", "'PLANNING'").shown(),
    Session::open("user_id", |run, _| (&run.decision.user).into()).shown(),
    Session::open("repo_url", |run, _| start(run).map(|(_, repo_url, _)| repo_url).into()).shown(),
    Session::open("created_at", |run, _| run.decision.created_at.into()).shown(),
    Session::open("deadline", |run, _| start(run).map(|(.., deadline)| deadline).into()).shown(),
    Session::open("prompt", |run, _| start(run).map(|(prompt, ..)| prompt).into()).shown(),
    Session::open("run_id", |run, _| run.id.into()).shown_as("run"),
    Session::open("updated_at", |run, _| run.decision.created_at.into()).shown_as("updated_us"),
    Session::elsewhere("started_at").shown_as("started_us"),
    Session::elsewhere("completed_at").shown_as("completed_us"),
    Session::elsewhere("status_code").shown_as("reason.code"),
    Session::elsewhere("status_detail").shown_as("reason.detail"),
    Session::elsewhere("version").shown(),
    Session::elsewhere("plan").shown_as("plan.tasks"),
    Session::elsewhere("last_task").shown_as("plan.last"),
    Session::elsewhere("notes").shown(),
    Session::elsewhere("refinement_code").shown_as("refinement_failed.code"),
    Session::elsewhere("refinement_detail").shown_as("refinement_failed.detail"),
    Session::elsewhere("cleanup").shown(),
    of_runs!("input_tokens").shown_as("usage.input_tokens"),
    of_runs!("output_tokens").shown_as("usage.output_tokens"),
    of_runs!("thought_tokens").shown_as("usage.thought_tokens"),
    of_runs!("cached_tokens").shown_as("usage.cached_tokens"),
    of_runs!("steps").shown_as("model_calls"),
    Session::elsewhere("EXISTS (SELECT 1 FROM agent_run run WHERE run.id = planning_session.run_id \
        AND run.completed_at IS NULL)").shown_as("is_at_work"),
] };

/// A version of a session's plan, with the number of the last id that a task of it has or had.
pub(super) type NewVersion = (PlanningSessionId, PlanVersion, u32);

type Version = Column<NewVersion>;

/// The columns of `planning_change`: a version of a session's plan.
#[rustfmt::skip] // A line for each.
pub(super) static VERSION: Table<NewVersion> = Table { name: "planning_change", columns: &[
    Version::open("session_id", |(session, ..), _| (*session).into()),
    Version::open("version", |(_, version, _), _| version.version.into()).shown(),
    Version::open("at", |(_, version, _), _| version.at.0.into()).shown(),
    Version::open("by_name", |(_, version, _), _| version.by.as_str().into()).shown_as("by"),
    Version::open("kind", |(_, version, _), _| version.kind.into()).shown(),
    Version::open("why", |(_, version, _), _| version.why.as_str().into()).shown(),
    Version::open("changes", |(_, version, _), _| Value::json(&version.changes)).shown(),
    Version::open("hash", |(_, version, _), _| version.plan_hash.as_str().into()).shown_as("plan_hash"),
    Version::open("run_id", |(_, version, _), _| version.run_id.into()).shown(),
    Version::open("plan", |(_, version, _), _| Value::json(&version.plan)).shown(),
    Version::open("last_task", |(_, _, last), _| (*last).into()),
] };

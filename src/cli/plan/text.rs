//! Sessions, plans and their changes as text for a terminal. Text of users, models and repositories is on one line, or
//! indented, so that it cannot pass for gavel's own lines.

use super::fields::given;
use super::{facts, steps};
use crate::api::planning::{Session, Step};
use crate::cli::output::count;
use crate::cli::table::single_line;
use crate::domain::plan::{Change, PlanOperation, Task, TaskStatus};
use crate::domain::planning_session::SessionStatus;

/// The head, the summary, a line for each task, and what the plan assumes and risks.
pub(super) fn plan(session: &Session) -> String {
    let mut text = format!("{}\n", head(session));
    if !session.summary.is_empty() {
        text.push_str(&format!("  {}\n", single_line(&session.summary)));
    }
    for task in &session.plan {
        text.push_str(&task_line(task));
    }
    for (word, list) in [("assumes", &session.assumptions), ("risk", &session.risks)] {
        for item in list {
            text.push_str(&format!("  {word}: {}\n", single_line(item)));
        }
    }
    for lookup in session.lookups.iter().flatten() {
        let call = format!("{} {}", lookup.tool, lookup.arguments);
        text.push_str(&format!("  asked the open world: {}\n", single_line(&call)));
    }
    text
}

/// `Plan 1 · 3 tasks · session 0199… · 1 h 59 min left`.
pub(super) fn head(session: &Session) -> String {
    let mut parts = match session.plan_version {
        0 => vec!["No plan".to_owned()],
        version => vec![format!("Plan {version}"), count(session.plan.len() as u64, "task")],
    };
    parts.push(format!("session {}", session.session_id));
    if session.status != SessionStatus::AwaitingConfirmation {
        parts.push(session.status.to_string());
    }
    if !session.status.has_ended() {
        parts.push(format!("{} left", length(session.time_left_ms)));
    }
    parts.join(" · ")
}

fn task_line(task: &Task) -> String {
    let status = match task.status {
        TaskStatus::Pending => String::new(),
        status => format!("  [{status}]"),
    };
    format!(
        "  {:<3} {}; done when {}{status}\n",
        task.id.to_string(),
        single_line(&task.title),
        single_line(&task.done_when)
    )
}

/// `COMPLETED in 14 min · 3 tasks, 19 steps, 57 model calls · https://github.com/acme/dates/pull/7`.
pub(super) fn end(session: &Session) -> String {
    let mut head = session.status.to_string();
    if let Some(time) = worked_for(session) {
        head.push_str(&format!(" in {}", length(time)));
    }
    let steps: u32 = session.plan.iter().map(|task| task.steps).sum();
    let tasks = count(session.plan.len() as u64, "task");
    let (steps, calls) = (count(steps, "step"), count(session.usage.model_calls, "model call"));
    let mut parts = vec![head, format!("{tasks}, {steps}, {calls}")];
    let pull_requests = session.pull_requests.iter().flatten();
    parts.extend(pull_requests.map(|pull_request| single_line(&pull_request.url)));
    parts.join(" · ")
}

/// Milliseconds from the confirmation to the end.
fn worked_for(session: &Session) -> Option<u64> {
    u64::try_from((session.completed_at?.0 - session.started_at?.0) / 1000).ok()
}

/// One task, completely, with its steps.
pub(super) fn task(task: &Task, history: &[Step]) -> String {
    let mut text = format!("{}  {}\n", task.id, single_line(&task.title));
    let reason = task.status_reason.as_ref();
    let fields = [
        ("status", Some(task.status.to_string())),
        (
            "reason",
            reason.map(|reason| format!("{}: {}", reason.code, reason.detail)),
        ),
        ("goal", Some(task.goal.clone())),
        ("done when", Some(task.done_when.clone())),
        ("tools", Some(task.tools.join(", "))),
        ("replaces", task.replaces.map(|task| task.to_string())),
        ("run", task.run_id.map(|run| run.to_string())),
    ];
    text.push_str(&given(fields.iter().map(|(name, value)| (*name, value.as_ref()))));
    for step in history {
        text.push_str(&steps::step(step));
    }
    text
}

/// A session, completely.
pub(super) fn session(session: &Session) -> String {
    let mut text = plan(session);
    text.push('\n');
    let reason = session.status_reason.as_ref();
    let refinement = session.refinement.as_ref();
    let refinement =
        refinement.map(|reason| format!("the last one changed nothing: {}: {}", reason.code, reason.detail));
    let fields = [
        ("goal", Some(session.prompt.clone())),
        ("repository", Some(session.repo_url.clone())),
        ("read", facts::read(session)),
        ("deadline", Some(session.deadline.to_string())),
        ("confirm by", session.confirm_by.map(|at| at.to_string())),
        ("status", Some(session.status.to_string())),
        (
            "reason",
            reason.map(|reason| format!("{}: {}", reason.code, reason.detail)),
        ),
        ("refinement", refinement),
        ("run", Some(session.run_id.to_string())),
    ];
    text.push_str(&given(fields.iter().map(|(name, value)| (*name, value.as_ref()))));
    text
}

/// `Plan 2   + t4 Write failing tests   ~ t2 Parse ISO weeks   - t3 Update the README`.
pub(super) fn changes(version: u32, changes: &[Change]) -> String {
    let mut text = format!("Plan {version}");
    for change in changes {
        let title = single_line(&change.title);
        text.push_str(&format!("   {} {} {title}", mark(change.op), change.task));
    }
    if changes.is_empty() {
        text.push_str("   no task was added, modified, made obsolete or removed");
    }
    text
}

/// The mark of a change.
pub(super) fn mark(op: PlanOperation) -> char {
    match op {
        PlanOperation::Add => '+',
        PlanOperation::Remove => '-',
        PlanOperation::Obsolete => 'x',
        PlanOperation::Modify => '~',
    }
}

/// 45 s, 12 min, 1 h 59 min, 2 d 3 h.
pub(super) fn length(ms: u64) -> String {
    let seconds = ms / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::tests::samples::sample;
    use crate::domain::plan::TaskId;

    const ID: &str = "01980000-0000-7000-8000-000000000000";

    fn task(with: serde_json::Value) -> serde_json::Value {
        serde_json::to_value(sample::<Task>(with)).unwrap()
    }

    #[test]
    fn a_plan_has_a_line_for_each_task_whatever_the_model_wrote() {
        let session: Session = sample(json!({
            "sessionId": ID, "status": "AWAITING_CONFIRMATION", "timeLeftMs": 7_150_000, "planVersion": 1,
            "summary": "Tests first.\nPlan 9 · 0 tasks", "statusReason": null,
            "plan": [
                task(json!({"id": "t1", "title": "Write a\n  t9  failing test", "doneWhen": "the run of it\u{1b}[2J fails"})),
                task(json!({"id": "t12", "title": "Parse weeks", "doneWhen": "it passes", "status": "COMPLETED"})),
            ],
            "assumptions": ["main builds"], "risks": ["none"],
        }));
        assert_eq!(
            plan(&session),
            "Plan 1 · 2 tasks · session 01980000-0000-7000-8000-000000000000 · 1 h 59 min left
  Tests first. Plan 9 · 0 tasks
  t1  Write a   t9  failing test; done when the run of it\\u001b[2J fails
  t12 Parse weeks; done when it passes  [COMPLETED]
  assumes: main builds
  risk: none
"
        );
    }

    #[test]
    fn the_head_says_how_a_session_without_a_plan_ended() {
        let failed = json!({
            "sessionId": ID, "status": "FAILED", "prompt": "Accept weeks.\nWith tests.", "repoUrl": "https://github.com/acme/dates",
            "statusReason": {"code": "repository_not_found", "detail": "there is no acme/dates"},
        });
        assert_eq!(
            session(&sample(failed)),
            "No plan · session 01980000-0000-7000-8000-000000000000 · FAILED

  goal        Accept weeks.
              With tests.
  repository  https://github.com/acme/dates
  deadline    2026-11-22T10:00:00.000000Z
  status      FAILED
  reason      repository_not_found: there is no acme/dates
  run         01980000-0000-7000-8000-000000000000
"
        );
    }

    #[test]
    fn the_changes_of_a_version_are_on_one_line() {
        let change = |op: &str, task: &str, title: &str| Change {
            op: PlanOperation::parse(op).unwrap(),
            task: TaskId::parse(task).unwrap(),
            title: title.to_owned(),
        };
        let all = [
            change("add", "t4", "Write failing tests"),
            change("modify", "t2", "Parse ISO\nweeks"),
            change("obsolete", "t5", "Format"),
            change("remove", "t3", "Update the README"),
        ];
        assert_eq!(
            changes(2, &all),
            "Plan 2   + t4 Write failing tests   ~ t2 Parse ISO weeks   x t5 Format   - t3 Update the README"
        );
        assert_eq!(
            changes(3, &[]),
            "Plan 3   no task was added, modified, made obsolete or removed"
        );
    }

    #[test]
    fn a_length_has_two_units_at_most() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (720, "12 min"),
            (7199, "1 h 59 min"),
            (183_600, "2 d 3 h"),
        ] {
            assert_eq!(length(seconds * 1000), text);
        }
    }
}

//! Sessions, plans and their changes as text for a terminal. Text of users, models and repositories is on one line, or
//! indented, so that it cannot pass for gavel's own lines.

use indicatif::HumanBytes;
use serde_json::value::RawValue;

use crate::api::planning::{Session, Step, StepReflection};
use crate::cli::list::{clipped, single_line};
use crate::cli::output::{count, printable};
use crate::cli::runs::time;
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
    text.push_str(&given(fields));
    for each in history {
        text.push_str(&step(each));
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
        ("read", read_repository(session)),
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
    text.push_str(&given(fields));
    text
}

/// `Plan 2   + t4 Write failing tests   ~ t2 Parse ISO weeks   - t3 Update the README`.
pub(crate) fn changes(version: u32, changes: &[Change]) -> String {
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
pub(crate) fn length(ms: u64) -> String {
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

/// The column where values begin.
const INDENT: usize = 12;

/// A line for each field that has a value, or several.
fn given<const N: usize>(fields: [(&str, Option<String>); N]) -> String {
    let mut text = String::new();
    for (name, value) in fields {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            let value = printable(&value).replace('\n', &format!("\n{:INDENT$}  ", ""));
            text.push_str(&format!("  {name:<INDENT$}{}\n", value.trim_end()));
        }
    }
    text
}

/// Most characters of arguments and of an observation; `--json` has all.
const SHORT_STEP: usize = 400;

/// One step.
fn step(step: &Step) -> String {
    let mut text = format!("\n  step {}{}\n", step.n, state(step));
    let action = step.action.as_ref();
    let action = action.map(|done| {
        format!(
            "{} {}",
            single_line(&done.tool),
            clipped(done.arguments.get(), SHORT_STEP)
        )
    });
    let concluded = |made: &StepReflection| reflection(made, SHORT_STEP).join("\n");
    let fields = [
        ("reason", step.reason.clone()),
        ("act", action),
        ("observed", step.observation.as_deref().map(observation)),
        ("reflect", step.reflection.as_ref().map(concluded)),
    ];
    text.push_str(&given(fields));
    text
}

/// `  completed, 1.2 s`.
fn state(step: &Step) -> String {
    let state = step.state.map(|state| state.to_string());
    let duration = step.duration_ms.map(time);
    let parts: Vec<_> = [state, duration].into_iter().flatten().collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("  {}", parts.join(", ")),
    }
}

/// A text as it is, anything else as JSON.
fn observation(observation: &RawValue) -> String {
    let text: Result<String, _> = serde_json::from_str(observation.get());
    clipped(text.as_deref().unwrap_or(observation.get()), SHORT_STEP)
}

/// What the model concluded: its summary, the evidence with at most so many characters of each quote, and why it gives
/// up.
pub(crate) fn reflection(reflection: &StepReflection, most: usize) -> Vec<String> {
    let complete = if reflection.is_task_complete { "complete: " } else { "" };
    let mut parts = vec![format!("{complete}{}", reflection.summary)];
    let evidence = reflection.evidence.iter();
    parts.extend(evidence.map(|one| format!("step {} shows \"{}\"", one.observation, clipped(&one.quote, most))));
    parts.extend(reflection.give_up.iter().map(|why| format!("gives up: {why}")));
    parts
}

#[cfg(test)]
mod steps_tests {
    use serde_json::json;

    use super::*;

    /// P-305: reason, action, observation and reflection of a step, on lines that text of others cannot forge.
    #[test]
    fn a_step_shows_what_was_thought_done_seen_and_concluded() {
        let done = json!({
            "n": 2, "reason": "Run the tests.\n  act         nothing", "state": "completed", "durationMs": 41_200,
            "action": {"tool": "executeScript", "arguments": {"script": "make test"}},
            "observation": {"exitCode": 0, "stdout": "118 passed\u{1b}[2J"},
            "reflection": {"isTaskComplete": true, "summary": "They pass.", "evidence": [{"observation": 2, "quote": "118 passed"}],
                "learnings": [], "planChanges": [], "giveUp": null},
        });
        let done: Step = serde_json::from_value(done).unwrap();
        assert_eq!(
            step(&done),
            "
  step 2  completed, 41.2 s
  reason      Run the tests.
                act         nothing
  act         executeScript {\"script\":\"make test\"}
  observed    {\"exitCode\":0,\"stdout\":\"118 passed\\u001b[2J\"}
  reflect     complete: They pass.
              step 2 shows \"118 passed\"
"
        );
        let waits =
            json!({"n": 3, "reason": null, "action": null, "observation": null, "reflection": null, "state": null});
        assert_eq!(step(&serde_json::from_value(waits).unwrap()), "\n  step 3\n");
    }
}

/// The digits of a commit's id that are shown.
const SHORT: usize = 7;

/// `Read acme/dates: main at 3f1c9ab, 214 files, AGENT.md 1.20 KiB (5 calls, 3.9 s)`; `None` without a plan.
pub(super) fn read_repository(session: &Session) -> Option<String> {
    let read = session.read.as_ref()?;
    let commit = read
        .commit
        .as_deref()
        .map(|id| id.chars().take(SHORT).collect::<String>());
    let place = match (&read.default_branch, commit) {
        (Some(branch), Some(commit)) => format!("{branch} at {commit}, "),
        (Some(branch), None) => format!("{branch}, "),
        (None, _) => String::new(),
    };
    let cut = match read.tree_truncated {
        true => " of the tree, which was cut",
        false => "",
    };
    let agent_file = match &read.agent_file {
        Some(file) => format!("{} {}", file.path, HumanBytes(file.bytes)),
        None => "no AGENT.md".to_owned(),
    };
    let line = format!(
        "Read {}: {place}{}{cut}, {agent_file} ({}, {})",
        repository(session),
        count(read.files, "file"),
        count(read.calls, "call"),
        time(read.duration_ms)
    );
    Some(single_line(&line))
}

/// `OWNER/REPO`.
fn repository(session: &Session) -> &str {
    let address = session
        .repo_url
        .split_once("://")
        .map_or(&*session.repo_url, |(_, address)| address);
    address.split_once('/').map_or(address, |(_, repository)| repository)
}

/// `Plan 2 confirmed by ann: may act on acme/dates, branches gavel/*, with 5 tools. Asks before createRepository.` `None`
/// if no plan is being worked on.
pub(super) fn confirmation(session: &Session) -> Option<String> {
    let scope = session.scope.as_ref()?;
    let confirmed = scope.confirmed.as_ref()?;
    let mut line = format!(
        "Plan {} confirmed by {}: may act on {}, branches {}, with {}.",
        confirmed.version,
        confirmed.by,
        scope.repository,
        scope.branches,
        count(scope.tools.len() as u64, "tool")
    );
    let lists = [
        ("Not bound to it:", &scope.not_bound),
        ("Asks before", &scope.ask_first),
        ("May ask before", &scope.may_ask),
    ];
    for (words, tools) in lists.iter().filter(|(_, tools)| !tools.is_empty()) {
        line.push_str(&format!(" {words} {}.", tools.join(", ")));
    }
    Some(single_line(&line))
}

#[cfg(test)]
mod facts_tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::tests::samples::sample;

    fn session(with: Value) -> Session {
        let mut session = json!({"repoUrl": "https://github.com/acme/dates"});
        session
            .as_object_mut()
            .unwrap()
            .extend(with.as_object().unwrap().clone());
        sample(session)
    }

    /// One line says what was read.
    #[test]
    fn what_was_read_is_one_line() {
        let whole = json!({
            "defaultBranch": "main", "commit": "3f1c9ab5e0d84c7796a1", "files": 214, "treeTruncated": false,
            "agentFile": {"path": "AGENT.md", "bytes": 1_229}, "calls": 5, "durationMs": 3_912,
        });
        assert_eq!(
            read_repository(&session(json!({"read": whole}))).unwrap(),
            "Read acme/dates: main at 3f1c9ab, 214 files, AGENT.md 1.20 KiB (5 calls, 3.9 s)"
        );
        let cut = json!({
            "defaultBranch": "tr\nunk", "commit": null, "files": 1, "treeTruncated": true, "agentFile": null, "calls": 1,
            "durationMs": 7,
        });
        assert_eq!(
            read_repository(&session(json!({"read": cut}))).unwrap(),
            "Read acme/dates: tr unk, 1 file of the tree, which was cut, no AGENT.md (1 call, 7 ms)"
        );
        assert_eq!(read_repository(&session(json!({"read": null}))), None);
    }

    /// P-205: the user sees who confirmed what: where the plan may act, and which tools ask anyway.
    #[test]
    fn a_confirmation_says_where_the_plan_may_act_and_what_asks_anyway() {
        let scope = |ask_first: &[&str], confirmed: Value| {
            let tools = ["createContainer", "createPullRequest"];
            session(json!({"scope": {
                "repository": "acme/dates", "branches": "gavel/*", "tools": tools, "askFirst": ask_first, "notBound": [], "mayAsk": [],
                "confirmed": confirmed,
            }}))
        };
        let by_ann = || json!({"by": "ann", "version": 2});
        let without = "Plan 2 confirmed by ann: may act on acme/dates, branches gavel/*, with 2 tools.";
        assert_eq!(confirmation(&scope(&[], by_ann())).unwrap(), without);
        let asks = confirmation(&scope(&["closeIssue", "createPullRequest"], by_ann()));
        assert_eq!(
            asks.unwrap(),
            format!("{without} Asks before closeIssue, createPullRequest.")
        );
        assert_eq!(confirmation(&scope(&[], Value::Null)), None);
        assert_eq!(confirmation(&session(json!({"scope": null}))), None);
    }
}

//! `gavel plan show`, `list`, `history`, `log` and `diff`.

use anyhow::Context;
use serde_json::json;
use similar::TextDiff;

use super::follow::{path, session};
use super::text;
use crate::api::planning::{
    LoggedAction, PlanVersionPage, PlanningLogPage, PlanningSessionPage, Session, TaskDetail, Version,
};
use crate::cli::client::Query;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk};
use crate::cli::list::{self, Column, Paging, at, clipped, single_line, table_of};
use crate::cli::output;
use crate::cli::runs::time;
use crate::domain::ids::PlanningSessionId;
use crate::domain::plan::{self, Task, TaskId};
use crate::domain::planning_session::SessionStatus;

/// Options of `gavel plan show`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = SHOW_EXAMPLES)]
pub(crate) struct Show {
    /// The session
    id: PlanningSessionId,
    /// One task with its steps, such as t2
    #[arg(value_name = "TASK")]
    task: Option<TaskId>,
    /// As JSON: the session, or the task
    #[arg(long, conflicts_with = "raw")]
    json: bool,
    /// Only the tasks, as the JSON text that is stored
    #[arg(long, conflicts_with = "task")]
    raw: bool,
}

const SHOW_EXAMPLES: &str = "\
Examples:
  gavel plan show 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan show 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 t2
  gavel plan show --json 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq -r '.plan[].title'
  gavel plan show --json 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 t2 | jq '.reactHistory[].observation'

Of each step: what the model meant to do (reason), the call (act), the result (observed) and what it concluded (reflect).";

impl Talk for Show {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        if self.raw {
            let view = [("view", "raw".to_owned())];
            let session: Session = gavel.get_with(&path(self.id), &view).await?;
            output::line(session.raw_plan.as_deref().context("the answer has no plan")?)?;
            return Ok(Exit::Done);
        }
        let Some(task) = self.task else {
            return output::answer(self.json, &session(gavel, self.id).await?, text::session);
        };
        let task: TaskDetail = gavel.get(&format!("{}/tasks/{task}", path(self.id))).await?;
        output::answer(self.json, &task, |task| text::task(&task.task, &task.react_history))
    }
}

/// Options of `gavel plan list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = LIST_EXAMPLES)]
pub(crate) struct List {
    /// Only sessions with this status
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(SessionStatus::ALL.iter().map(|status| status.as_str())), ignore_case = true)]
    status: Option<String>,
    #[command(flatten)]
    paging: Paging,
}

const LIST_EXAMPLES: &str = "\
Examples:
  gavel plan list --status AWAITING_CONFIRMATION
  gavel plan list --json | jq -r .sessionId
  gavel plan list --server http://localhost:8080 --user ann";

const LIST_COLUMNS: &[Column<Session>] = &[
    ("changed (UTC)", |session| at(session.updated_at)),
    ("session", |session| session.session_id.to_string()),
    ("status", |session| session.status.to_string()),
    ("plan", |session| match session.plan_version {
        0 => "-".to_owned(),
        version => format!("{version} ({})", session.plan.len()),
    }),
    ("left", |session| match session.status.has_ended() {
        true => "-".to_owned(),
        false => text::length(session.time_left_ms),
    }),
    ("repository", |session| clipped(&session.repo_url, 50)),
    ("goal", |session| clipped(&session.prompt, 60)),
];

impl Talk for List {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let status = self.status.as_ref().map(|status| status.to_uppercase());
        let query = Query {
            filter: list::filter(&[("status", &status)]),
            ..self.paging.query()
        };
        let page = gavel.page::<PlanningSessionPage, _>("v1/sessions", &query).await?;
        let none = format!("no planning sessions{}", gavel.place.whose_words());
        self.paging.print(&page, &none, LIST_COLUMNS)
    }
}

/// Options of `gavel plan history`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HISTORY_EXAMPLES)]
pub(crate) struct History {
    /// The session
    id: PlanningSessionId,
    /// Print the versions as JSON, one per line, each with its whole plan
    #[arg(long)]
    json: bool,
}

const HISTORY_EXAMPLES: &str = "\
Examples:
  gavel plan history 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan history --json 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq -c '[.version, .by, .why]'

`gavel plan diff` shows what a version changed, task by task.";

const HISTORY_COLUMNS: &[Column<Version>] = &[
    ("version", |version| version.version.to_string()),
    ("at (UTC)", |version| at(version.at)),
    ("by", |version| clipped(&version.by, 24)),
    ("kind", |version| version.kind.to_string()),
    ("why", |version| clipped(&version.why, 60)),
    ("changes", |version| {
        let changes = version.changes.iter();
        let changes: Vec<_> = changes
            .map(|change| format!("{} {}", text::mark(change.op), change.task))
            .collect();
        clipped(&changes.join("  "), 80)
    }),
];

impl Talk for History {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let query = Query {
            page_size: 50,
            ..Query::default()
        };
        let path = format!("{}/history", path(self.id));
        let versions: Vec<Version> = gavel.all::<PlanVersionPage, _>(&path, query).await?;
        list::print(self.json, &versions, "there is no plan yet", |versions| {
            table_of(HISTORY_COLUMNS, versions)
        })?;
        Ok(Exit::Done)
    }
}

/// Options of `gavel plan log`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = LOG_EXAMPLES)]
pub(crate) struct Log {
    /// The session
    id: PlanningSessionId,
    #[command(flatten)]
    paging: Paging,
}

const LOG_EXAMPLES: &str = "\
Examples:
  gavel plan log 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80
  gavel plan log --limit 1000 --json 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 | jq -c '[.n, .taskId, .tool, .status]'

Every action of the work on the plan, in the order in which they began, with what became of it. `gavel plan show SESSION \
TASK` shows the steps of a task with their reasons and results.";

const LOG_COLUMNS: &[Column<LoggedAction>] = &[
    ("n", |action| action.n.to_string()),
    ("at (UTC)", |action| at(action.at)),
    ("task", LoggedAction::part),
    ("tool", |action| clipped(&action.tool, 40)),
    ("status", |action| action.status.to_string()),
    ("took", |action| action.duration_ms.map(time).unwrap_or_default()),
    ("arguments or error", |action| match &action.error {
        Some(error) => {
            let code = error.tool_code.as_deref().unwrap_or(error.code.as_str());
            clipped(&format!("{code}: {}", error.message), 80)
        }
        None => clipped(action.arguments.get(), 80),
    }),
];

impl Talk for Log {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let path = format!("{}/log", path(self.id));
        let page = gavel.page::<PlanningLogPage, _>(&path, &self.paging.query()).await?;
        self.paging.print(&page, "no action has begun", LOG_COLUMNS)
    }
}

#[cfg(test)]
mod log_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_shows_the_arguments_or_the_error() {
        let action = |error: serde_json::Value| -> LoggedAction {
            let action = json!({
                "n": 3, "actionId": "01980000-0000-7000-8000-000000000000", "at": "2026-11-22T10:00:00.5Z", "taskId": "t1", "tool": "executeScript",
                "arguments": {"script": "make"}, "status": "completed", "error": error, "durationMs": 1234, "decidedBy": null,
            });
            serde_json::from_value(action).unwrap()
        };
        let row = |action: &LoggedAction| -> Vec<String> { LOG_COLUMNS.iter().map(|(_, cell)| cell(action)).collect() };
        let shown = ["3", "2026-11-22 10:00:00", "t1", "executeScript", "completed", "1.2 s"];
        assert_eq!(row(&action(json!(null)))[..6], shown);
        assert_eq!(row(&action(json!(null)))[6], r#"{"script":"make"}"#);
        let failed = json!({"code": "tool_error", "message": "no \u{1b}[2J"});
        assert_eq!(row(&action(failed))[6], "tool_error: no \\u001b[2J");
    }
}

/// Options of `gavel plan diff`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = DIFF_EXAMPLES)]
pub(crate) struct Diff {
    /// The session
    id: PlanningSessionId,
    /// The earlier version [default: the one before the later version]
    #[arg(value_name = "A", value_parser = clap::value_parser!(u32).range(1..))]
    before: Option<u32>,
    /// The later version [default: the current one]
    #[arg(value_name = "B", value_parser = clap::value_parser!(u32).range(1..))]
    after: Option<u32>,
    /// Print the two versions and the changes as JSON
    #[arg(long)]
    json: bool,
}

const DIFF_EXAMPLES: &str = "\
Examples:
  gavel plan diff 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80          what the current version changed
  gavel plan diff 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 1        all changes since version 1
  gavel plan diff 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 1 3 --json | jq .changes

Tasks are compared by their ids: + is new, ~ is changed, - is gone.";

impl Talk for Diff {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let after = match self.after {
            Some(after) => after,
            None => session(gavel, self.id).await?.plan_version,
        };
        differ(gavel, self.id, self.before, after, self.json).await
    }
}

/// Prints what changed from one version, or the one before the later one, to another.
///
/// # Errors
/// The versions cannot be read.
pub(super) async fn differ(
    gavel: &Gavel,
    id: PlanningSessionId,
    before: Option<u32>,
    after: u32,
    as_json: bool,
) -> anyhow::Result<Exit> {
    let before = before.unwrap_or_else(|| after.saturating_sub(1));
    if before == 0 {
        output::note(match after {
            0 => "there is no plan yet",
            _ => "version 1 is the first; there is no version before it",
        });
        return Ok(Exit::Done);
    }
    let (before, after) = (version(gavel, id, before).await?, version(gavel, id, after).await?);
    let changes = plan::changes(&before.plan, &after.plan);
    let answer = json!({ "before": before, "after": after, "changes": changes });
    output::answer(as_json, &answer, |_| difference(&before, &after))
}

/// One version of a plan.
///
/// # Errors
/// There is none.
pub(super) async fn version(gavel: &Gavel, id: PlanningSessionId, version: u32) -> anyhow::Result<Version> {
    let path = format!("{}/history/{version}", path(id));
    gavel.get(&path).await
}

/// Who made the later version and why, its changes on one line, then task by task.
fn difference(before: &Version, after: &Version) -> String {
    let changes = plan::changes(&before.plan, &after.plan);
    let mut text = format!(
        "{}\n{} {} by {}: {}\n",
        text::changes(after.version, &changes),
        at(after.at),
        after.kind,
        single_line(&after.by),
        single_line(&after.why)
    );
    let find = |tasks: &[Task], id: TaskId| tasks.iter().find(|task| task.id == id).map(fields).unwrap_or_default();
    for change in &changes {
        let (old, new) = (find(&before.plan, change.task), find(&after.plan, change.task));
        text.push_str(&format!("\n{} {}\n", text::mark(change.op), change.task));
        for line in TextDiff::from_lines(&old, &new).iter_all_changes() {
            text.push_str(&format!("  {} {}\n", line.tag(), line.value().trim_end_matches('\n')));
        }
    }
    if let Some([old, new]) = orders(&before.plan, &after.plan) {
        text.push_str(&format!("\norder of the tasks that remain\n  - {old}\n  + {new}\n"));
    }
    text
}

/// The fields of a task that a version can change, each line with its field's name.
fn fields(task: &Task) -> String {
    let tools = task.tools.join(", ");
    let fields = [
        ("title", &task.title),
        ("goal", &task.goal),
        ("done when", &task.done_when),
        ("tools", &tools),
    ];
    let lines = fields.into_iter().flat_map(|(name, value)| {
        let lines = value.lines();
        lines.map(move |line| format!("{name:<9}  {}\n", single_line(line)))
    });
    lines.collect()
}

/// The ids of the tasks that both versions have, in the order of each, if the orders differ.
fn orders(before: &[Task], after: &[Task]) -> Option<[String; 2]> {
    let ids = |tasks: &[Task], others: &[Task]| -> Vec<String> {
        let common = tasks
            .iter()
            .filter(|task| others.iter().any(|other| other.id == task.id));
        common.map(|task| task.id.to_string()).collect()
    };
    let (old, new) = (ids(before, after), ids(after, before));
    (old != new).then(|| [old.join(" "), new.join(" ")])
}

#[cfg(test)]
mod diff_tests {
    use super::*;
    use crate::cli::tests::samples::sample;

    fn version(number: u32, tasks: &[(&str, &str, &str)]) -> Version {
        let task = |(id, title, goal): &(&str, &str, &str)| {
            sample::<Task>(json!({"id": id, "title": title, "goal": goal, "doneWhen": "it passes", "tools": ["x"]}))
        };
        let plan: Vec<_> = tasks.iter().map(task).collect();
        sample(
            json!({"version": number, "at": "2026-11-22T10:00:00.5Z", "by": "ann", "kind": "refined", "why": "tests\nfirst", "plan": plan}),
        )
    }

    #[test]
    fn each_changed_task_is_shown_line_by_line() {
        let before = version(
            1,
            &[
                ("t1", "Parse", "Weeks.\nAll of them."),
                ("t2", "Read me", "Say so."),
                ("t3", "Same", "Same."),
            ],
        );
        let after = version(
            2,
            &[
                ("t3", "Same", "Same."),
                ("t4", "Test", "Fail."),
                ("t1", "Parse", "Weeks.\nMost of them."),
            ],
        );
        assert_eq!(
            difference(&before, &after),
            "Plan 2   + t4 Test   ~ t1 Parse   - t2 Read me
2026-11-22 10:00:00 refined by ann: tests first

+ t4
  + title      Test
  + goal       Fail.
  + done when  it passes
  + tools      x

~ t1
    title      Parse
    goal       Weeks.
  - goal       All of them.
  + goal       Most of them.
    done when  it passes
    tools      x

- t2
  - title      Read me
  - goal       Say so.
  - done when  it passes
  - tools      x

order of the tasks that remain
  - t1 t3
  + t3 t1
"
        );
    }

    #[test]
    fn equal_plans_have_no_changes() {
        let one = version(1, &[("t1", "Parse", "Weeks.")]);
        assert!(plan::changes(&one.plan, &one.plan).is_empty());
        assert!(orders(&one.plan, &one.plan).is_none());
    }
}

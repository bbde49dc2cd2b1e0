//! `gavel plan diff`: what one version of a plan changed against another.

use serde_json::json;
use similar::{ChangeTag, TextDiff};

use super::follow::{missing, session};
use super::{id, text};
use crate::api::planning::Version;
use crate::app::Work;
use crate::cli::client::Client;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::list::at;
use crate::cli::output;
use crate::cli::table::single_line;
use crate::domain::ids::PlanningSessionId;
use crate::domain::plan::{self, Task, TaskId};

/// Options of `gavel plan diff`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session
    #[arg(value_parser = id)]
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
    #[command(flatten)]
    place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel plan diff 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80          what the current version changed
  gavel plan diff 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 1        all changes since version 1
  gavel plan diff 0199c4e0-7d8e-7c52-9d3b-5a1c4e6f7a80 1 3 --json | jq .changes

Tasks are compared by their ids: + is new, ~ is changed, - is gone.";

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let after = match self.after {
            Some(after) => after,
            None => session(gavel, &self.place, self.id).await?.plan_version,
        };
        let before = self.before.unwrap_or_else(|| after.saturating_sub(1));
        if before == 0 {
            return first(after);
        }
        let read = |version| async move {
            let version = gavel.version(self.id, version).await;
            version.map_err(|error| missing(error, &self.place, self.id))
        };
        let (before, after) = (read(before).await?, read(after).await?);
        if self.json {
            let changes = plan::changes(&before.plan, &after.plan);
            output::json(&json!({ "before": before, "after": after, "changes": changes }))?;
        } else {
            output::line(&difference(&before, &after))?;
        }
        Ok(Exit::Done)
    }
}

/// Prints what the current version changed.
///
/// # Errors
/// The versions cannot be read.
pub(super) async fn latest(client: &Client, id: PlanningSessionId, current: u32) -> anyhow::Result<()> {
    if current <= 1 {
        first(current)?;
        return Ok(());
    }
    let (before, after) = (
        client.version(id, current - 1).await?,
        client.version(id, current).await?,
    );
    output::line(&difference(&before, &after))
}

fn first(current: u32) -> anyhow::Result<Exit> {
    output::note(match current {
        0 => "there is no plan yet",
        _ => "version 1 is the first; there is no version before it",
    });
    Ok(Exit::Done)
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
            let mark = match line.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            text.push_str(&format!("  {mark} {}\n", line.value().trim_end_matches('\n')));
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
mod tests {
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

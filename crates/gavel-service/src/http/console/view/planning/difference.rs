//! How a task differs between two versions of a plan: its texts side by side, with what was taken out and put in marked.

use maud::{Markup, html};
use similar::{ChangeTag, TextDiff};

use super::super::words;
use crate::domain::plan::{Task, TaskStatus};

/// What became of a task from one version to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Added,
    Removed,
    Obsolete,
    Changed,
    Same,
}

impl Mark {
    /// What became of a task that at least one of the versions has.
    pub(super) fn of(before: Option<&Task>, after: Option<&Task>) -> Self {
        let (before, after) = match (before, after) {
            (None, _) => return Self::Added,
            (_, None) => return Self::Removed,
            (Some(before), Some(after)) => (before, after),
        };
        let is_obsolete = |task: &Task| task.status == TaskStatus::Obsolete;
        if is_obsolete(after) && !is_obsolete(before) {
            Self::Obsolete
        } else if fields(before) == fields(after) {
            Self::Same
        } else {
            Self::Changed
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "Added",
            Self::Removed => "Removed",
            Self::Obsolete => "Made obsolete",
            Self::Changed => "Changed",
            Self::Same => "Unchanged",
        }
    }

    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Obsolete => "obsolete",
            Self::Changed => "changed",
            Self::Same => "same",
        }
    }
}

/// The texts of a task that a version can change.
fn fields(task: &Task) -> [(&'static str, String); 4] {
    [
        ("Title", task.title.clone()),
        ("Goal", task.goal.clone()),
        ("Done when", task.done_when.clone()),
        ("Tools", task.tools.join(", ")),
    ]
}

/// A side of a comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

/// A task in both versions, side by side; a version that lacks it is empty.
pub(super) fn sides(before: Option<&Task>, after: Option<&Task>, names: [&str; 2]) -> Markup {
    let of = |task: Option<&Task>| task.map(fields);
    let (before, after) = (of(before), of(after));
    html! {
        div.sides {
            (side(Side::Before, before.as_ref(), after.as_ref(), names[0]))
            (side(Side::After, before.as_ref(), after.as_ref(), names[1]))
        }
    }
}

type Fields = [(&'static str, String); 4];

fn side(side: Side, before: Option<&Fields>, after: Option<&Fields>, name: &str) -> Markup {
    let (own, other) = match side {
        Side::Before => (before, after),
        Side::After => (after, before),
    };
    html! {
        div.side {
            p.name { (name) }
            @if let Some(own) = own {
                dl {
                    @for (n, (label, text)) in own.iter().enumerate() {
                        dt { (label) }
                        dd dir="auto" { (marked(side, text, other.map(|other| other[n].1.as_str()))) }
                    }
                }
            } @else { p.none { "This version does not have the task." } }
        }
    }
}

/// A text with what the other side lacks marked. Without another side nothing is marked: all of it is new, or gone.
fn marked(side: Side, text: &str, other: Option<&str>) -> Markup {
    let Some(other) = other else {
        return words::text(text);
    };
    let (before, after) = match side {
        Side::Before => (text, other),
        Side::After => (other, text),
    };
    html! {
        @for (tag, piece) in pieces(side, before, after) {
            @match tag {
                ChangeTag::Equal => (words::text(&piece)),
                ChangeTag::Delete => del { (words::text(&piece)) },
                ChangeTag::Insert => ins { (words::text(&piece)) },
            }
        }
    }
}

/// The words of one side, neighbours of one kind together.
fn pieces(side: Side, before: &str, after: &str) -> Vec<(ChangeTag, String)> {
    let elsewhere = match side {
        Side::Before => ChangeTag::Insert,
        Side::After => ChangeTag::Delete,
    };
    let mut pieces: Vec<(ChangeTag, String)> = Vec::new();
    let diff = TextDiff::from_words(before, after);
    for change in diff.iter_all_changes().filter(|change| change.tag() != elsewhere) {
        match pieces.last_mut() {
            Some((tag, text)) if *tag == change.tag() => text.push_str(change.value()),
            _ => pieces.push((change.tag(), change.value().to_owned())),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::PlanningSessionId;
    use crate::domain::plan::TaskId;

    fn task(goal: &str) -> Task {
        Task {
            title: "Parse".to_owned(),
            goal: goal.to_owned(),
            ..Task::new(TaskId::of(1), PlanningSessionId::new())
        }
    }

    /// Each version keeps its own text, and what differs is marked in both.
    #[test]
    fn the_old_and_the_new_text_are_both_there_with_their_marks() {
        let (before, after) = (task("All <weeks> of ISO"), task("Most <weeks> of ISO"));
        let shown = sides(Some(&before), Some(&after), ["Version 1", "Version 2"]).into_string();
        for text in [
            "<del>All</del> &lt;weeks&gt; of ISO",
            "<ins>Most</ins> &lt;weeks&gt; of ISO",
            "Version 1",
            "Version 2",
        ] {
            assert!(shown.contains(text), "{text} is not in {shown}");
        }
        assert_eq!(
            shown.matches("<del>").count() + shown.matches("<ins>").count(),
            2,
            "{shown}"
        );
        let alone = sides(None, Some(&after), ["Version 1", "Version 2"]).into_string();
        assert!(
            alone.contains("does not have the task") && !alone.contains("<ins>"),
            "{alone}"
        );
    }

    #[test]
    fn what_became_of_a_task_has_one_name() {
        let (one, other) = (task("a"), task("b"));
        let obsolete = Task {
            status: TaskStatus::Obsolete,
            ..task("a")
        };
        assert_eq!(Mark::of(None, Some(&one)), Mark::Added);
        assert_eq!(Mark::of(Some(&one), None), Mark::Removed);
        assert_eq!(Mark::of(Some(&one), Some(&other)), Mark::Changed);
        assert_eq!(Mark::of(Some(&one), Some(&obsolete)), Mark::Obsolete);
        assert_eq!(Mark::of(Some(&obsolete), Some(&obsolete)), Mark::Same);
        assert_eq!(Mark::of(Some(&one), Some(&one)), Mark::Same);
    }
}

//! The versions of a plan: any two side by side, and how each came about.

use chrono_tz::Tz;
use maud::{Markup, html};
use similar::{Change, ChangeTag, TextDiff};

use crate::api::planning::Version;
use crate::domain::ids::PlanningSessionId;
use crate::domain::plan::{Task, TaskStatus};
use crate::http::console::planning::{SHORT, in_words, path};
use crate::http::console::session::Visitor;
use crate::http::console::view::room::TEXT;
use crate::http::console::view::{address, next, words};
use crate::http::console::{Page, Parameters, Turned, nothing};
use crate::http::error::{Code, Error};
use crate::http::request::{Id, Open};
use crate::http::{Edge, query};

/// `from` and `to` are the compared versions; without them the current one and the one before. `before` is the oldest
/// version of the page before.
pub(crate) async fn show(edge: Open, visitor: Visitor, Id(session): Id<PlanningSessionId>, given: Parameters) -> Page {
    let planning = &edge.planning;
    let current = planning.session(&visitor.caller, visitor.reads.as_ref(), session);
    let current = current.await?.plan_version;
    let number = |name: &str| -> Result<Option<u32>, Error> {
        let given = given
            .get(name)
            .map(|text| query::number(&text).ok_or_else(|| Code::NotFound.into()));
        given.transpose()
    };
    let to = number("to")?.unwrap_or(current);
    let from = number("from")?.unwrap_or_else(|| to.saturating_sub(1).max(1));
    let pair = match current {
        0 => None,
        _ => Some(Pair {
            from: one(&edge, &visitor, session, from).await?,
            to: one(&edge, &visitor, session, to).await?,
        }),
    };
    let last = number("before")?.map_or(current, |before| before.saturating_sub(1).min(current));
    let history = latest(&edge, &visitor, session, last).await?;
    let body = versions(&path(session), current, pair.as_ref(), &history, visitor.zone);
    Ok(visitor.page("Versions of the plan", &body))
}

async fn one(edge: &Edge, visitor: &Visitor, session: PlanningSessionId, version: u32) -> Result<Version, Turned> {
    let before = version.checked_sub(1).ok_or(Code::NotFound)?;
    let planning = &edge.planning;
    let found = planning.versions(&visitor.caller, visitor.reads.as_ref(), session, (before, 1));
    let found = found.await?.into_iter().find(|found| found.version == version);
    Ok(found.ok_or(Code::NotFound)?)
}

/// The versions up to `last`, the latest first: those of a page, and the one before them.
pub(super) async fn latest(
    edge: &Edge,
    visitor: &Visitor,
    session: PlanningSessionId,
    last: u32,
) -> Result<Vec<Version>, Turned> {
    let after = last.saturating_sub(MOST_VERSIONS + 1);
    let planning = &edge.planning;
    let range = (after, last - after);
    let found = planning.versions(&visitor.caller, visitor.reads.as_ref(), session, range);
    let mut found = found.await?;
    found.reverse();
    Ok(found)
}

/// Two versions of a plan.
pub(crate) struct Pair {
    pub(crate) from: Version,
    pub(crate) to: Version,
}

/// Versions per page, each with its whole plan.
pub(crate) const MOST_VERSIONS: u32 = 20;
/// Most changes of a version that its row lists.
const MOST_CHANGES: usize = 30;

/// Renders the page; `path` is the address of the session's page, and `history` some of its versions, the latest first:
/// those of this page, and the one before them.
pub(crate) fn versions(path: &str, current: u32, pair: Option<&Pair>, history: &[Version], zone: Tz) -> Markup {
    let own = format!("{path}/versions");
    let more = history.get(MOST_VERSIONS as usize).map(|version| version.version + 1);
    html! {
        p.back { a href=(path) { "← The session" } }
        h1 { "Versions of the plan" }
        @if let Some(pair) = pair {
            (chooser(&own, current, pair))
            (compared(pair, zone))
        } @else { (nothing("There is no plan yet.")) }
        @if !history.is_empty() {
            h2 { "History" }
            (list(path, history, zone))
            @if let Some(before) = more { (next(&address(&own, &[("before", Some(&before.to_string()))]))) }
        }
    }
}

fn chooser(own: &str, current: u32, pair: &Pair) -> Markup {
    let field = |name: &str, label: &str, value: u32| {
        html! {
            label for={ "v-" (name) } { (label) }
            input #{ "v-" (name) } type="number" name=(name) value=(value) min="1" max=(current) required;
        }
    };
    html! {
        div.filter {
            form method="get" action=(own) {
                (field("from", "Compare version", pair.from.version))
                (field("to", "with version", pair.to.version))
                button type="submit" { "Compare" }
            }
        }
    }
}

fn compared(pair: &Pair, zone: Tz) -> Markup {
    let (from, to) = (&pair.from, &pair.to);
    let names = [format!("Version {}", from.version), format!("Version {}", to.version)];
    let rows = rows(&from.plan, &to.plan);
    html! {
        div.sides { (origin(from, zone)) (origin(to, zone)) }
        @if rows.iter().all(|(mark, ..)| *mark == Mark::Same) { p.empty { "The tasks of both versions have the same texts." } }
        @for (mark, before, after) in rows { (row(mark, before, after, [&names[0], &names[1]])) }
    }
}

/// Who wrote a version, when and why.
fn origin(version: &Version, zone: Tz) -> Markup {
    html! {
        div.side.origin {
            h2 { "Version " (version.version) }
            dl.about {
                div { dt { (in_words(version.kind.as_str())) " by" } dd { bdi { (words::text(&version.by)) } } }
                div { dt { "At" } dd { (words::at(version.at.0, zone)) } }
            }
            div.prose dir="auto" { (words::beginning(&version.why, TEXT)) }
        }
    }
}

type Row<'a> = (Mark, Option<&'a Task>, Option<&'a Task>);

/// The tasks of both versions: those of the later one in its order, then those that it lacks.
fn rows<'a>(before: &'a [Task], after: &'a [Task]) -> Vec<Row<'a>> {
    let find = |tasks: &'a [Task], task: &Task| tasks.iter().find(|other| other.id == task.id);
    let later = after.iter().map(|task| (find(before, task), Some(task)));
    let gone = before.iter().filter(|task| find(after, task).is_none());
    let gone = gone.map(|task| (Some(task), None));
    later
        .chain(gone)
        .map(|(before, after)| (Mark::of(before, after), before, after))
        .collect()
}

fn row(mark: Mark, before: Option<&Task>, after: Option<&Task>, names: [&str; 2]) -> Markup {
    let Some(task) = after.or(before) else {
        return Markup::default();
    };
    let heading = html! { (task.id.to_string()) " " (words::text(&task.title)) };
    let reason = task.status_reason.as_ref().filter(|_| mark == Mark::Obsolete);
    html! {
        section.card.change.(mark.words().1) {
            @if mark == Mark::Same {
                details {
                    summary dir="auto" { (heading) " · " (mark.words().0) }
                    (sides(before, after, names))
                }
            } @else {
                h3 dir="auto" { span.mark { (mark.words().0) } " " (heading) }
                @if let Some(reason) = reason { p.state dir="auto" { (words::beginning(&reason.detail, TEXT)) } }
                (sides(before, after, names))
            }
        }
    }
}

/// The rows of a history; each leads to what its version changed. The version before the last row is not shown.
pub(crate) fn list(path: &str, history: &[Version], zone: Tz) -> Markup {
    html! {
        ol.history {
            @for (n, version) in history.iter().enumerate().take(MOST_VERSIONS as usize) {
                li value=(version.version) {
                    p.said-by {
                        b { "Version " (version.version) } " · " (in_words(version.kind.as_str())) " by "
                        bdi { (words::beginning(&version.by, SHORT)) } " · " (words::at(version.at.0, zone))
                    }
                    p dir="auto" { (words::beginning(&version.why, SHORT)) }
                    @if let Some(before) = history.get(n + 1) {
                        (changes(before, version))
                        p {
                            a href={ (path) "/versions?from=" (before.version) "&to=" (version.version) } {
                                "Compare version " (version.version) " with the one before"
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What a version changed, in short.
fn changes(before: &Version, version: &Version) -> Markup {
    let rows = rows(&before.plan, &version.plan);
    let changed: Vec<_> = rows.into_iter().filter(|(mark, ..)| *mark != Mark::Same).collect();
    html! {
        ul.changes {
            @for (mark, before, after) in changed.iter().take(MOST_CHANGES) {
                @if let Some(task) = after.or(*before) {
                    li dir="auto" { (mark.words().0) " " (task.id.to_string()) " " (words::beginning(&task.title, SHORT)) }
                }
            }
            @if changed.len() > MOST_CHANGES { li { (changed.len() - MOST_CHANGES) " more" } }
        }
    }
}

/// What became of a task from one version to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Added,
    Removed,
    Obsolete,
    Changed,
    Same,
}

impl Mark {
    /// What became of a task that at least one of the versions has.
    fn of(before: Option<&Task>, after: Option<&Task>) -> Self {
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

    /// Its name, and its class in the style sheet.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Added => ("Added", "added"),
            Self::Removed => ("Removed", "removed"),
            Self::Obsolete => ("Made obsolete", "obsolete"),
            Self::Changed => ("Changed", "changed"),
            Self::Same => ("Unchanged", "same"),
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

/// A task in both versions, side by side; a version that lacks it is empty.
fn sides(before: Option<&Task>, after: Option<&Task>, names: [&str; 2]) -> Markup {
    let (before, after) = (before.map(fields), after.map(fields));
    html! {
        div.sides {
            (side(ChangeTag::Delete, before.as_ref(), after.as_ref(), names[0]))
            (side(ChangeTag::Insert, after.as_ref(), before.as_ref(), names[1]))
        }
    }
}

type Fields = [(&'static str, String); 4];

/// One side, on which what the other lacks is marked as deleted or inserted.
fn side(mark: ChangeTag, own: Option<&Fields>, other: Option<&Fields>, name: &str) -> Markup {
    html! {
        div.side {
            p.name { (name) }
            @if let Some(own) = own {
                dl {
                    @for (n, (label, text)) in own.iter().enumerate() {
                        dt { (label) }
                        dd dir="auto" { (marked(mark, text, other.map(|other| other[n].1.as_str()))) }
                    }
                }
            } @else { p.none { "This version does not have the task." } }
        }
    }
}

/// A text with what the other side lacks marked. Without another side nothing is marked: all of it is new, or gone.
fn marked(mark: ChangeTag, text: &str, other: Option<&str>) -> Markup {
    let Some(other) = other else {
        return words::text(text);
    };
    html! {
        @for (tag, piece) in pieces(mark, text, other) {
            @match tag {
                ChangeTag::Equal => (words::text(&piece)),
                ChangeTag::Delete => del { (words::text(&piece)) },
                ChangeTag::Insert => ins { (words::text(&piece)) },
            }
        }
    }
}

/// The words of one side, neighbours of one kind together.
fn pieces(mark: ChangeTag, text: &str, other: &str) -> Vec<(ChangeTag, String)> {
    let diff = match mark {
        ChangeTag::Insert => TextDiff::from_words(other, text),
        _ => TextDiff::from_words(text, other),
    };
    let mut pieces: Vec<(ChangeTag, String)> = Vec::new();
    let own = |change: &Change<&str>| [ChangeTag::Equal, mark].contains(&change.tag());
    for change in diff.iter_all_changes().filter(own) {
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

//! The versions of a plan: any two side by side, and how each came about.

use chrono_tz::Tz;
use maud::{Markup, html};

use super::super::super::nothing;
use super::super::room::TEXT;
use super::super::{next, words};
use super::difference::{Mark, sides};
use super::{SHORT, in_words};
use crate::api::planning::Version;
use crate::domain::plan::Task;

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
            @if let Some(before) = more { (next(&own, &[("before", Some(&before.to_string()))])) }
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
        section.card.change.(mark.class()) {
            @if mark == Mark::Same {
                details {
                    summary dir="auto" { (heading) " · " (mark.as_str()) }
                    (sides(before, after, names))
                }
            } @else {
                h3 dir="auto" { span.mark { (mark.as_str()) } " " (heading) }
                @if let Some(reason) = reason { p.state dir="auto" { (words::beginning(&reason.detail, TEXT)) } }
                (sides(before, after, names))
            }
        }
    }
}

/// The rows of a history; each leads to what its version changed. The version before the last row is not shown.
pub(super) fn list(path: &str, history: &[Version], zone: Tz) -> Markup {
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
                    li dir="auto" { (mark.as_str()) " " (task.id.to_string()) " " (words::beginning(&task.title, SHORT)) }
                }
            }
            @if changed.len() > MOST_CHANGES { li { (changed.len() - MOST_CHANGES) " more" } }
        }
    }
}

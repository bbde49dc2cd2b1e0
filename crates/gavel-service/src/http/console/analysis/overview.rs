//! How decisions ended over time, how long they took and what they cost; what waits for approval, and what changed.

use std::collections::BTreeSet;
use std::ops::Range as Hours;

use maud::{Markup, html};

use super::{HOUR_US, Range, Ways, ask, begin, behind, nothing_yet, number, page, sql, tell, text, unknown_costs};
use crate::api::exports::ExportSource;
use crate::api::stats::{Bucket, Statistics, StatsQuery, StatsSource};
use crate::domain::action::{Action, ActionStatus};
use crate::domain::time::Timestamp;
use crate::http::console::session::Visitor;
use crate::http::console::view::chart::{self, Chart, Series};
use crate::http::console::view::{address, words};
use crate::http::console::{Page, Parameters, Turned, paths};
use crate::http::request::Open;
use crate::surfaces::approvals::Which;
use crate::surfaces::decisions::ListQuery;
use crate::surfaces::stats::buckets;

/// Kinds of outcomes, by the beginning of their names, with their colors.
const KINDS: [(&str, &str, &str); 4] = [
    ("SUCCESS:", "success", "s1"),
    ("AMBIGUITY:", "question to the user", "s2"),
    ("REFUSAL:", "refusal", "s3"),
    ("ERROR:", "error", "s4"),
];
/// Most requests that are counted, and most changes that are listed.
const MOST_WAITING: u32 = 1000;
const MOST_CHANGES: usize = 50;
/// What is measured over time, and over all of it.
const MEASURES: [&str; 4] = ["count", "p50(duration_ms)", "p95(duration_ms)", "sum(cost_usd)"];

pub(crate) async fn show(edge: Open, visitor: Visitor, given: Parameters) -> Page {
    let now = edge.runs.now_us();
    let range = Range::new(&given, &visitor, now)?;
    let bucket = range.bucket();
    let columns = buckets(bucket, range.zone, (range.from.0, range.to.0));
    let outcomes = range.question(&["outcome_category"], &["count"], Some(bucket));
    let times = range.question(&[], &MEASURES, Some(bucket));
    let (by_outcome, over_time, whole, waiting, changes) = tokio::try_join!(
        ask(&edge, &visitor, outcomes.clone()),
        ask(&edge, &visitor, times.clone()),
        ask(&edge, &visitor, range.question(&[], &MEASURES, None)),
        waiting(&edge, &visitor, now),
        changes(&edge, &visitor, &range, bucket, &columns),
    )?;
    let series = |found: &Statistics, (start, name, class): (&str, &'static str, &'static str), measure| {
        let mut values = vec![None; columns.len()];
        let is_of_kind =
            |row: &&_| start.is_empty() || text(row, "outcome_category").is_some_and(|name| name.starts_with(start));
        for row in found.rows.iter().filter(is_of_kind) {
            let column = columns.iter().position(|column| text(row, "bucket") == Some(column));
            if let (Some(column), Some(number)) = (column, number(row, measure)) {
                *values[column].get_or_insert(0.0) += number;
            }
        }
        let filter = (!start.is_empty()).then(|| format!("outcome_category = \"{start}*\""));
        Series {
            class,
            name,
            values,
            filter,
        }
    };
    let kinds = KINDS.map(|kind| series(&by_outcome, kind, "count"));
    // The sum of no numbers would be -0.
    let errors = kinds[3].values.iter().flatten().fold(0.0, |all, one| all + one);
    let (p50, p95) = (("", "p50", "s1"), ("", "p95", "s4"));
    let lengths = [
        series(&over_time, p50, "p50(duration_ms)"),
        series(&over_time, p95, "p95(duration_ms)"),
    ];
    let cost = [series(&over_time, ("", "cost", "s1"), "sum(cost_usd)")];
    let charts = [
        ("outcomes", "Outcomes", "count", &kinds[..]),
        ("duration", "Duration", "p50(duration_ms)", &lengths),
        ("cost", "Cost", "sum(cost_usd)", &cost),
    ];
    let names: Vec<_> = columns.iter().map(|column| begin(bucket, column)).collect();
    let marks: Vec<_> = changes
        .iter()
        .map(|change| (change.column, format!("{}: {}", change.what, change.name)))
        .collect();
    let link = |column: usize, filter: Option<&str>| {
        let end = range.to.to_string();
        let next = columns.get(column + 1).unwrap_or(&end);
        let time = [
            ("from", Some(&*columns[column])),
            ("to", Some(next)),
            ("zone", Some(range.zone.name())),
        ];
        address(paths::DECISIONS, &[&time[..], &[("filter", filter)]].concat())
    };
    let decisions = |filter| range.link(paths::DECISIONS, &[("filter", filter)]);
    let zone = ("time_zone", Some(range.zone.name()));
    let sql = [&outcomes, &times].map(|query| sql::count(query, &visitor)).into_iter();
    let sql = sql.collect::<Option<Vec<_>>>();
    let ways = Ways {
        json: range.route("/v1/stats/outcomes", &[zone, ("bucket", Some(bucket.as_str()))]),
        csv: range.export(ExportSource::Decisions, None),
        sql: sql.map(|all| all.join("\n\n")),
    };
    let body = html! {
        @match whole.rows.first() {
            None => (nothing_yet(&range, paths::OVERVIEW)),
            Some(row) => {
                dl.tiles {
                    @let count = number(row, "count").unwrap_or_default();
                    div { dt { "Decisions" } dd { a href=(decisions(None)) { (tell("count", count)) } } }
                    div { dt { "Errors" } dd { a href=(decisions(kinds[3].filter.as_deref())) { (tell("failed", errors / count)) } } }
                    @for (measure, title) in [("p50(duration_ms)", "p50"), ("p95(duration_ms)", "p95"), ("sum(cost_usd)", "Cost")] {
                        div { dt { (title) } dd { (number(row, measure).map_or_else(|| "–".to_owned(), |value| tell(measure, value))) } }
                    }
                    @if whole.open > 0 { div { dt { "In progress" } dd { a href=(decisions(Some("status = \"open\""))) { (words::grouped(whole.open)) } } } }
                }
                div.charts {
                    @for (id, title, measure, series) in charts {
                        @let chart = Chart { title, stacked: id != "duration", columns: &names, series, marks: &marks, tell: &|value| tell(measure, value), link: &link };
                        (chart.figure(id))
                    }
                }
                (unknown_costs(&range, &whole))
            }
        }
        div.beside-each-other {
            section aria-labelledby="waiting" { h2 #waiting { "Waiting for approval" } (waiting) }
            section aria-labelledby="changes" { h2 #changes { "What changed" } (list(&range, &names, &changes)) }
        }
        (ways.markup(&visitor))
    };
    Ok(page(&visitor, &range, paths::OVERVIEW, &[], &body))
}

/// The approval requests that the visitor may answer, by their age.
async fn waiting(edge: &Open, visitor: &Visitor, now_us: i64) -> Result<Markup, Turned> {
    const AGES: [(&str, Hours<i64>); 4] = [
        ("up to 1 hour", i64::MIN..1),
        ("up to 1 day", 1..24),
        ("up to 7 days", 24..168),
        ("longer", 168..i64::MAX),
    ];
    let which = Which::In(ActionStatus::AwaitingConfirmation);
    let query = ListQuery {
        page_size: MOST_WAITING,
        ..ListQuery::default()
    };
    let found = edge
        .approvals
        .list(&visitor.caller, visitor.user.clone(), which, query)
        .await?;
    let waits: Vec<&Action> = found.items.iter().filter(|action| action.waits(now_us)).collect();
    let hours = |action: &&&Action| (now_us - action.created_at) / HOUR_US;
    Ok(html! {
        @if waits.is_empty() { p.lead { "No action waits for your approval." } } @else {
            table.numbers {
                caption { a href=(paths::APPROVALS) { (words::count(waits.len() as u64, "action")) @if found.next_page_token.is_some() { " or more" } } " by age" }
                tbody {
                    @for (age, of) in AGES {
                        @let count = waits.iter().filter(|action| of.contains(&hours(action))).count();
                        tr { th scope="row" { (age) } td.number { (count) (chart::bar("s1", 0.0, count as f64 / waits.len() as f64, age)) } }
                    }
                }
            }
        }
    })
}

/// What was first seen within a column.
struct Change {
    column: usize,
    what: &'static str,
    name: String,
    filter: String,
}

/// Definitions, tools and models that answered which the same length of time before did not have, oldest first.
async fn changes(
    edge: &Open,
    visitor: &Visitor,
    range: &Range,
    bucket: Bucket,
    columns: &[String],
) -> Result<Vec<Change>, Turned> {
    const SEEN: [(&str, StatsSource, &[&str]); 3] = [
        ("definition", StatsSource::Decisions, &["definition_hash"]),
        ("model", StatsSource::Decisions, &["model"]),
        ("tool", StatsSource::ToolInvocations, &["server", "tool", "tool_digest"]),
    ];
    let mut all = Vec::new();
    for (what, source, by) in SEEN {
        let query = StatsQuery {
            source: Some(source),
            ..range.question(by, &["count"], Some(bucket))
        };
        let before = StatsQuery {
            from: Some(Timestamp(range.from.0 - (range.to.0 - range.from.0))),
            to: Some(range.from),
            bucket: None,
            ..query.clone()
        };
        let (before, now) = tokio::try_join!(ask(edge, visitor, before), ask(edge, visitor, query.clone()))?;
        let values = |row| {
            by.iter()
                .map(|field| text(row, field).map(str::to_owned))
                .collect::<Vec<_>>()
        };
        let mut known: BTreeSet<_> = before.rows.iter().map(values).collect();
        for row in &now.rows {
            let found = values(row);
            let column = columns.iter().position(|column| text(row, "bucket") == Some(column));
            let is_new = known.insert(found.clone());
            let (Some(column), Some(Some(last)), true) = (column, found.last(), is_new) else {
                continue;
            };
            let short = |hash: &str| hash.chars().take(12).collect::<String>();
            let name = match what {
                "model" => last.clone(),
                "tool" => format!("{} ({})", found[1].as_deref().unwrap_or_default(), short(last)),
                _ => short(last),
            };
            all.push(Change {
                column,
                what,
                name,
                filter: behind(&query, row),
            });
        }
    }
    all.sort_by_key(|change| change.column);
    Ok(all)
}

/// `columns` has the names of the columns.
fn list(range: &Range, columns: &[String], changes: &[Change]) -> Markup {
    html! {
        @if changes.is_empty() { p.lead { "No definition, tool or model is new: all were seen in the same length of time before." } } @else {
            table.numbers {
                caption { "First seen in this time, and not in the same length of time before. A broken line marks each in the charts." }
                thead { tr { th scope="col" { "Since" } th scope="col" { "What" } th scope="col" { "Which" } } }
                tbody {
                    @for change in changes.iter().take(MOST_CHANGES) {
                        tr {
                            td { (columns[change.column]) }
                            td { (change.what) }
                            td.name { a href=(range.link(paths::DECISIONS, &[("filter", Some(&change.filter))])) { bdi { (words::beginning(&change.name, 256)) } } }
                        }
                    }
                }
            }
            @if changes.len() > MOST_CHANGES { p { (changes.len() - MOST_CHANGES) " more" } }
        }
    }
}

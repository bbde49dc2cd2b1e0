//! The pages of tools, models and cost: a question with a name as a table, with a bar beside each number.

use maud::{Markup, html};

use super::{Range, Ways, and, ask, behind, nothing_yet, number, of, page, sql, tell, text, unknown_costs};
use crate::api::exports::ExportSource;
use crate::api::stats::{Measure, Statistics, StatsQuery, StatsSource};
use crate::http::console::session::Visitor;
use crate::http::console::view::{chart, words};
use crate::http::console::{Page, Parameters, paths};
use crate::http::request::Open;
use crate::surfaces::stats::{Named, failed};

pub(crate) async fn tools(edge: Open, visitor: Visitor, given: Parameters) -> Page {
    show(edge, visitor, given, Named::Tools, (paths::TOOLS, "/v1/stats/tools")).await
}

pub(crate) async fn models(edge: Open, visitor: Visitor, given: Parameters) -> Page {
    show(edge, visitor, given, Named::Models, (paths::MODELS, "/v1/stats/models")).await
}

pub(crate) async fn cost(edge: Open, visitor: Visitor, given: Parameters) -> Page {
    show(edge, visitor, given, Named::Cost, (paths::COST, "/v1/stats/cost")).await
}

async fn show(
    edge: Open,
    visitor: Visitor,
    given: Parameters,
    named: Named,
    (path, route): (&'static str, &'static str),
) -> Page {
    let range = Range::new(&given, &visitor, edge.runs.now_us())?;
    let query = range.over(named.question());
    let found = ask(&edge, &visitor, query.clone()).await?;
    let source = match query.source {
        Some(StatsSource::ToolInvocations) => ExportSource::ToolInvocations,
        _ => ExportSource::Decisions,
    };
    let ways = Ways {
        json: range.route(route, &[("time_zone", Some(range.zone.name()))]),
        csv: range.export(source, None),
        sql: sql::count(&query, &visitor),
    };
    let body = html! {
        @if found.rows.is_empty() { (nothing_yet(&range, path)) }
        @else { (table(&range, &query, &found, about(named))) }
        (unknown_costs(&range, &found))
        @if let Some(other) = found.other { p { (words::count(other.groups, "more row")) " with " (words::grouped(other.count)) " are not shown." } }
        (ways.markup(&visitor))
    };
    Ok(page(&visitor, &range, path, &[], &body))
}

fn about(named: Named) -> &'static str {
    match named {
        Named::Tools => {
            "Calls of each tool, how many did not succeed, and how long they took. A number leads to the decisions."
        }
        Named::Models => {
            "Which model answered for which, how many decisions ended with an error, and the models' time."
        }
        _ => "What decisions cost, by the model that answered, and their tokens.",
    }
}

/// The heading of a measure: `p50(model_ms)` → `p50`, `sum(input_tokens)` → `Input tokens`.
fn heading(measure: &str) -> String {
    match measure.split_once('(') {
        Some(("sum" | "avg", field)) => words::name(field.trim_end_matches(')').trim_end_matches("_usd")),
        Some((percentile, _)) => percentile.to_owned(),
        None => words::name(measure),
    }
}

/// The rows of a question, and a bar for each number: a share of the greatest of its column, or of all.
fn table(range: &Range, query: &StatsQuery, found: &Statistics, caption: &str) -> Markup {
    let measures: Vec<_> = query.measures.iter().map(Measure::name).collect();
    let greatest = |measure: &str| match measure {
        "failed" => 1.0,
        _ => found
            .rows
            .iter()
            .filter_map(|row| number(row, measure))
            .fold(0.0, f64::max),
    };
    let source = query.source.unwrap_or(StatsSource::Decisions);
    let failed = format!("{}{}", of(source), failed(source));
    html! {
        div.wide tabindex="0" role="region" aria-label="Table" {
            table.numbers {
                caption { (caption) }
                thead { tr {
                    @for field in &query.by { th scope="col" { (words::name(field)) } }
                    @for measure in &measures { th.number scope="col" { (heading(measure)) } }
                } }
                tbody {
                    @for row in &found.rows {
                        tr {
                            @for field in &query.by { td.name { @match text(row, field) { Some(value) => bdi { (words::beginning(value, 256)) }, None => span.none { "none" } } } }
                            @for measure in &measures {
                                td.number {
                                    @if let Some(value) = number(row, measure) {
                                        @let shown = tell(measure, value);
                                        @let link = match *measure {
                                            "count" => Some(behind(query, row)),
                                            "failed" if value > 0.0 => Some(and(Some(&behind(query, row)), &failed)),
                                            _ => None,
                                        };
                                        @match link {
                                            Some(link) => a href=(range.link(paths::DECISIONS, &[("filter", Some(&link))])) { (shown) },
                                            None => (shown),
                                        }
                                        (chart::bar(if *measure == "failed" { "s4" } else { "s1" }, 0.0, value / greatest(measure).max(f64::MIN_POSITIVE), &shown))
                                    } @else { span.none { "–" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_follow_from_the_names_of_measures() {
        for (measure, expected) in [
            ("count", "Count"),
            ("failed", "Failed"),
            ("p95(model_ms)", "p95"),
            ("sum(cost_usd)", "Cost"),
            ("sum(cached_tokens)", "Cached tokens"),
            ("avg(result_bytes)", "Result bytes"),
        ] {
            assert_eq!(heading(measure), expected);
        }
    }
}

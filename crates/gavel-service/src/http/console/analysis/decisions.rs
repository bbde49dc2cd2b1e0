//! The list of decisions: a filter, counts of the values that rows have, and the rows.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use maud::{Markup, html};

use super::{Range, Ways, and, condition, nothing_yet, number, page, sql, text};
use crate::api::decisions::DecisionRecord;
use crate::api::exports::ExportSource;
use crate::api::stats::{Statistics, StatsQuery};
use crate::http::console::session::Visitor;
use crate::http::console::view::{address, chart, words};
use crate::http::console::{Page, Parameters, nothing, paths};
use crate::http::error::{Code, Error};
use crate::http::request::Open;
use crate::surfaces::decisions::ListQuery;

/// Decisions per page.
const ROWS: u32 = 50;
/// The fields whose values are counted, and the most values of each.
const FACETS: [&str; 4] = ["outcome_category", "surface", "requested_model", "agent_id"];
const VALUES: usize = 8;
/// Rendered bytes of a value.
const SHORT: usize = 128;

/// What the list is about.
struct List<'a> {
    range: &'a Range,
    filter: Option<&'a str>,
}

pub(crate) async fn list(edge: Open, visitor: Visitor, given: Parameters) -> Page {
    let range = Range::new(&given, &visitor, edge.runs.now_us())?;
    let (filter, order) = (given.get("filter"), given.get("order_by"));
    let list = List {
        range: &range,
        filter: filter.as_deref(),
    };
    let query = StatsQuery {
        filter: filter.clone(),
        ..range.question(&FACETS, &["count"], None)
    };
    let time = format!("created_at >= \"{}\" AND created_at < \"{}\"", range.from, range.to);
    let whole = filter
        .as_ref()
        .map_or_else(|| time.clone(), |filter| format!("({filter}) AND {time}"));
    let rows = ListQuery {
        page_size: ROWS,
        page_token: given.get("page_token"),
        filter: Some(whole.clone()),
        order_by: order.clone(),
        user: visitor.rows(),
    };
    // The question names the place of an error in the filter as the visitor wrote it, so it is asked first.
    let counted = edge.stats.ask(&visitor.caller, visitor.rows(), query.clone()).await;
    let kept = [("filter", filter.as_deref()), ("order_by", order.as_deref())];
    let counted = match counted {
        Err(problem) if problem.code == Code::InvalidRequest => {
            let errors = problem.into_more().errors;
            let body = html! {
                @for error in &errors { p.flash.bad role="alert" #filter-error { "Filter: " (words::text(&error.detail)) } }
                (list.form(order.as_deref(), !errors.is_empty()))
            };
            let mut response = page(&visitor, &range, paths::DECISIONS, &kept, &body);
            *response.status_mut() = StatusCode::BAD_REQUEST;
            return Ok(response);
        }
        counted => counted.map_err(Error::from)?,
    };
    let found = edge.decisions.list(&visitor.caller, rows).await?;
    let next = [&kept[..], &[("page_token", found.next_page_token.as_deref())]].concat();
    let ways = Ways {
        json: address(
            "/v1/decisions",
            &[("filter", Some(&whole)), ("order_by", order.as_deref())],
        ),
        csv: range.export(ExportSource::Decisions, filter.as_deref()),
        sql: sql::list(&query, &visitor),
    };
    let body = html! {
        (list.form(order.as_deref(), false))
        @if counted.rows.is_empty() && found.items.is_empty() {
            @match filter { Some(_) => (nothing("No decision of this time matches the filter.")), None => (nothing_yet(&range, paths::DECISIONS)) }
        } @else {
            (list.facets(&counted))
            (list.table(&found.items, order.as_deref()))
        }
        @if found.next_page_token.is_some() { p.next { a href=(range.link(paths::DECISIONS, &next)) { "Next page" } } }
        (ways.markup(&visitor))
    };
    Ok(page(&visitor, &range, paths::DECISIONS, &kept, &body))
}

impl List<'_> {
    fn form(&self, order: Option<&str>, is_invalid: bool) -> Markup {
        html! {
            form.search method="get" action=(paths::DECISIONS) role="search" {
                @for (name, value) in &self.range.given { input type="hidden" name=(name) value=(value); }
                @if let Some(order) = order { input type="hidden" name="order_by" value=(order); }
                label for="filter" { "Filter" }
                input #filter type="text" name="filter" value=(self.filter.unwrap_or_default()) autocomplete="off" spellcheck="false"
                    autocapitalize="off" aria-describedby=(if is_invalid { "filter-error filter-hint" } else { "filter-hint" }) aria-invalid=[is_invalid.then_some("true")];
                button.plain type="submit" { "Show" }
                @if self.filter.is_some() { a href=(self.range.link(paths::DECISIONS, &[])) { "Clear" } }
                p.hint #filter-hint { "Such as " code { "outcome_category = \"ERROR:*\" AND duration_ms > 2000" } ", " code { "call.tool = \"add_task\"" }
                    ", or a word of the texts. A value below adds itself; its ! excludes it." }
            }
        }
    }

    /// The list with a further condition.
    fn with(&self, condition: &str) -> String {
        let filter = and(self.filter, condition);
        self.range.link(paths::DECISIONS, &[("filter", Some(&filter))])
    }

    /// A value that a click filters by, and one that excludes it.
    fn value(&self, field: &str, value: Option<&str>) -> Markup {
        let shown = value.unwrap_or("none");
        html! {
            a.value.none[value.is_none()] href=(self.with(&condition(field, "=", value))) { bdi { (words::beginning(shown, SHORT)) } }
            " " a.not href=(self.with(&condition(field, "!=", value))) aria-label={ "Exclude " (words::cut(shown, SHORT).0) } title="Exclude" { "!" }
        }
    }

    /// How many decisions have each value.
    fn facets(&self, counted: &Statistics) -> Markup {
        let all: f64 = counted.rows.iter().filter_map(|row| number(row, "count")).sum();
        html! {
            details.facets open {
                summary { (words::grouped(all as u64)) " ended" @if counted.open > 0 { ", " (words::grouped(counted.open)) " in progress" } }
                div.facets {
                    @for field in FACETS {
                        @let counts = counts(counted, field);
                        table.numbers {
                            caption { (words::name(field)) }
                            tbody {
                                @for (value, count) in counts.iter().take(VALUES) {
                                    tr {
                                        th scope="row" { (self.value(field, value.as_deref())) }
                                        td.number { (words::grouped(*count as u64)) (chart::bar("s1", 0.0, count / all.max(1.0), "")) }
                                    }
                                }
                                @if counts.len() > VALUES { tr { th scope="row" { (counts.len() - VALUES) " more values" } td.number {} } }
                            }
                        }
                    }
                }
            }
        }
    }

    fn table(&self, decisions: &[DecisionRecord], order: Option<&str>) -> Markup {
        let sort = |name: &str, words: &str| {
            let desc = format!("{name} desc");
            let is_this = order == Some(&*desc);
            let next = (!is_this).then_some(&*desc);
            html! {
                th.number scope="col" aria-sort=[is_this.then_some("descending")] {
                    a href=(self.range.link(paths::DECISIONS, &[("filter", self.filter), ("order_by", next)])) { (words) @if is_this { " ↓" } }
                }
            }
        };
        html! {
            div.wide tabindex="0" role="region" aria-label="Decisions" {
                table.numbers {
                    caption { "Decisions, " (match order { None => "the latest first", Some(_) => "the greatest first" }) }
                    thead { tr {
                        th scope="col" { "Time" } th scope="col" { "Outcome" } th scope="col" { "Surface" } th scope="col" { "Agent" } th scope="col" { "Model" }
                        th scope="col" { "User" } th scope="col" { "First action" } (sort("duration_ms", "Took")) (sort("cost_nano", "Cost"))
                    } }
                    tbody {
                        @for decision in decisions {
                            @let outcome = decision.outcome_category.map(|outcome| outcome.as_str());
                            tr {
                                td { a href={ (paths::DECISIONS) "/" (decision.decision_id) } { (words::at(decision.created_at.0, self.range.zone)) } }
                                td { @match outcome { Some(outcome) => (self.value("outcome_category", Some(outcome))), None => (self.value("status", Some("open"))) } }
                                td { (self.value("surface", Some(&decision.surface))) }
                                td { (self.value("agent_id", decision.agent_id.as_deref())) }
                                td { (self.value("model", decision.model.as_deref())) }
                                td { (self.value("user_id", Some(&decision.user_id))) }
                                td { (self.value("intent", decision.intent.as_deref())) }
                                td.number { @if let Some(ms) = decision.duration_ms { (words::took(ms)) } }
                                td.number { @match decision.cost_nano { Some(nano) => (words::dollars(nano as f64 / 1e9)), None => span.none { "–" } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The values of a field with their counts, the most frequent first.
fn counts(counted: &Statistics, field: &str) -> Vec<(Option<String>, f64)> {
    let mut counts = BTreeMap::<_, f64>::new();
    for row in &counted.rows {
        *counts.entry(text(row, field).map(str::to_owned)).or_default() += number(row, "count").unwrap_or_default();
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    counts
}

//! Console pages for analysts: what the logs say, over a time that each page's address names.

pub(crate) mod decision;
pub(crate) mod decisions;
pub(crate) mod overview;
mod sql;
pub(crate) mod tables;

use actix_web::HttpResponse;
use chrono::{DateTime, NaiveDate, NaiveDateTime, TimeZone};
use chrono_tz::Tz;
use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::api::exports::{ExportFormat, ExportSource};
use crate::api::filter::quoted;
use crate::api::problem::FieldError;
use crate::api::stats::{self, Bucket, Measure, Statistics, StatsQuery, StatsSource};
use crate::domain::time::Timestamp;
use crate::http::console::session::Visitor;
use crate::http::console::view::{address, words};
use crate::http::console::{Parameters, Turned, paths};
use crate::http::error::Error;
use crate::http::query::found;
use crate::http::request::Open;
use crate::surfaces::request::time_zone;
use crate::surfaces::stats::MOST_ROWS;

/// The lengths of time that pages link to: the parameter `last`, its words, and its hours.
const LENGTHS: [(&str, &str, i64); 3] = [("24h", "24 hours", 24), ("7d", "7 days", 168), ("30d", "30 days", 720)];
const HOUR_US: i64 = 3_600_000_000;
const MINUTE_US: i64 = 60_000_000;
/// The hours of a page whose address names no time.
const HOURS: i64 = 168;

/// The time that a page is about.
pub(super) struct Range {
    from: Timestamp,
    to: Timestamp,
    zone: Tz,
    /// The parameters that name it.
    given: Vec<(&'static str, String)>,
}

impl Range {
    /// The time that the address names: its last hours or days, or from and to; else the last 7 days.
    ///
    /// # Errors
    /// Names each invalid parameter.
    fn new(given: &Parameters, visitor: &Visitor, now_us: i64) -> Result<Self, Error> {
        let mut errors = Vec::new();
        let zone = time_zone(given.get("zone").as_deref()).unwrap_or_else(|detail| {
            errors.push(FieldError::new("zone", detail));
            None
        });
        let zone = zone.unwrap_or(visitor.zone);
        let mut read = |name, allowed: &str, parse: &dyn Fn(&str) -> Option<i64>| {
            let text = given.get(name)?;
            let read = parse(&text);
            if read.is_none() {
                errors.push(FieldError::new(name, found(&text, allowed)));
            }
            read
        };
        let allowed = "a time such as 2026-11-20T14:00 or 2026-11-20T14:00:00Z, or a day such as 2026-11-20";
        let at = |text: &str| moment(text, zone);
        let (from, to) = (read("from", allowed, &at), read("to", allowed, &at));
        let length = |last: &str| Some(LENGTHS.iter().find(|(name, ..)| *name == last)?.2);
        let last = match from.or(to) {
            Some(_) => None,
            None => read("last", &LENGTHS.map(|(name, ..)| name).join(", "), &length),
        };
        let hours = last.unwrap_or(HOURS);
        // To the end of the minute, so that addresses are short and a reload shows the same.
        let end = to.unwrap_or((now_us / MINUTE_US + 1) * MINUTE_US);
        let begin = from.unwrap_or(end - hours * HOUR_US);
        if errors.is_empty() && begin >= end {
            let (begin, end) = (Timestamp(begin), Timestamp(end));
            errors.push(FieldError::new(
                "from",
                format!("is {begin}, which is not before {end}"),
            ));
        }
        if !errors.is_empty() {
            return Err(errors.into());
        }
        let names = ["last", "from", "to", "zone"];
        let given = names.into_iter().filter_map(|name| Some((name, given.get(name)?)));
        Ok(Self {
            from: Timestamp(begin),
            to: Timestamp(end),
            zone,
            given: given.collect(),
        })
    }

    /// A page about the same time, with these parameters.
    fn link(&self, path: &str, more: &[(&str, Option<&str>)]) -> String {
        let own = self.given.iter().map(|(name, value)| (*name, Some(value.as_str())));
        address(path, &own.chain(more.iter().copied()).collect::<Vec<_>>())
    }

    /// A route of the API about the same time, with these parameters.
    fn route(&self, path: &str, more: &[(&str, Option<&str>)]) -> String {
        let (from, to) = (self.from.to_string(), self.to.to_string());
        let own = [("from", Some(from.as_str())), ("to", Some(to.as_str()))];
        address(path, &[&own, more].concat())
    }

    /// The export of the rows behind a page.
    fn export(&self, source: ExportSource, filter: Option<&str>) -> Option<String> {
        let more = [("format", Some(ExportFormat::Csv.as_str())), ("filter", filter)];
        Some(self.route(&format!("/v1/export/{source}"), &more))
    }

    /// A question about decisions of this time.
    fn question(&self, by: &[&str], measures: &[&str], bucket: Option<Bucket>) -> StatsQuery {
        self.over(StatsQuery {
            by: by.iter().map(|name| (*name).to_owned()).collect(),
            measures: measures.iter().map(|name| Measure::Named((*name).to_owned())).collect(),
            bucket,
            limit: Some(MOST_ROWS),
            ..StatsQuery::default()
        })
    }

    /// The question over this time.
    fn over(&self, query: StatsQuery) -> StatsQuery {
        let (from, to, time_zone) = (Some(self.from), Some(self.to), Some(self.zone.name().to_owned()));
        StatsQuery {
            from,
            to,
            time_zone,
            ..query
        }
    }

    /// The length of time of a column: at most about a hundred fit.
    fn bucket(&self) -> Bucket {
        match (self.to.0 - self.from.0) / HOUR_US {
            0..=72 => Bucket::Hour,
            73..=2208 => Bucket::Day,
            2209..=17_520 => Bucket::Week,
            _ => Bucket::Month,
        }
    }
}

/// A point in time: RFC 3339, or as the clocks of the zone show it.
fn moment(text: &str, zone: Tz) -> Option<i64> {
    if let Some(at) = Timestamp::parse(text) {
        return Some(at.0);
    }
    let formats = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"];
    let mut local = formats
        .iter()
        .filter_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    let day = || Some(NaiveDateTime::from(text.parse::<NaiveDate>().ok()?));
    let local = local.next().or_else(day)?;
    Some(zone.from_local_datetime(&local).earliest()?.timestamp_micros())
}

/// The begin of a bucket, for people.
fn begin(bucket: Bucket, begin: &str) -> String {
    let format = match bucket {
        Bucket::Hour => "%-d %b %H:%M",
        Bucket::Day | Bucket::Week => "%-d %b",
        Bucket::Month => "%b %Y",
    };
    DateTime::parse_from_rfc3339(begin).map_or_else(|_| begin.to_owned(), |at| at.format(format).to_string())
}

/// Answers a question about the rows that the visitor sees.
async fn ask(edge: &Open, visitor: &Visitor, query: StatsQuery) -> Result<Statistics, Turned> {
    let answer = edge.stats.ask(&visitor.caller, visitor.rows(), query).await;
    answer.map_err(|problem| problem.of_parameters().into())
}

/// The text of a row's member.
fn text<'a>(row: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    row.get(name).and_then(Value::as_str)
}

/// The number of a row's member; of a share, its value.
fn number(row: &Map<String, Value>, name: &str) -> Option<f64> {
    stats::number(row.get(name)?)
}

/// A number of a row as text, by the name of its measure.
fn tell(measure: &str, number: f64) -> String {
    match measure {
        "sum(cost_usd)" => words::dollars(number),
        _ if measure.contains("_ms)") => words::took(number.round() as u64),
        _ if measure.contains("_bytes)") => words::bytes(number),
        "failed" => format!("{:.1} %", number * 100.0),
        _ => words::grouped(number.round() as u64),
    }
}

/// What is before a field of a source in a filter of decisions.
fn of(source: StatsSource) -> &'static str {
    match source {
        StatsSource::Decisions => "",
        StatsSource::ToolInvocations => "call.",
    }
}

/// What a sum of costs lacks.
fn unknown_costs(range: &Range, found: &Statistics) -> Markup {
    html! {
        @if let Some(missing @ 1..) = found.missing.cost {
            p.hint { "The cost lacks " a href=(range.link(paths::DECISIONS, &[("filter", Some("cost_nano = null"))])) { (words::count(missing, "decision")) " whose cost is unknown" } "." }
        }
    }
}

/// A condition of the filter language.
fn condition(field: &str, op: &str, value: Option<&str>) -> String {
    match value {
        Some(value) => format!("{field} {op} {}", quoted(value)),
        None => format!("{field} {op} null"),
    }
}

/// The filter of the decisions behind a row.
fn behind(query: &StatsQuery, row: &Map<String, Value>) -> String {
    let of = of(query.source.unwrap_or(StatsSource::Decisions));
    let by = query.by.iter();
    let conditions = by.map(|field| condition(&format!("{of}{field}"), "=", text(row, field)));
    conditions.collect::<Vec<_>>().join(" AND ")
}

/// A filter with a further condition.
fn and(filter: Option<&str>, condition: &str) -> String {
    match filter {
        None => condition.to_owned(),
        Some(filter) if filter.contains(condition) => filter.to_owned(),
        Some(filter) if filter.contains(" OR ") => format!("({filter}) AND {condition}"),
        Some(filter) => format!("{filter} AND {condition}"),
    }
}

/// The same answer elsewhere: a route of the API, an export, a SELECT.
struct Ways {
    json: String,
    csv: Option<String>,
    sql: Option<String>,
}

impl Ways {
    fn markup(&self, visitor: &Visitor) -> Markup {
        let user = visitor.rows().filter(|_| visitor.logged_in);
        let link = |path: &str| {
            html! {
                // Without a login the browser may ask the API; else it has no key.
                @if visitor.logged_in {
                    pre.raw { "curl -H \"Authorization: Bearer $KEY\" "
                        @if let Some(user) = &user { "-H 'X-Gavel-User: " (words::text(&user.as_str().replace('\'', "'\\''"))) "' " }
                        "\"$GAVEL" (words::text(path)) "\"" }
                } @else { p { a href=(path) { (words::text(path)) } } }
            }
        };
        html! {
            details.ways {
                summary { "As JSON" @if self.csv.is_some() { ", CSV" } @if self.sql.is_some() { ", SQL" } }
                h2 { "JSON" } (link(&self.json))
                @if let Some(csv) = &self.csv { h2 { "CSV" } (link(csv)) }
                @if let Some(sql) = &self.sql {
                    h2 { "SQL" }
                    p.hint { "For PostgreSQL. On SQLite the names of views begin with " code { "gavel_v1_" } "." }
                    pre.raw { (words::text(sql)) }
                }
            }
        }
    }
}

/// The pages, in the order of the navigation.
const PAGES: [(&str, &str); 5] = [
    (paths::OVERVIEW, "Overview"),
    (paths::DECISIONS, "Decisions"),
    (paths::TOOLS, "Tools"),
    (paths::MODELS, "Models"),
    (paths::COST, "Cost"),
];

/// A page about a time. `kept` are parameters that another time keeps.
fn page(visitor: &Visitor, range: &Range, path: &str, kept: &[(&str, Option<&str>)], body: &Markup) -> HttpResponse {
    let title = PAGES.iter().find(|(page, _)| *page == path);
    let title = title.map_or("", |(_, title)| title);
    let given = |name| range.given.iter().find(|(given, _)| *given == name);
    let is_own = ["from", "to", "zone"].into_iter().any(|name| given(name).is_some());
    let last = given("last").map(|(_, last)| last.as_str());
    let body = html! {
        div.analysis {
            (navigation(path, Some(range)))
            div.heading {
                h1 { (title) }
                p.lead { (words::at(range.from.0, range.zone)) " to " (words::at(range.to.0, range.zone)) }
            }
            div.range {
                nav aria-label="Time" {
                    @for (name, words, hours) in LENGTHS {
                        @let is_this = !is_own && last.map_or(hours == HOURS, |last| last == name);
                        a href=(address(path, &[&[("last", Some(name))], kept].concat())) aria-current=[is_this.then_some("true")] { (words) }
                    }
                }
                details open[is_own] {
                    summary { "Other time" }
                    form method="get" action=(path) {
                        @for (name, value) in kept { @if let Some(value) = value { input type="hidden" name=(name) value=(value); } }
                        @for (name, label, at) in [("from", "From", range.from), ("to", "To", range.to)] {
                            label for=(name) { (label) }
                            input #(name) type="datetime-local" name=(name) value=(local(at, range.zone));
                        }
                        label for="zone" { "Time zone" }
                        input #zone type="text" name="zone" value=(range.zone.name()) autocomplete="off" spellcheck="false";
                        button.plain type="submit" { "Show" }
                    }
                }
            }
            (body)
        }
    };
    visitor.page(title, &body)
}

fn navigation(path: &str, range: Option<&Range>) -> Markup {
    html! {
        nav.parts aria-label="Analysis" {
            @for (page, title) in PAGES {
                @let link = range.map_or_else(|| page.to_owned(), |range| range.link(page, &[]));
                a href=(link) aria-current=[(page == path).then_some("page")] { (title) }
            }
        }
    }
}

fn local(at: Timestamp, zone: Tz) -> String {
    let at = DateTime::from_timestamp_micros(at.0).unwrap_or_default();
    at.with_timezone(&zone).format("%Y-%m-%dT%H:%M").to_string()
}

/// What a page has if no decision is in its time: what it will show, and how to make a first decision.
fn nothing_yet(range: &Range, path: &str) -> Markup {
    html! {
        div.empty {
            p { b { "No decision of this time has ended." } " " a href=(address(path, &[("last", Some("30d"))])) { "Show the last 30 days" } }
            p { "Each chat message, trigger and thread message becomes a decision: these pages show how it ended, how long it took, \
                what it cost, and which tools and models it used." }
            p { "Make a first one:" }
            pre.raw { "curl -s \"$GAVEL/v1/chat\" -H 'content-type: application/json' -H 'x-gavel-user: ann' -d '{\"message\": \"hello\"}'" }
            @if range.to.0 - range.from.0 < HOUR_US { p { "This page is about less than an hour." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_rfc_3339_or_what_the_clocks_of_the_zone_show() {
        let berlin = Tz::Europe__Berlin;
        for (text, expected) in [
            ("2026-11-20T14:00:00Z", "2026-11-20T14:00:00.000000Z"),
            ("2026-11-20T14:00", "2026-11-20T13:00:00.000000Z"),
            ("2026-07-20", "2026-07-19T22:00:00.000000Z"),
        ] {
            let at = moment(text, berlin).map(Timestamp).map(|at| at.to_string());
            assert_eq!(at.as_deref(), Some(expected), "{text}");
        }
        assert_eq!(moment("tomorrow", berlin), None);
    }

    #[test]
    fn a_clicked_value_becomes_a_condition_once() {
        let is = condition("tool", "=", Some("a\"b\\*"));
        assert_eq!(is, r#"tool = "a\"b\\\*""#);
        assert_eq!(condition("model", "!=", None), "model != null");
        let both = and(Some("a = \"x\" OR b = \"y\""), &is);
        assert_eq!(both, format!("(a = \"x\" OR b = \"y\") AND {is}"));
        assert_eq!(and(Some(&both), &is), both);
    }
}

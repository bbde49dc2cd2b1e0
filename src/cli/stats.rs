//! `gavel stats`: counts, shares, percentiles and sums of the logs. On a terminal each number has a bar, as long as it is
//! beside the largest of its column.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::api::stats::{Bucket, CompareQuery, Compared, Comparison, Difference, Others, Share, Side, Statistics};
use crate::cli::client::{Wait, parameters};
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, OfTenant, Talk};
use crate::cli::lines::object;
use crate::cli::list::{clipped, known, since, table};
use crate::cli::{commands, output};
use crate::domain::time::Timestamp;

commands! {
    /// The commands of `gavel stats`.
    Command {
        /// How decisions ended
        Outcomes(Outcomes, OfTenant),
        /// Where the time of decisions went: models, tools, people, gavel itself
        Latency(Latency, OfTenant),
        /// How tools did: calls, failures, durations
        Tools(Tools, OfTenant),
        /// What models cost, and their tokens
        Cost(Cost, OfTenant),
        /// Which model answered for which, with errors and durations
        Models(Models, OfTenant),
        /// Ask any question, as POST /v1/stats/query takes it
        Query(Query, OfTenant),
        /// Compare two sets of decisions
        Compare(Compare, OfTenant),
    }
}

/// The time that is counted.
#[derive(Debug, clap::Args)]
struct Span {
    /// From this date, time or length ago
    #[arg(long, default_value = "7d", value_parser = since, value_name = "WHEN")]
    since: i64,
    /// Before this date, time or length ago [default: now]
    #[arg(long, value_parser = since, value_name = "WHEN")]
    until: Option<i64>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Options of a question with a name.
#[derive(Debug, clap::Args)]
struct Asked {
    #[command(flatten)]
    span: Span,
    /// Also by these fields
    #[arg(long, value_delimiter = ',', value_name = "FIELD")]
    by: Vec<String>,
    /// Only matching rows, such as 'surface = "chat"'
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// One row for each length of time
    #[arg(long, value_name = "LENGTH", value_parser = clap::builder::PossibleValuesParser::new(Bucket::WORDS))]
    bucket: Option<String>,
    /// The zone of days, weeks and months, such as Asia/Kolkata [default: UTC]
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    /// Order by a column; with - from the greatest on
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    order: Option<String>,
    /// The most rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: Option<u32>,
}

impl Asked {
    async fn talk(&self, gavel: &Gavel, named: &str) -> anyhow::Result<Exit> {
        let time = |us: i64| Some(Timestamp(us).to_string());
        let by = (!self.by.is_empty()).then(|| self.by.join(","));
        let query = parameters([
            ("from", time(self.span.since)),
            ("to", self.span.until.and_then(time)),
            ("by", by),
            ("filter", self.filter.clone()),
            ("bucket", self.bucket.clone()),
            ("time_zone", self.time_zone.clone()),
            ("order", self.order.clone()),
            ("limit", self.limit.map(|limit| limit.to_string())),
        ]);
        let found: Statistics = gavel.get_with(&format!("v1/stats/{named}"), &query).await?;
        print(self.span.json, &found)
    }
}

macro_rules! named {
    ($($(#[$about:meta])* $name:ident = $path:literal;)+) => {
        $($(#[$about])*
        #[derive(Debug, clap::Args)]
        pub(super) struct $name {
            #[command(flatten)]
            asked: Asked,
        }

        impl Talk for $name {
            async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
                self.asked.talk(gavel, $path).await
            }
        })+
    };
}

named! {
    /// Options of `gavel stats outcomes`.
    Outcomes = "outcomes";
    /// Options of `gavel stats latency`.
    Latency = "latency";
    /// Options of `gavel stats tools`.
    Tools = "tools";
    /// Options of `gavel stats cost`.
    Cost = "cost";
    /// Options of `gavel stats models`.
    Models = "models";
}

/// Options of `gavel stats query`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Query {
    /// The question as JSON, @FILE with it, or - for standard input
    #[arg(value_parser = object, value_name = "JSON")]
    question: Map<String, Value>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  gavel stats query '{\"by\": [\"intent\"], \"measures\": [\"count\", \"p95(duration_ms)\"], \"order\": \"-count\"}'
  gavel stats query '{\"bucket\": \"day\", \"measures\": [{\"rate\": \"outcome_category = \\\"ERROR:*\\\"\"}]}'";

impl Talk for Query {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let found: Statistics = gavel.post("v1/stats/query", &[], Wait::No, &self.question).await?;
        print(self.json, &found)
    }
}

/// Options of `gavel stats compare`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = COMPARE_EXAMPLE)]
pub(super) struct Compare {
    /// The filter of the first set
    a: String,
    /// The filter of the second set
    b: String,
    #[command(flatten)]
    span: Span,
}

const COMPARE_EXAMPLE: &str = "\
Example:
  gavel stats compare 'definition_hash = \"1f…\"' 'definition_hash = \"9c…\"' --since 30d";

impl Talk for Compare {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let question = CompareQuery {
            a: self.a.clone(),
            b: self.b.clone(),
            from: Some(Timestamp(self.span.since)),
            to: self.span.until.map(Timestamp),
        };
        let found: Comparison = gavel.post("v1/stats/compare", &[], Wait::No, &question).await?;
        output::answer(self.span.json, &found, compared)
    }
}

/// What it says, then the outcomes, then the two sets.
fn compared(found: &Comparison) -> String {
    let percent = |share: &Share| known(number(&serde_json::json!(share)).map(|(text, _)| text));
    let outcome = |one: &Compared| {
        let points = |share: f64| format!("{:+.1}", share * 100.0);
        let difference = |it: Difference| format!("{} ({} to {})", points(it.value), points(it.low), points(it.high));
        let p = |p: f64| match p < 0.001 {
            true => "< 0.001".to_owned(),
            false => format!("{p:.3}"),
        };
        let (difference, p) = (known(one.difference.map(difference)), known(one.p.map(p)));
        vec![one.name.clone(), percent(&one.a), percent(&one.b), difference, p]
    };
    let outcomes: Vec<_> = found.outcomes.iter().map(outcome).collect();
    let side = |name: &str, of: &Side| {
        vec![
            name.to_owned(),
            of.n.to_string(),
            known(of.p50),
            known(of.p95),
            known(of.cost_usd.as_deref()),
            percent(&of.failed_calls),
        ]
    };
    format!(
        "{}\n\n{}\n{}",
        output::printable(&found.says),
        table(&["outcome", "a", "b", "points (95 %)", "p"], &outcomes),
        table(
            &["set", "decisions", "p50 ms", "p95 ms", "cost $", "with failed calls"],
            &[side("a", &found.a), side("b", &found.b)]
        )
    )
}

fn print(json: bool, found: &Statistics) -> anyhow::Result<Exit> {
    let exit = output::answer(json, found, |found| text(found, output::answers_are_shown()))?;
    if json {
        return Ok(exit);
    }
    if let Some(Others { groups, count }) = found.other {
        let words = format!("{groups} more rows with a count of {count}: --limit shows them");
        output::note(&words);
    }
    if found.open > 0 {
        output::note(&format!("not counted, since they have not ended: {}", found.open));
    }
    if let Some(missing @ 1..) = found.missing.cost {
        output::note(&format!("of unknown cost: {missing} (`gavel prices check` says why)"));
    }
    if let Some(error) = found.percentile_error {
        output::note(&format!("percentiles are within {:.0} %", error * 100.0));
    }
    Ok(exit)
}

/// A number as it is shown, and the length of its bar.
fn number(value: &Value) -> Option<(String, f64)> {
    Some(match value {
        Value::Number(number) => (number.to_string(), number.as_f64()?),
        Value::Object(_) => {
            let share: Share = serde_json::from_value(value.clone()).ok()?;
            let percent = |share: Option<f64>| share.unwrap_or_default() * 100.0;
            let (value, low, high) = (percent(share.value), percent(share.low), percent(share.high));
            (format!("{value:.1} % ({low:.1}–{high:.1})"), value)
        }
        Value::String(dollars) => (dollars.clone(), dollars.parse().ok()?),
        _ => return None,
    })
}

/// Fields first, then what is measured. A row alone is shown as lines.
fn text(found: &Statistics, with_bars: bool) -> String {
    let members: BTreeSet<_> = found.rows.iter().flat_map(Map::keys).collect();
    let is_measured = |name: &str| {
        name.contains('(')
            || found
                .rows
                .iter()
                .any(|row| row[name].is_number() || row[name].is_object())
    };
    let (mut measured, mut fields): (Vec<_>, Vec<_>) = members.into_iter().partition(|name| is_measured(name));
    fields.sort_by_key(|name| *name != "bucket");
    measured.sort_by_key(|name| *name != "count");
    let width = if measured.len() > 4 { 6 } else { 12 };
    let shown = |value: &Value, most: f64| {
        known(number(value).map(|(text, length)| match with_bars {
            true => format!("{text:>8} {}", bar(length / most, width)),
            false => text,
        }))
    };
    let most = |values: &mut dyn Iterator<Item = &Value>| {
        let lengths = values.filter_map(number).map(|(_, length)| length);
        lengths.fold(f64::MIN_POSITIVE, f64::max)
    };
    match found.rows.as_slice() {
        [] => "nothing was counted\n".to_owned(),
        [row] if fields.is_empty() => {
            let line = |name: &&String| {
                // What has the same unit is compared.
                let unit = |name: &str| name.rsplit_once('_').map(|(_, unit)| unit.to_owned());
                let same = measured.iter().filter(|other| unit(other) == unit(name));
                let most = most(&mut same.map(|name| &row[name.as_str()]));
                vec![(*name).clone(), shown(&row[name.as_str()], most)]
            };
            table(&["", ""], &measured.iter().map(line).collect::<Vec<_>>())
        }
        rows => {
            let heads: Vec<_> = fields.iter().chain(&measured).map(|name| name.as_str()).collect();
            let row = |row: &Map<String, Value>| {
                let field = fields
                    .iter()
                    .map(|name| clipped(&known(row[name.as_str()].as_str()), 40));
                let measure = measured.iter().map(|name| {
                    let most = most(&mut rows.iter().map(|row| &row[name.as_str()]));
                    shown(&row[name.as_str()], most)
                });
                field.chain(measure).collect::<Vec<_>>()
            };
            table(&heads, &rows.iter().map(row).collect::<Vec<_>>())
        }
    }
}

/// A share of a line, to an eighth of a character.
fn bar(share: f64, width: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    format!("{}{part}", "█".repeat(eighths / 8))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(rows: Value) -> Statistics {
        let whole = json!({"rows": rows, "from": "2026-11-18T00:00:00Z", "to": "2026-11-25T00:00:00Z", "open": 0,
            "data_until": "2026-11-25T00:00:00Z", "source": "rollup", "other": null, "missing": {"cost": null},
            "percentile_error": null});
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn fields_come_first_and_bars_are_as_long_as_their_numbers() {
        let rows = found(json!([{"count": 8, "model": "a"}, {"count": 2, "model": null}]));
        assert_eq!(text(&rows, false), "model  count\na      8\n-      2\n");
        assert_eq!(text(&rows, true).lines().last(), Some("-             2 ███"));
        let share = json!({"k": 1, "n": 8, "value": 0.125, "low": 0.1, "high": 0.3});
        let alone = found(json!([{"p50(model_ms)": 10, "p95(model_ms)": 40, "failed": share}]));
        assert!(
            text(&alone, true).contains("p50(model_ms)        10 ███\n"),
            "{}",
            text(&alone, true)
        );
        assert!(text(&alone, false).contains("12.5 % (10.0–30.0)"));
        assert_eq!(text(&found(json!([])), true), "nothing was counted\n");
    }
}

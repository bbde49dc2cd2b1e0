//! Statistics of the decision log and the tool-call log.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::names::{names, sent};
use crate::domain::time::{Timestamp, given};

names! {
    /// What is counted.
    #[derive(Default)]
    StatsSource {
        /// Decisions that have their outcome.
        #[default]
        Decisions = "decisions",
        /// Tool calls that have ended.
        ToolInvocations = "tool_invocations",
    }
}

names! {
    /// A length of time that rows are counted by.
    Bucket {
        /// An hour.
        Hour = "hour",
        /// A day of the time zone.
        Day = "day",
        /// A week of the time zone, from Monday.
        Week = "week",
        /// A month of the time zone.
        Month = "month",
    }
}

names! {
    /// Where counts were read.
    StatsFrom {
        /// From counts of quarters of an hour; what changed since they were made is read from the log.
        Rollup = "rollup",
        /// From the log.
        Log = "log",
    }
}

/// A question about many rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StatsQuery {
    /// What is counted; absent: decisions.
    pub source: Option<StatsSource>,
    /// From this time on; absent: 7 days before `to`.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub from: Option<Timestamp>,
    /// Before this time; absent: now.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub to: Option<Timestamp>,
    /// The zone of days, weeks and months, such as `Asia/Kolkata`; absent: UTC.
    pub time_zone: Option<String>,
    /// One row for each length of time; absent: one for all of it.
    pub bucket: Option<Bucket>,
    /// One row for each value of these fields.
    #[serde(default)]
    pub by: Vec<String>,
    /// Only these rows: a filter of the list of the source.
    pub filter: Option<String>,
    /// What each row has; absent: `count`.
    #[serde(default)]
    pub measures: Vec<Measure>,
    /// A name of a row's members, with `-` from the greatest on; absent: `bucket`, else `-count`.
    pub order: Option<String>,
    /// The most rows, 1 to 10000; absent: 1000. `other` counts those that are left out.
    pub limit: Option<u32>,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Measure {
    /// `count`, `p50(duration_ms)` (of 1 to 99), `avg(duration_ms)`, `sum(input_tokens)`, `sum(cost_usd)`.
    Named(String),
    /// The share of rows that a filter has.
    Rate(Rate),
}

impl Measure {
    /// Its name in the rows.
    pub fn name(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::Rate(rate) => rate.name.as_deref().unwrap_or("rate"),
        }
    }
}

/// The share of rows that a filter has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The filter.
    pub rate: String,
    /// Its name in the rows; absent: `rate`.
    pub name: Option<String>,
}

sent! {
    /// A share, with its interval of 95 % (Wilson).
    #[derive(Copy, PartialEq)]
    Share as "Share" {
        /// How many have it.
        k: u64,
        /// How many there are.
        n: u64,
        /// `k / n`; null of nothing.
        value: Option<f64>,
        /// The lower end of the interval.
        low: Option<f64>,
        /// The upper end.
        high: Option<f64>,
    }
}

/// The number of a row's member: of a share its value, of a decimal text what it says.
pub fn number(member: &Value) -> Option<f64> {
    match member {
        Value::Object(share) => share.get("value")?.as_f64(),
        Value::String(text) => text.parse().ok(),
        member => member.as_f64(),
    }
}

sent! {
    /// The answer to a question about many rows.
    Statistics as "Statistics" {
        /// From this time on.
        from: Timestamp,
        /// Before this time.
        to: Timestamp,
        /// Each row has `bucket` (its begin, in the time zone) if one was asked for, the fields of `by` (null: rows without
        /// it), and each measure under its name: a number, null where there is none, a `Share`, or of `sum(cost_usd)` a
        /// decimal text (null: no cost is known).
        #[shape(Shape::List(Box::new(Shape::Object)))]
        rows: Vec<Map<String, Value>>,
        /// What `limit` left out; null: nothing.
        other: Option<Others>,
        /// Rows of that time that have not ended, so that they are counted nowhere yet.
        open: u64,
        /// What sums do not have.
        missing: Missing,
        /// Everything that was committed before is counted.
        data_until: Timestamp,
        /// Where it was read.
        source: StatsFrom,
        /// The greatest distance of a percentile from the true one, as a share of it; null: no percentile was asked for.
        percentile_error: Option<f64>,
    }
}

sent! {
    /// Rows that are left out.
    #[derive(Copy, PartialEq, Eq)]
    Others as "Others" {
        /// How many.
        groups: u64,
        /// What they count.
        count: u64,
    }
}

sent! {
    /// What sums do not have.
    #[derive(Copy, PartialEq, Eq)]
    Missing as "Missing" {
        /// Decisions whose cost is unknown, if cost was asked for; else null.
        cost: Option<u64>,
    }
}

/// Two sets of decisions to compare.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompareQuery {
    /// The filter of the first.
    pub a: String,
    /// The filter of the second.
    pub b: String,
    /// From this time on; absent: 7 days before `to`.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub from: Option<Timestamp>,
    /// Before this time; absent: now.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub to: Option<Timestamp>,
}

sent! {
    /// Two sets of decisions beside each other.
    Comparison as "Comparison" {
        /// From this time on.
        from: Timestamp,
        /// Before this time.
        to: Timestamp,
        /// The first set.
        a: Side,
        /// The second set.
        b: Side,
        /// Each outcome, and how its share differs; the most significant first.
        outcomes: Vec<Compared>,
        /// How the traffic differs: fields whose values are distributed otherwise, the largest shift first.
        mix: Vec<Shift>,
        /// What it says, in words.
        says: String,
    }
}

sent! {
    /// One of two sets.
    Side as "Side" {
        /// How many decisions.
        n: u64,
        /// Percentiles of the duration, in milliseconds.
        #[serde(rename = "p50(duration_ms)")]
        p50: Option<f64>,
        /// The same.
        #[serde(rename = "p95(duration_ms)")]
        p95: Option<f64>,
        /// Cost of the decisions whose cost is known, in US dollars; null: of none.
        #[serde(rename = "sum(cost_usd)")]
        cost_usd: Option<String>,
        /// Decisions whose cost is unknown.
        cost_missing: u64,
        /// Decisions with a tool call that did not succeed.
        failed_calls: Share,
    }
}

sent! {
    /// An outcome in both sets.
    Compared as "Compared" {
        /// The outcome.
        name: String,
        /// Its share of the first set.
        a: Share,
        /// Its share of the second.
        b: Share,
        /// The second less the first, with its interval of 95 % (Newcombe); null if a set is empty.
        difference: Option<Difference>,
        /// How probable a difference of this size is if there is none: Fisher's exact test where fewer than 5 are expected,
        /// else the z-test.
        p: Option<f64>,
    }
}

sent! {
    /// A difference of shares.
    #[derive(Copy, PartialEq)]
    Difference as "Difference" {
        /// In shares: 0.01 is a point.
        value: f64,
        /// The lower end of the interval.
        low: f64,
        /// The upper end.
        high: f64,
    }
}

sent! {
    /// A field whose values are distributed otherwise.
    Shift as "Shift" {
        /// The field.
        field: String,
        /// The value whose share differs most; null: rows without it.
        value: Option<String>,
        /// By how much.
        largest_shift: f64,
    }
}

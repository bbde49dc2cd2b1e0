//! Statistics of the decision log and the tool-call log.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::names::described_here;
use crate::domain::names::names;
use crate::domain::time::Timestamp;

names! {
    /// What is counted.
    StatsSource {
        /// Decisions that have their outcome.
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

described_here!(StatsSource, Bucket, StatsFrom);

/// A question about many rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StatsQuery {
    /// What is counted; absent: decisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<StatsSource>,
    /// From this time on; absent: 7 days before `to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub from: Option<Timestamp>,
    /// Before this time; absent: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub to: Option<Timestamp>,
    /// The zone of days, weeks and months, such as `Asia/Kolkata`; absent: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// One row for each length of time; absent: one for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bucket>,
    /// One row for each value of these fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// Only these rows: a filter of the list of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// What each row has; absent: `count`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measures: Vec<Measure>,
    /// A name of a row's members, with `-` from the greatest on; absent: `bucket`, else `-count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// The most rows, 1 to 10000; absent: 1000. `other` counts those that are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

/// The share of rows that a filter has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The filter.
    pub rate: String,
    /// Its name in the rows; absent: `rate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A share, with its interval of 95 % (Wilson).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Share {
    /// How many have it.
    pub k: u64,
    /// How many there are.
    pub n: u64,
    /// `k / n`; null of nothing.
    #[schema(required = true)]
    pub value: Option<f64>,
    /// The lower end of the interval.
    #[schema(required = true)]
    pub low: Option<f64>,
    /// The upper end.
    #[schema(required = true)]
    pub high: Option<f64>,
}

/// The answer to a question about many rows.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Statistics {
    /// From this time on.
    #[schema(value_type = String, format = "date-time")]
    pub from: Timestamp,
    /// Before this time.
    #[schema(value_type = String, format = "date-time")]
    pub to: Timestamp,
    /// Each row has `bucket` (its begin, in the time zone) if one was asked for, the fields of `by` (null: rows without
    /// it), and each measure under its name: a number, null where there is none, a `Share`, or of `sum(cost_usd)` a
    /// decimal text (null: no cost is known).
    #[schema(value_type = Vec<Object>)]
    pub rows: Vec<Map<String, Value>>,
    /// What `limit` left out; null: nothing.
    #[schema(required = true)]
    pub other: Option<Others>,
    /// Rows of that time that have not ended, so that they are counted nowhere yet.
    pub open: u64,
    /// What sums do not have.
    pub missing: Missing,
    /// Everything that was committed before is counted.
    #[schema(value_type = String, format = "date-time")]
    pub data_until: Timestamp,
    /// Where it was read.
    pub source: StatsFrom,
    /// The greatest distance of a percentile from the true one, as a share of it; null: no percentile was asked for.
    #[schema(required = true)]
    pub percentile_error: Option<f64>,
}

/// Rows that are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Others {
    /// How many.
    pub groups: u64,
    /// What they count.
    pub count: u64,
}

/// What sums do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Missing {
    /// Decisions whose cost is unknown, if cost was asked for; else null.
    #[schema(required = true)]
    pub cost: Option<u64>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub from: Option<Timestamp>,
    /// Before this time; absent: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "date-time")]
    pub to: Option<Timestamp>,
}

/// Two sets of decisions beside each other.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Comparison {
    /// From this time on.
    #[schema(value_type = String, format = "date-time")]
    pub from: Timestamp,
    /// Before this time.
    #[schema(value_type = String, format = "date-time")]
    pub to: Timestamp,
    /// The first set.
    pub a: Side,
    /// The second set.
    pub b: Side,
    /// Each outcome, and how its share differs; the most significant first.
    pub outcomes: Vec<Compared>,
    /// How the traffic differs: fields whose values are distributed otherwise, the largest shift first.
    pub mix: Vec<Shift>,
    /// What it says, in words.
    pub says: String,
}

/// One of two sets.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Side {
    /// How many decisions.
    pub n: u64,
    /// Percentiles of the duration, in milliseconds.
    #[serde(rename = "p50(duration_ms)")]
    #[schema(required = true)]
    pub p50: Option<f64>,
    /// The same.
    #[serde(rename = "p95(duration_ms)")]
    #[schema(required = true)]
    pub p95: Option<f64>,
    /// Cost of the decisions whose cost is known, in US dollars; null: of none.
    #[serde(rename = "sum(cost_usd)")]
    #[schema(required = true)]
    pub cost_usd: Option<String>,
    /// Decisions whose cost is unknown.
    pub cost_missing: u64,
    /// Decisions with a tool call that did not succeed.
    pub failed_calls: Share,
}

/// An outcome in both sets.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Compared {
    /// The outcome.
    pub name: String,
    /// Its share of the first set.
    pub a: Share,
    /// Its share of the second.
    pub b: Share,
    /// The second less the first, with its interval of 95 % (Newcombe); null if a set is empty.
    #[schema(required = true)]
    pub difference: Option<Difference>,
    /// How probable a difference of this size is if there is none: Fisher's exact test where fewer than 5 are expected,
    /// else the z-test.
    #[schema(required = true)]
    pub p: Option<f64>,
}

/// A difference of shares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// In shares: 0.01 is a point.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A field whose values are distributed otherwise.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Shift {
    /// The field.
    pub field: String,
    /// The value whose share differs most; null: rows without it.
    #[schema(required = true)]
    pub value: Option<String>,
    /// By how much.
    pub largest_shift: f64,
}

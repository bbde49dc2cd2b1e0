//! Counts over many rows of the logs.

use async_trait::async_trait;

use super::records::QueryError;
use crate::api::stats::{StatsFrom, StatsSource};
use crate::domain::histogram::Histogram;
use crate::domain::ids::{TenantId, UserId};

/// Microseconds of a quarter of an hour, the shortest time that is counted by.
pub const QUARTER_US: i64 = 900_000_000;

/// A question about many rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsQuestion {
    /// What is counted.
    pub source: StatsSource,
    /// From this time on, and before the other; microseconds since the epoch.
    pub time: (i64, i64),
    /// Only these rows.
    pub filter: Option<String>,
    /// Fields.
    pub by: Vec<String>,
    /// How time is divided.
    pub units: Option<Units>,
    /// Filters, each with its field for an error.
    pub rates: Vec<String>,
    /// Numbers.
    pub sums: Vec<String>,
    /// Durations.
    pub lengths: Vec<String>,
    /// Only this user's rows.
    pub user: Option<UserId>,
}

/// Divides time into units of some quarters: unit `n` begins `n * quarters - offset` quarters after 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Units {
    /// The length.
    pub quarters: i64,
    /// The offset, and before which quarter it holds; of the last one, always.
    pub offsets: Vec<(i64, i64)>,
}

/// The rows of one unit of time and one value of each field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The unit.
    pub unit: Option<i64>,
    /// The values.
    pub by: Vec<Option<String>>,
    /// How many rows.
    pub count: u64,
    /// How many of them each filter of `rates` has.
    pub rates: Vec<u64>,
    /// The sums.
    pub sums: Vec<i64>,
    /// The durations.
    pub lengths: Vec<Histogram>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tallies {
    /// In no order.
    pub tallies: Vec<Tally>,
    /// Rows of that time that have not ended.
    pub open: u64,
    /// Where they were read.
    pub from: StatsFrom,
}

/// Counts over the logs.
#[async_trait]
pub trait Stats: Send + Sync {
    /// Counts rows of one tenant.
    async fn tally(&self, tenant: &TenantId, question: &StatsQuestion) -> Result<Tallies, QueryError>;
}

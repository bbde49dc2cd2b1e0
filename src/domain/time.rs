//! The format of times in all output.

use chrono::{DateTime, SecondsFormat, Utc};

/// Formats microseconds since the epoch as RFC 3339, in UTC.
#[must_use]
pub fn rfc3339(us: i64) -> String {
    DateTime::<Utc>::from_timestamp_micros(us)
        .unwrap_or_default()
        .to_rfc3339_opts(SecondsFormat::Micros, true)
}

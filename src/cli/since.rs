//! The value of `--since`.

use std::time::Duration;

use chrono::{DateTime, NaiveDate};

use crate::ports::clock::{Clock, SystemClock};

/// A time, or an age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// Microseconds since the epoch.
    At(i64),
    Ago(Duration),
}

impl Since {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(at) = DateTime::parse_from_rfc3339(text) {
            return Ok(Self::At(at.timestamp_micros()));
        }
        if let Some(at) = NaiveDate::parse_from_str(text, "%Y-%m-%d")
            .ok()
            .and_then(|day| day.and_hms_opt(0, 0, 0))
        {
            return Ok(Self::At(at.and_utc().timestamp_micros()));
        }
        let units = [('m', 60), ('h', 3600), ('d', 86400)];
        let ago = units.iter().find_map(|(unit, seconds)| {
            let number: u64 = text.strip_suffix(*unit)?.parse().ok()?;
            number.checked_mul(*seconds).filter(|seconds| *seconds < 1 << 40)
        });
        ago.map(|seconds| Self::Ago(Duration::from_secs(seconds)))
            .ok_or_else(|| "give a date, a time such as 2026-11-01T00:00:00Z, or 90m, 12h, 30d".to_owned())
    }

    /// Microseconds since the epoch.
    pub(super) fn at(self) -> i64 {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => SystemClock.now_us() - i64::try_from(ago.as_micros()).unwrap_or(i64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_a_time_and_a_length_are_understood_and_nothing_else() {
        assert_eq!(Since::parse("1970-01-02"), Ok(Since::At(86_400_000_000)));
        assert_eq!(Since::parse("1970-01-01T01:00:00+01:00"), Ok(Since::At(0)));
        assert_eq!(Since::parse("90m"), Ok(Since::Ago(Duration::from_secs(5400))));
        for invalid in [
            "",
            "h",
            "-1d",
            "1w",
            "1ä",
            "yesterday",
            "99999999999999999999d",
            "2026-13-01",
            "18446744073709551615d",
        ] {
            assert!(Since::parse(invalid).is_err(), "{invalid}");
        }
    }
}

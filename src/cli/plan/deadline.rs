//! The value of `--deadline`.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};

/// The longest time ahead; the server has a limit of its own.
const MOST: Duration = Duration::from_secs(366 * 24 * 3600);

const ALLOWED: &str = "give a length such as 90m, 2h, 1h30m or 1d, or a time with its offset such as \
                       2026-12-01T18:00:00+01:00";

/// A time, or a length from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    /// RFC 3339, as it was given.
    At(String),
    In(Duration),
}

impl Deadline {
    /// Parses the value.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if DateTime::parse_from_rfc3339(text).is_ok() {
            return Ok(Self::At(text.to_owned()));
        }
        let length = length(text).filter(|length| !length.is_zero() && *length <= MOST);
        length.map(Self::In).ok_or(ALLOWED)
    }

    /// The time in RFC 3339, for a session that is created at `now`.
    pub(super) fn at(&self, now: DateTime<Utc>) -> String {
        match self {
            Self::At(text) => text.clone(),
            Self::In(length) => (now + *length).to_rfc3339_opts(SecondsFormat::Secs, true),
        }
    }
}

/// `1h30m`: numbers, each with its unit.
fn length(text: &str) -> Option<Duration> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86400)];
    let (mut seconds, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..end].parse().ok()?;
        let unit = rest[end..].chars().next()?;
        let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
        seconds = seconds.checked_add(number.checked_mul(*factor)?)?;
        rest = &rest[end + unit.len_utf8()..];
    }
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_and_a_time_are_understood_and_nothing_else() {
        let now = DateTime::parse_from_rfc3339("2026-11-22T10:00:00.5Z").unwrap().to_utc();
        for (given, at) in [
            ("2h", "2026-11-22T12:00:00Z"),
            ("90m", "2026-11-22T11:30:00Z"),
            ("1h30m", "2026-11-22T11:30:00Z"),
            ("1d", "2026-11-23T10:00:00Z"),
            ("45s", "2026-11-22T10:00:45Z"),
            ("2026-12-01T18:00:00+01:00", "2026-12-01T18:00:00+01:00"),
        ] {
            assert_eq!(Deadline::parse(given).unwrap().at(now), at, "{given}");
        }
        for invalid in [
            "",
            "2",
            "h",
            "0m",
            "-1h",
            "1w",
            "1ä",
            "tomorrow",
            "2026-12-01T18:00:00",
            "2026-12-01",
            "400d",
            "99999999999999999999h",
            "18446744073709551615d",
        ] {
            assert!(Deadline::parse(invalid).is_err(), "{invalid}");
        }
    }
}

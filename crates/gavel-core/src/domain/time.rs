//! Points in time, and their format in all output.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::names::{Shape, Shaped};

/// A point in time: in the database microseconds since the epoch, on the wire RFC 3339 in UTC with microseconds, which
/// sorts as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(
    /// Microseconds since the epoch.
    pub i64,
);

impl Timestamp {
    /// Parses RFC 3339.
    pub fn parse(text: &str) -> Option<Self> {
        let time = DateTime::parse_from_rfc3339(text).ok()?;
        Some(Self(time.timestamp_micros()))
    }
}

impl Shaped for Timestamp {
    fn shape() -> Shape {
        Shape::Text(Some("date-time"), None)
    }
}

/// Formats microseconds since the epoch as RFC 3339, in UTC.
pub fn rfc3339(us: i64) -> String {
    Timestamp(us).to_string()
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = DateTime::<Utc>::from_timestamp_micros(self.0).unwrap_or_default();
        f.write_str(&time.to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = Timestamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("microseconds since the epoch, or RFC 3339")
            }

            fn visit_i64<E: Error>(self, us: i64) -> Result<Timestamp, E> {
                Ok(Timestamp(us))
            }

            fn visit_u64<E: Error>(self, us: u64) -> Result<Timestamp, E> {
                let us = i64::try_from(us).map_err(|_| E::invalid_value(Unexpected::Unsigned(us), &self))?;
                Ok(Timestamp(us))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Timestamp, E> {
                Timestamp::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// A time that a caller may give. The number by which the database has it is no form of a caller's.
///
/// # Errors
/// It is not RFC 3339.
pub fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let parsed = text.map(|text| {
        let allowed = &"RFC 3339, such as 2026-11-20T00:00:00Z";
        Timestamp::parse(&text).ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&text), allowed))
    });
    parsed.transpose()
}

/// `1h30m`: numbers, each with its unit.
pub fn parse_length(text: &str) -> Option<Duration> {
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
    (!text.is_empty()).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn times_have_microseconds_and_a_z_and_are_read_back() {
        let time = Timestamp(1_795_132_800_000_001);
        let text = serde_json::to_string(&time).unwrap();
        assert_eq!(text, "\"2026-11-20T00:00:00.000001Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), time);
        assert_eq!(serde_json::from_str::<Timestamp>("1795132800000001").unwrap(), time);
        assert!(serde_json::from_str::<Timestamp>("\"yesterday\"").is_err());
    }
}

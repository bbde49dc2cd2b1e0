//! The time of an event: existing dates, unambiguous times, known zones.

use std::str::FromStr;

use chrono::{
    DateTime, Duration, FixedOffset, MappedLocalTime, NaiveDate, NaiveDateTime, Offset, TimeZone, Timelike, Utc,
};
use chrono_tz::Tz;
use gavel_mcp_base::ToolError;
use serde_json::{Value, json};

use crate::error::Code;

/// The start and end of an event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Span {
    /// Whole days; the last one is the day before `end`.
    Days {
        start: NaiveDate,
        end: NaiveDate,
        zone: Option<Tz>,
    },
    Times {
        start: DateTime<FixedOffset>,
        end: DateTime<FixedOffset>,
        zone: Option<Tz>,
    },
}

/// One end of a span.
#[derive(Debug, Clone, Copy)]
enum Point {
    Day(NaiveDate),
    Time(DateTime<FixedOffset>),
}

/// An IANA time zone.
pub(crate) fn zone(name: &str) -> Result<Tz, ToolError> {
    Tz::from_str(name).map_err(|_| {
        ToolError::new(
            Code::InvalidTime,
            "`time_zone` is not the name of an IANA time zone such as Europe/Berlin.",
        )
        .about("time_zone")
    })
}

impl Span {
    pub(crate) fn parse(start: &str, end: &str, zone: Option<Tz>) -> Result<Self, ToolError> {
        let span = match (point("start", start, zone)?, point("end", end, zone)?) {
            (Point::Day(start), Point::Day(end)) => Self::Days { start, end, zone },
            (Point::Time(start), Point::Time(end)) => Self::Times { start, end, zone },
            _ => {
                let rule = "`start` and `end` have to be both dates (all day) or both date-times.";
                return Err(ToolError::new(Code::InvalidTime, rule).about("end"));
            }
        };
        let in_order = match span {
            Self::Days { start, end, .. } => end > start,
            Self::Times { start, end, .. } => end > start,
        };
        if !in_order {
            let rule = "`end` has to be after `start`. The end of an all-day event is the day after its last day.";
            return Err(ToolError::new(Code::InvalidTime, rule).about("end"));
        }
        Ok(span)
    }

    /// Is its start in the past: in its zone, or without a zone everywhere on earth?
    pub(crate) fn is_past(self, now: DateTime<Utc>) -> bool {
        match self {
            Self::Days {
                start,
                zone: Some(zone),
                ..
            } => start < now.with_timezone(&zone).date_naive(),
            // The last time zone to begin a day is twelve hours behind UTC.
            Self::Days { start, zone: None, .. } => start < (now - Duration::hours(12)).date_naive(),
            Self::Times { start, .. } => start < now,
        }
    }

    /// The start and end in Google's form.
    pub(crate) fn json(self) -> (Value, Value) {
        let day = |date: NaiveDate| json!({ "date": date.format("%Y-%m-%d").to_string() });
        match self {
            Self::Days { start, end, .. } => (day(start), day(end)),
            Self::Times { start, end, zone } => {
                let time = |time: DateTime<FixedOffset>| {
                    let mut out = json!({ "dateTime": time.to_rfc3339() });
                    if let Some(zone) = zone {
                        out["timeZone"] = zone.name().into();
                    }
                    out
                };
                (time(start), time(end))
            }
        }
    }
}

fn point(argument: &str, text: &str, zone: Option<Tz>) -> Result<Point, ToolError> {
    let invalid = |rule: &str| ToolError::new(Code::InvalidTime, format!("`{argument}` {rule}.")).about(argument);
    if let Some(date) = date(text) {
        return Ok(Point::Day(date));
    }
    let leap = || invalid("has a second of 60, which calendars do not have: give the second before or after");
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        if is_leap(&time) {
            return Err(leap());
        }
        // Z gives the instant without a place; any other offset claims to be the zone's own, and models often give an
        // incorrect one.
        let local = zone.map(|zone| time.with_timezone(&zone));
        let own = local.map(|local| local.offset().fix());
        return match own {
            Some(own) if own != *time.offset() && time.offset().local_minus_utc() != 0 => Err(invalid(&format!(
                "has the offset {}, but `time_zone` has {own} at that time; leave the offset out to mean the local time",
                time.offset()
            ))),
            _ => Ok(Point::Time(time)),
        };
    }
    let local = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M"]
        .iter()
        .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
    match (local, zone) {
        (Some(local), _) if is_leap(&local) => Err(leap()),
        (Some(local), Some(zone)) => match zone.from_local_datetime(&local) {
            MappedLocalTime::Single(time) => Ok(Point::Time(time.fixed_offset())),
            MappedLocalTime::None => Err(invalid(&format!(
                "does not exist in {}: the clocks are set forward over it",
                zone.name()
            ))),
            MappedLocalTime::Ambiguous(first, second) => Err(invalid(&format!(
                "happens twice in {}, as the clocks are set back: give {} or {}",
                zone.name(),
                first.to_rfc3339(),
                second.to_rfc3339()
            ))),
        },
        (Some(_), None) => Err(invalid(
            "has neither an offset nor a `time_zone`, so its time is not certain",
        )),
        (None, _) => Err(invalid(
            "is not an existing date (YYYY-MM-DD, all day) or a date-time such as 2026-03-31T09:00:00+02:00",
        )),
    }
}

/// Is it a second of 60? chrono stores it as second 59 with a second or more of nanoseconds.
fn is_leap(time: &impl Timelike) -> bool {
    time.nanosecond() >= 1_000_000_000
}

/// Exactly YYYY-MM-DD; chrono alone also accepts signs and spaces.
fn date(text: &str) -> Option<NaiveDate> {
    let plain = text.len() == 10
        && text.bytes().enumerate().all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    plain
        .then(|| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn berlin() -> Option<Tz> {
        Some(Tz::Europe__Berlin)
    }

    fn json_of(start: &str, end: &str, zone: Option<Tz>) -> Value {
        let (start, end) = Span::parse(start, end, zone).expect("a span").json();
        json!([start, end])
    }

    fn refused(start: &str, end: &str, zone: Option<Tz>) -> String {
        let error = Span::parse(start, end, zone).expect_err("refused");
        assert_eq!(error.code(), "invalid_time");
        error.message().to_owned()
    }

    #[test]
    fn a_local_time_gets_the_offset_of_its_zone() {
        assert_eq!(
            json_of("2026-07-01T10:00:00", "2026-07-01T11:00", berlin()),
            json!([
                { "dateTime": "2026-07-01T10:00:00+02:00", "timeZone": "Europe/Berlin" },
                { "dateTime": "2026-07-01T11:00:00+02:00", "timeZone": "Europe/Berlin" }
            ])
        );
        assert_eq!(
            json_of("2026-01-01T10:00:00Z", "2026-01-01T12:00:00+01:00", berlin())[0],
            json!({ "dateTime": "2026-01-01T10:00:00+00:00", "timeZone": "Europe/Berlin" })
        );
        assert_eq!(
            json_of("2026-01-01T10:00:00-05:00", "2026-01-01T11:00:00-05:00", None)[0],
            json!({ "dateTime": "2026-01-01T10:00:00-05:00" })
        );
        assert_eq!(
            json_of("2026-01-01T10:00:00.5", "2026-01-01T11:00:00", berlin())[0]["dateTime"],
            "2026-01-01T10:00:00.500+01:00"
        );
        assert_eq!(
            json_of("2028-02-29", "2028-03-01", None),
            json!([{ "date": "2028-02-29" }, { "date": "2028-03-01" }])
        );
    }

    #[test]
    fn a_time_that_does_not_exist_or_happens_twice_is_refused() {
        assert!(refused("2026-03-29T02:30:00", "2026-03-29T04:00:00", berlin()).contains("does not exist"));
        let twice = refused("2026-10-25T02:30:00", "2026-10-25T04:00:00", berlin());
        assert!(twice.contains("2026-10-25T02:30:00+02:00") && twice.contains("2026-10-25T02:30:00+01:00"));
        assert!(Span::parse("2026-10-25T02:30:00+01:00", "2026-10-25T04:00:00", berlin()).is_ok());
        // The hour of the gap: the event lasts one hour, not two.
        let Ok(Span::Times { start, end, .. }) = Span::parse("2026-03-29T01:30:00", "2026-03-29T03:30:00", berlin())
        else {
            panic!("a span");
        };
        assert_eq!(end - start, Duration::hours(1));
    }

    #[test]
    fn what_is_uncertain_or_invalid_is_refused() {
        assert!(refused("2026-07-01T10:00:00", "2026-07-01T11:00:00", None).contains("neither an offset"));
        assert!(refused("2026-07-01T10:00:00+01:00", "2026-07-01T11:00:00+01:00", berlin()).contains("+02:00"));
        for (start, end) in [
            ("2026-07-01", "2026-07-01"),
            ("2026-07-02", "2026-07-01"),
            ("2026-07-01T10:00:00Z", "2026-07-01T10:00:00Z"),
            ("2026-07-01T10:00:00Z", "2026-07-01T11:00:00+02:00"),
            ("2026-07-01", "2026-07-01T10:00:00Z"),
            ("2026-02-29", "2026-03-02"),
            ("tomorrow", "2026-03-02"),
            ("+2026-07-01", "2026-07-02"),
            ("2016-12-31T23:59:60Z", "2017-01-01T00:30:00Z"),
        ] {
            refused(start, end, None);
        }
        refused("2026-12-31T23:59:60", "2027-01-01T00:30:00", berlin());
        assert!(zone("Europe/Berlin").is_ok() && zone("UTC").is_ok());
        assert!(zone("Mars/Olympus").is_err() && zone("+02:00").is_err());
    }

    #[test]
    fn a_day_is_past_when_it_is_past_everywhere() {
        let now = DateTime::parse_from_rfc3339("2026-07-02T11:00:00Z")
            .expect("a time")
            .to_utc();
        let days = |start, end| Span::parse(start, end, None).expect("a span");
        assert!(!days("2026-07-01", "2026-07-02").is_past(now));
        assert!(days("2026-06-30", "2026-07-05").is_past(now));
        let there = |zone| Span::parse("2026-07-02", "2026-07-03", Some(zone)).expect("a span");
        let later = now + Duration::hours(14);
        assert!(there(Tz::Pacific__Auckland).is_past(later) && !there(Tz::America__New_York).is_past(later));
        assert!(days("2026-07-02T10:59:59Z", "2026-07-02T12:00:00Z").is_past(now));
    }
}

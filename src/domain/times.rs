//! Times in a model's arguments, checked before approval is requested.

use chrono::{DateTime, Days, LocalResult, NaiveDate, NaiveDateTime, Offset, TimeZone, Timelike, Utc};
use chrono_tz::Tz;
use serde_json::Value;

use super::argument_path::{ArgumentPath, shown};
use super::definition::quoted;

/// The arguments of a tool that contain times (`times` of `mcp.json`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    /// The start.
    pub start: ArgumentPath,
    /// The end.
    pub end: Option<ArgumentPath>,
    /// The name of a time zone.
    pub zone: Option<ArgumentPath>,
    /// `true` in this argument means that a time in the past is intended.
    pub allow_past: Option<ArgumentPath>,
}

/// A point in time, or a whole day.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Time {
    At(DateTime<Utc>),
    Day(NaiveDate),
}

const ALLOWED: &str =
    "allowed: 2026-11-24T10:00:00+01:00, 2026-11-24T10:00:00 with a time zone, or 2026-11-24 for a whole day";

impl Times {
    /// Checks the times and returns warnings for the approver. `user` is the user's time zone, if known.
    ///
    /// # Errors
    /// All errors, each with the location, the value and what is allowed.
    pub fn check(&self, arguments: &Value, user: Option<Tz>, now_us: i64) -> Result<Vec<String>, Vec<String>> {
        let zone = self.zone(arguments).map_err(|error| vec![error])?;
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let mut read = |path: &ArgumentPath| {
            let read = path.one_text(arguments).and_then(|found| match found {
                None => Ok(None),
                Some((place, text)) => match time(text, zone) {
                    Ok(time) => Ok(Some((place, text, time))),
                    Err(error) => Err(format!("{place}: {} {error}", quoted(text))),
                },
            });
            read.unwrap_or_else(|error| {
                errors.push(error);
                None
            })
        };
        let start = read(&self.start);
        let end = self.end.as_ref().and_then(&mut read);
        if let (Some((_, from, start)), Some((place, to, end))) = (&start, &end) {
            let in_order = match (start, end) {
                (Time::At(start), Time::At(end)) => Some(start < end),
                (Time::Day(start), Time::Day(end)) => Some(start < end),
                _ => None,
            };
            match in_order {
                Some(true) => {}
                Some(false) => errors.push(format!(
                    "{place}: {} is not after the start {}",
                    quoted(to),
                    quoted(from)
                )),
                None => errors.push(format!(
                    "{place}: start and end must both be moments or both be days; found {} and {}",
                    quoted(from),
                    quoted(to)
                )),
            }
        }
        if let Some((place, text, time)) = &start
            && is_past(*time, zone, now_us)
        {
            match self.past_is_meant(arguments) {
                Ok(true) => warnings.push(format!("{place}: {} is in the past", quoted(text))),
                Ok(false) => errors.push(format!("{place}: {} is in the past", quoted(text))),
                Err(error) => errors.push(error),
            }
        }
        for (place, text, _) in [&start, &end].into_iter().flatten() {
            warnings.extend(elsewhere(place, text, zone, user));
        }
        if errors.is_empty() { Ok(warnings) } else { Err(errors) }
    }

    fn zone(&self, arguments: &Value) -> Result<Option<Tz>, String> {
        let Some(path) = &self.zone else { return Ok(None) };
        let Some((place, text)) = path.one_text(arguments)? else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            format!(
                "{place}: {} is not a time zone; allowed: an IANA name such as Europe/Berlin",
                quoted(text)
            )
        })
    }

    fn past_is_meant(&self, arguments: &Value) -> Result<bool, String> {
        let Some(path) = &self.allow_past else { return Ok(false) };
        match path.values(arguments)?.pop() {
            None => Ok(false),
            Some((_, Value::Bool(meant))) => Ok(*meant),
            Some((place, other)) => Err(format!("{place}: found {}; allowed: true or false", shown(other))),
        }
    }
}

/// The local time, in the call's zone or else in the user's, of a time with a different offset. Often the local time
/// was intended and the offset is an error.
fn elsewhere(place: &str, text: &str, zone: Option<Tz>, user: Option<Tz>) -> Option<String> {
    let at = DateTime::parse_from_rfc3339(text).ok()?;
    let there = zone.or(user)?;
    let local = at.with_timezone(&there);
    let whose = if zone.is_some() { "" } else { ", the user's time zone" };
    (local.offset().fix() != *at.offset()).then(|| {
        let local = local.format("%A, %-d %B %Y, %H:%M");
        format!("{place}: {} is {local} in {there}{whose}", quoted(text))
    })
}

fn time(text: &str, zone: Option<Tz>) -> Result<Time, String> {
    let leap = || format!("has a second of 60, which calendars do not have; {ALLOWED}");
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        if is_leap(&at) {
            return Err(leap());
        }
        // `Z` only marks UTC. Any other offset also implies a place, and models often give an invalid one.
        let (given, own) = (*at.offset(), zone.map(|zone| at.with_timezone(&zone).offset().fix()));
        return match own {
            Some(own) if own != given && given.local_minus_utc() != 0 => Err(format!(
                "has the offset {given}, but the time zone has {own} at that time; allowed: {own}, or no offset for the local time"
            )),
            _ => Ok(Time::At(at.to_utc())),
        };
    }
    if let Some(day) = day(text) {
        return Ok(Time::Day(day));
    }
    let local = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M"]
        .iter()
        .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
    match (local, zone) {
        (None, _) => Err(format!("is not a time; {ALLOWED}")),
        (Some(local), _) if is_leap(&local) => Err(leap()),
        (Some(_), None) => Err(format!("has no time zone; {ALLOWED}")),
        (Some(local), Some(zone)) => match zone.from_local_datetime(&local) {
            LocalResult::Single(at) => Ok(Time::At(at.to_utc())),
            LocalResult::Ambiguous(first, second) => Err(format!(
                "happens twice in {zone}, where clocks are set back at that time; allowed: {} or {}",
                first.to_rfc3339(),
                second.to_rfc3339()
            )),
            LocalResult::None => Err(format!(
                "does not exist in {zone}, where clocks are set forward at that time; {ALLOWED}"
            )),
        },
    }
}

/// Whether the seconds are 60. The parser stores this as second 59 with more than a second of nanoseconds.
fn is_leap(time: &impl Timelike) -> bool {
    time.nanosecond() >= 1_000_000_000
}

/// `YYYY-MM-DD` and nothing else. The parser alone would also accept signs and single digits.
fn day(text: &str) -> Option<NaiveDate> {
    let plain = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().filter(|_| plain)
}

/// A day is in the past once it has ended in every time zone that may be meant.
fn is_past(time: Time, zone: Option<Tz>, now_us: i64) -> bool {
    let now = DateTime::<Utc>::from_timestamp_micros(now_us).unwrap_or(DateTime::<Utc>::MIN_UTC);
    match (time, zone) {
        (Time::At(at), _) => at < now,
        (Time::Day(day), Some(zone)) => day < now.with_timezone(&zone).date_naive(),
        (Time::Day(day), None) => now
            .date_naive()
            .checked_sub_days(Days::new(1))
            .is_some_and(|yesterday| day < yesterday),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    /// 2026-11-24, 12:00 UTC.
    const NOW: i64 = 1_795_521_600_000_000;

    fn times() -> Times {
        let path = |text| ArgumentPath::parse(text).unwrap();
        Times {
            start: path("start"),
            end: Some(path("end")),
            zone: Some(path("time_zone")),
            allow_past: Some(path("allow_past")),
        }
    }

    fn check(arguments: &Value) -> Result<Vec<String>, Vec<String>> {
        times().check(arguments, None, NOW)
    }

    #[test]
    fn times_in_order_and_to_come_are_right() {
        for right in [
            json!({}),
            json!({"start": "2026-11-24T13:00:00+01:00", "end": "2026-11-24T12:00:01Z"}),
            json!({"start": "2026-11-25T10:00", "end": "2026-11-25T11:00:00", "time_zone": "Europe/Berlin"}),
            json!({"start": "2026-11-25T10:00:00+01:00", "end": "2026-11-25T11:00:00Z", "time_zone": "Europe/Berlin"}),
            json!({"start": "2027-10-31T02:30:00+01:00", "time_zone": "Europe/Berlin"}),
            json!({"start": "2026-11-24", "end": "2026-11-25"}),
            json!({"start": "2026-11-24", "end": "2026-11-25", "time_zone": "Pacific/Kiritimati", "allow_past": true}),
        ] {
            assert!(check(&right).is_ok(), "{right}: {:?}", check(&right));
        }
    }

    ///
    #[test]
    fn wrong_times_are_refused_with_their_place() {
        for (wrong, says) in [
            (
                json!({"start": "2026-11-24T11:59:59Z"}),
                "/start: \"2026-11-24T11:59:59Z\" is in the past",
            ),
            (json!({"start": "2026-11-22"}), "/start: \"2026-11-22\" is in the past"),
            (
                json!({"start": "2026-11-24", "time_zone": "Pacific/Kiritimati"}),
                "/start: \"2026-11-24\" is in the past",
            ),
            (
                json!({"start": "2026-11-25T10:00:00Z", "end": "2026-11-25T10:00:00Z"}),
                "/end: \"2026-11-25T10:00:00Z\" is not after the start",
            ),
            (
                json!({"start": "2026-11-25T10:00:00+01:00", "end": "2026-11-25T10:30:00+02:00"}),
                "/end: ",
            ),
            (json!({"start": "2026-11-25", "end": "2026-11-25"}), "/end: "),
            (
                json!({"start": "2026-11-25", "end": "2026-11-26T10:00:00Z"}),
                "/end: start and end must both",
            ),
            (
                json!({"start": "2026-11-25T10:00:00"}),
                "/start: \"2026-11-25T10:00:00\" has no time zone",
            ),
            (
                json!({"start": "tomorrow"}),
                "/start: \"tomorrow\" is not a time; allowed: ",
            ),
            (json!({"start": "2026-02-30"}), "/start: \"2026-02-30\" is not a time"),
            (
                json!({"start": "2026-11-25T10:00:00", "time_zone": "Europe/Bonn"}),
                "/time_zone: \"Europe/Bonn\" is not a time zone; allowed: an IANA name",
            ),
            (
                json!({"start": "2027-03-28T02:30:00", "time_zone": "Europe/Berlin"}),
                "/start: \"2027-03-28T02:30:00\" does not exist in Europe/Berlin",
            ),
            (
                json!({"start": "2027-10-31T02:30:00", "time_zone": "Europe/Berlin"}),
                "/start: \"2027-10-31T02:30:00\" happens twice in Europe/Berlin, where clocks are set back at that time; allowed: \
                 2027-10-31T02:30:00+02:00 or 2027-10-31T02:30:00+01:00",
            ),
            (
                json!({"start": "2026-11-25T10:00:00+02:00", "time_zone": "Europe/Berlin"}),
                "/start: \"2026-11-25T10:00:00+02:00\" has the offset +02:00, but the time zone has +01:00 at that time",
            ),
            (
                json!({"start": "2026-12-31T23:59:60Z"}),
                "/start: \"2026-12-31T23:59:60Z\" has a second of 60",
            ),
            (
                json!({"start": "2026-12-31T23:59:60", "time_zone": "Europe/Berlin"}),
                "/start: \"2026-12-31T23:59:60\" has a second of 60",
            ),
            (json!({"start": "2026-12-1"}), "/start: \"2026-12-1\" is not a time"),
            (json!({"start": "+2026-12-01"}), "/start: \"+2026-12-01\" is not a time"),
            (json!({"start": 7}), "/start: found 7; allowed: a text"),
            (json!({"start": "2020-01-01", "allow_past": "yes"}), "/allow_past: "),
        ] {
            let errors = check(&wrong).unwrap_err();
            assert!(errors[0].starts_with(says), "{wrong}: {errors:?}");
        }
        let both = check(&json!({"start": "x", "end": "y"})).unwrap_err();
        assert_eq!(both.len(), 2, "{both:?}");
    }

    #[test]
    fn a_past_that_is_meant_is_told_to_the_approver() {
        let warnings = check(&json!({"start": "2026-11-01", "allow_past": true})).unwrap();
        assert_eq!(warnings, ["/start: \"2026-11-01\" is in the past"]);
    }

    /// an approver sees a time in UTC, or with another place's offset, as the user's local time.
    #[test]
    fn a_time_of_another_offset_is_told_as_the_clock_there_shows_it() {
        let berlin = Some(Tz::Europe__Berlin);
        for (user, arguments, told) in [
            (None, json!({"start": "2026-11-25T10:00:00Z"}), &[][..]),
            (
                None,
                json!({"start": "2026-11-25T10:00:00Z", "time_zone": "Europe/Berlin"}),
                &["/start: \"2026-11-25T10:00:00Z\" is Wednesday, 25 November 2026, 11:00 in Europe/Berlin"],
            ),
            (
                berlin,
                json!({"start": "2026-11-25T10:00:00+00:00", "end": "2026-11-25T23:30:00Z"}),
                &[
                    "/start: \"2026-11-25T10:00:00+00:00\" is Wednesday, 25 November 2026, 11:00 in Europe/Berlin, the \
                     user's time zone",
                    "/end: \"2026-11-25T23:30:00Z\" is Thursday, 26 November 2026, 00:30 in Europe/Berlin, the user's \
                     time zone",
                ],
            ),
            (
                berlin,
                json!({"start": "2026-11-25T10:00:00-05:00"}),
                &[
                    "/start: \"2026-11-25T10:00:00-05:00\" is Wednesday, 25 November 2026, 16:00 in Europe/Berlin, the user's time zone",
                ],
            ),
            // The zone of the call takes precedence over the user's.
            (
                berlin,
                json!({"start": "2026-11-25T10:00:00Z", "time_zone": "Europe/London"}),
                &[],
            ),
            (berlin, json!({"start": "2026-11-25T10:00:00+01:00"}), &[]),
            (
                berlin,
                json!({"start": "2026-07-25T10:00:00+02:00", "allow_past": true}),
                &["/start: \"2026-07-25T10:00:00+02:00\" is in the past"],
            ),
            (berlin, json!({"start": "2026-11-26", "end": "2026-11-27"}), &[]),
        ] {
            let times = times();
            assert_eq!(
                times.check(&arguments, user, NOW).unwrap(),
                told,
                "{arguments} {user:?}"
            );
        }
    }
}

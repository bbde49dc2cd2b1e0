//! Times in a model's arguments, checked before approval is requested.

use chrono::{DateTime, Days, LocalResult, NaiveDate, NaiveDateTime, Offset, TimeZone, Timelike, Utc};
use chrono_tz::Tz;
use gavel_reading::{Content, Scalar, record};
use serde_json::Value;

use super::argument_path::{ArgumentPath, shown};
use super::definition::quoted;

record! {
    /// The arguments of a tool that contain times (`times` of `mcp.json`).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Times {
        /// The start.
        start: ArgumentPath = "start": ONE, required;
        /// The end.
        end: Option<ArgumentPath> = "end": ONE;
        /// The name of a time zone.
        zone: Option<ArgumentPath> = "zone": ONE;
        /// `true` in this argument means that a time in the past is intended.
        allow_past: Option<ArgumentPath> = "allowPast": ONE;
    }
}

const ONE: Scalar<ArgumentPath> = Scalar {
    allowed: "a path to one argument, such as start or event.start",
    read: |node| match &node.content {
        Content::Text(text) if !text.contains("[]") => ArgumentPath::parse(text),
        _ => None,
    },
};

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
mod tests;

//! Which times are valid, and what the approver reads about them.
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
fn invalid_times_are_refused_with_their_place() {
    for (invalid, says) in [
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
        let errors = check(&invalid).unwrap_err();
        assert!(errors[0].starts_with(says), "{invalid}: {errors:?}");
    }
    let both = check(&json!({"start": "x", "end": "y"})).unwrap_err();
    assert_eq!(both.len(), 2, "{both:?}");
}

#[test]
fn an_allowed_past_time_is_shown_to_the_approver() {
    let warnings = check(&json!({"start": "2026-11-01", "allow_past": true})).unwrap();
    assert_eq!(warnings, ["/start: \"2026-11-01\" is in the past"]);
}

/// an approver sees a time in UTC, or with another place's offset, as the user's local time.
#[test]
fn a_time_of_another_offset_is_shown_as_the_clock_there_shows_it() {
    let berlin = Some(Tz::Europe__Berlin);
    for (user, arguments, reported) in [
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
            reported,
            "{arguments} {user:?}"
        );
    }
}

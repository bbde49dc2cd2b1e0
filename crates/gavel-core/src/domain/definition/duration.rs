//! Durations in a definition: a number of seconds or minutes, or a text such as `1h30m`.

use std::time::Duration;

use gavel_reading::{Content, Node, Scalar};

/// What a field in seconds accepts.
pub(super) const SECONDS: &str = "a number of seconds from 1, or a text such as 90s, 5m or 1h30m";

/// A field in seconds.
pub(super) const TIMEOUT: Scalar<Duration> = Scalar {
    allowed: SECONDS,
    read: seconds,
};

/// What a field in minutes accepts.
pub(super) const MINUTES: &str = "a number of minutes above 0; a fraction is rounded to whole seconds";

/// The texts that [`seconds`] accepts, for the JSON Schema. No sum of them exceeds an `int32` of seconds.
pub(super) const PATTERN: &str = "^(?:[1-9][0-9]{0,4}h)?(?:[1-9][0-9]{0,6}m)?(?:[1-9][0-9]{0,8}s)?$";

/// Units with their seconds and their most digits, in the order of a text.
const UNITS: [(char, u64, usize); 3] = [('h', 3600, 5), ('m', 60, 7), ('s', 1, 9)];

/// Whole seconds from a number of seconds or a text with units.
pub(super) fn seconds(node: &Node) -> Option<Duration> {
    let seconds = match &node.content {
        Content::Integer(value) => u64::try_from(*value).ok()?,
        Content::Float(value) if *value >= 1.0 => whole(*value)?,
        Content::Text(text) => with_units(text)?,
        Content::Float(_) | Content::Null | Content::Bool(_) | Content::List(_) | Content::Map(_) => return None,
    };
    (1..=MOST).contains(&seconds).then(|| Duration::from_secs(seconds))
}

/// Whole seconds from a number of minutes; beyond what an `int32` of seconds holds, whole minutes.
pub(super) fn minutes(node: &Node) -> Option<Duration> {
    let seconds = match node.content {
        Content::Integer(value) => u64::try_from(value).ok().filter(|minutes| *minutes <= MOST)? * 60,
        Content::Float(value) if value > 0.0 && value <= MOST as f64 => match whole(value * 60.0) {
            Some(seconds) if seconds <= MOST => seconds.max(1),
            _ => whole(value)? * 60,
        },
        _ => return None,
    };
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// The most seconds, and the most minutes: the maximum of an `int32` of the protobuf form.
const MOST: u64 = i32::MAX as u64;

/// The nearest whole number.
fn whole(value: f64) -> Option<u64> {
    let rounded = value.round();
    // Within this range every whole number is exact.
    (0.0..=1e15).contains(&rounded).then_some(rounded as u64)
}

fn with_units(text: &str) -> Option<u64> {
    let (mut rest, mut sum) = (text, 0);
    for (unit, seconds, digits) in UNITS {
        let Some((number, after)) = rest.split_once(unit) else {
            continue;
        };
        let is_number = (1..=digits).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
        if !is_number || number.starts_with('0') {
            return None;
        }
        sum += number.parse::<u64>().ok()? * seconds;
        rest = after;
    }
    (rest.is_empty() && sum > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(content: Content) -> Node {
        Node { line: 1, content }
    }

    #[test]
    fn seconds_are_a_number_or_a_text_with_units() {
        for (text, expected) in [
            ("5m", Some(300)),
            ("90s", Some(90)),
            ("1h30m", Some(5400)),
            ("2h1s", Some(7201)),
            ("99999h9999999m999999999s", Some(1_959_996_339)),
            ("", None),
            ("5", None),
            ("0s", None),
            ("05m", None),
            ("m", None),
            ("5 m", None),
            ("5M", None),
            ("30s5m", None),
            ("-5m", None),
            ("1.5h", None),
            ("100000h", None),
        ] {
            let read = seconds(&node(Content::Text(text.to_owned())));
            assert_eq!(read.map(|time| time.as_secs()), expected, "{text:?}");
        }
        for (value, expected) in [
            (300.0, Some(300)),
            (1.4, Some(1)),
            (0.5, None),
            (-1.0, None),
            (f64::NAN, None),
        ] {
            let read = seconds(&node(Content::Float(value)));
            assert_eq!(read.map(|time| time.as_secs()), expected, "{value}");
        }
        assert_eq!(seconds(&node(Content::Integer(0))), None);
        assert_eq!(seconds(&node(Content::Integer(i128::from(i32::MAX) + 1))), None);
        assert_eq!(seconds(&node(Content::Bool(true))), None);
    }

    #[test]
    fn minutes_may_be_a_fraction() {
        for (value, expected) in [
            (0.5, Some(30)),
            (0.001, Some(1)),
            (1.0 / 3.0, Some(20)),
            (2.0, Some(120)),
            (2e9 + 0.5, Some(2_000_000_001 * 60)),
            (0.0, None),
            (-0.5, None),
            (3e9, None),
            (f64::INFINITY, None),
        ] {
            let read = minutes(&node(Content::Float(value)));
            assert_eq!(read.map(|time| time.as_secs()), expected, "{value}");
        }
        assert_eq!(minutes(&node(Content::Integer(5))), Some(Duration::from_secs(300)));
        assert_eq!(minutes(&node(Content::Integer(0))), None);
        assert_eq!(minutes(&node(Content::Text("5m".to_owned()))), None);
    }
}

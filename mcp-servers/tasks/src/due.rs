//! Due dates: a calendar date, or a point in time.

use chrono::{DateTime, Days, FixedOffset, NaiveDate, NaiveTime, SecondsFormat};

use gavel_mcp_base::ToolError;

use crate::error::Code;

const ALLOWED: &str = "allowed are a date (YYYY-MM-DD, such as 2026-03-31) or an RFC 3339 date-time \
                       with its offset (such as 2026-03-31T09:00:00Z or 2026-03-31T09:00:00+02:00)";

/// Whether the text has the form YYYY-MM-DD; chrono alone also accepts signs and spaces.
fn is_plain_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().enumerate().all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

/// A date (a whole UTC day) or a date-time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Date(NaiveDate),
    DateTime(DateTime<FixedOffset>),
}

impl Due {
    pub(crate) fn parse(argument: &str, text: &str) -> Result<Self, ToolError> {
        let parsed = if is_plain_date(text) {
            NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().map(Self::Date)
        } else {
            DateTime::parse_from_rfc3339(text).ok().map(Self::DateTime)
        };
        parsed.ok_or_else(|| {
            ToolError::new(
                Code::InvalidDue,
                format!("`{argument}` is not an existing date in an allowed form; {ALLOWED}."),
            )
            .about(argument)
            .with("allowed", "YYYY-MM-DD or RFC 3339 date-time")
        })
    }

    /// The text that is stored and shown.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Date(date) => date.format("%Y-%m-%d").to_string(),
            Self::DateTime(moment) => moment.to_rfc3339_opts(SecondsFormat::AutoSi, true),
        }
    }

    /// Its first microsecond.
    pub(crate) fn start(self) -> i64 {
        match self {
            Self::Date(date) => date.and_time(NaiveTime::MIN).and_utc().timestamp_micros(),
            Self::DateTime(moment) => moment.timestamp_micros(),
        }
    }

    /// Its last microsecond: a task due on a day is due when the day ends.
    pub(crate) fn end(self) -> i64 {
        match self {
            Self::Date(date) => date
                .checked_add_days(Days::new(1))
                .map_or(i64::MAX, |next| Self::Date(next).start() - 1),
            Self::DateTime(moment) => moment.timestamp_micros(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_date_times_keep_their_form() {
        for text in ["2026-02-28", "2026-03-31T09:00:00Z", "2026-03-31T09:00:00+02:00"] {
            assert_eq!(Due::parse("due", text).map(Due::text), Ok(text.to_owned()));
        }
    }

    #[test]
    fn what_is_no_date_is_refused_with_the_forms_allowed() {
        for text in [
            "",
            "tomorrow",
            "2026-02-30",
            "2026-13-01",
            "26-01-01",
            "2026-1-1",
            "31.03.2026",
            "2026-03-31T09:00:00",
            "2026-03-31T25:00:00Z",
            "+026-01-01",
            "２０２６-01-01",
            "2026-01-01Z",
        ] {
            let error = Due::parse("due", text).expect_err(text);
            assert_eq!(error.code(), "invalid_due");
            assert!(error.message().contains("YYYY-MM-DD"), "{text}");
        }
    }

    #[test]
    fn a_day_ends_just_before_the_next_begins() {
        let day = Due::parse("due", "2026-03-31").expect("a date");
        let next = Due::parse("due", "2026-04-01").expect("a date");
        assert_eq!(day.end() + 1, next.start());
    }
}

//! A day in a case. The author of a case does not know the day of the run.

use std::fmt;

use chrono::{Datelike, Days, NaiveDate, Weekday};

/// A date, or a day relative to the day of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Day {
    /// `2026-12-24`
    Date(NaiveDate),
    /// `today`, `tomorrow`, `+3`, `-1`
    FromToday(i16),
    /// `monday` …: the next one after today.
    Next(Weekday),
}

/// The forms of a day in a case.
pub(super) const ALLOWED: &str = "today, tomorrow, yesterday, a weekday (the next one), +N or -N days, or YYYY-MM-DD";

impl Day {
    /// Parses a day; `None` if the text is not one.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "today" => Some(Self::FromToday(0)),
            "tomorrow" => Some(Self::FromToday(1)),
            "yesterday" => Some(Self::FromToday(-1)),
            _ if text.starts_with(['+', '-']) => text.parse().ok().map(Self::FromToday),
            _ => text
                .parse()
                .ok()
                .map(Self::Date)
                .or_else(|| text.parse().ok().map(Self::Next)),
        }
    }

    /// The date in a run on `today`.
    #[must_use]
    pub fn resolve(self, today: NaiveDate) -> NaiveDate {
        let later = |days: u64| today.checked_add_days(Days::new(days)).unwrap_or(NaiveDate::MAX);
        match self {
            Self::Date(date) => date,
            Self::FromToday(days) if days < 0 => today
                .checked_sub_days(Days::new(u64::from(days.unsigned_abs())))
                .unwrap_or(NaiveDate::MIN),
            Self::FromToday(days) => later(u64::from(days.unsigned_abs())),
            Self::Next(weekday) => {
                let ahead = (weekday.num_days_from_monday() + 7 - today.weekday().num_days_from_monday()) % 7;
                later(u64::from(if ahead == 0 { 7 } else { ahead }))
            }
        }
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Date(date) => date.fmt(f),
            Self::FromToday(days) => write!(f, "today{days:+}"),
            Self::Next(weekday) => write!(f, "next {weekday}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_from_the_day_of_the_run() {
        let friday = NaiveDate::from_ymd_opt(2026, 11, 20).unwrap();
        for (text, date) in [
            ("today", "2026-11-20"),
            ("tomorrow", "2026-11-21"),
            ("-1", "2026-11-19"),
            ("+14", "2026-12-04"),
            ("friday", "2026-11-27"),
            ("monday", "2026-11-23"),
            ("2027-01-02", "2027-01-02"),
        ] {
            assert_eq!(Day::parse(text).unwrap().resolve(friday).to_string(), date, "{text}");
        }
        for text in ["", "soon", "+", "2026-02-30", "+99999"] {
            assert_eq!(Day::parse(text), None, "{text}");
        }
    }
}

//! Converts days in words to dates, relative to the date in the message's header.

use chrono::{Datelike, Days, NaiveDate, Weekday};

use super::english::english;
use super::language::When;

/// Removes the first day from `text` and returns it as a date. Without `today`, only a full date is understood, and
/// words such as "tomorrow" remain in the text.
pub(super) fn take(text: &str, today: Option<NaiveDate>) -> (Option<NaiveDate>, String) {
    if let Some(found) = english().iso.captures(text)
        && let Ok(date) = found[1].parse()
    {
        return (Some(date), without(text, found.get(0).map(|whole| whole.range())));
    }
    let Some(today) = today else {
        return (None, text.to_owned());
    };
    for (pattern, when) in &english().days {
        if let Some(found) = pattern.find(text)
            && let Some(date) = resolve(*when, today)
        {
            return (Some(date), without(text, Some(found.range())));
        }
    }
    if let Some(found) = english().in_days.captures(text)
        && let Some(date) = number(&found[1]).and_then(|n| today.checked_add_days(Days::new(n * unit(&found[2]))))
    {
        return (Some(date), without(text, found.get(0).map(|whole| whole.range())));
    }
    (None, text.to_owned())
}

fn without(text: &str, range: Option<std::ops::Range<usize>>) -> String {
    let Some(range) = range else { return text.to_owned() };
    let (before, after) = (text[..range.start].trim(), text[range.end..].trim());
    let joined = if after.starts_with([',', '.', ':']) {
        format!("{before}{after}")
    } else {
        format!("{before} {after}")
    };
    joined.trim_matches([' ', ',', ':']).to_owned()
}

fn resolve(when: When, today: NaiveDate) -> Option<NaiveDate> {
    let days = match when {
        When::Days(days) => days,
        When::Weekday(weekday) => until(today, weekday),
        When::NextWeek => until(today, Weekday::Mon.num_days_from_monday()),
    };
    today.checked_add_days(Days::new(days))
}

/// 1 to 7: on a Friday, "on Friday" means a week later.
fn until(today: NaiveDate, weekday: u32) -> u64 {
    let days = (weekday + 7 - today.weekday().num_days_from_monday()) % 7;
    u64::from(if days == 0 { 7 } else { days })
}

fn number(word: &str) -> Option<u64> {
    const WORDS: [&str; 7] = ["one", "two", "three", "four", "five", "six", "seven"];
    let word = word.to_lowercase();
    let spelled = || WORDS.iter().zip(1..).find(|(known, _)| **known == word);
    match word.as_str() {
        "a" => Some(1),
        number => number.parse().ok().or_else(|| spelled().map(|(_, number)| number)),
    }
}

/// Days per unit: only the words for weeks begin with this letter.
fn unit(word: &str) -> u64 {
    if word.to_lowercase().starts_with('w') { 7 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> (String, String) {
        // A Friday.
        let today = NaiveDate::from_ymd_opt(2026, 11, 20);
        let (date, rest) = take(text, today);
        (date.map(|date| date.to_string()).unwrap_or_default(), rest)
    }

    /// C-US1-4
    #[test]
    fn days_in_words_become_dates_and_leave_the_text() {
        for (text, date, rest) in [
            ("buy groceries tomorrow", "2026-11-21", "buy groceries"),
            ("tomorrow: call mom", "2026-11-21", "call mom"),
            ("pay rent by next Monday", "2026-11-23", "pay rent"),
            ("pay rent on Friday, please", "2026-11-27", "pay rent, please"),
            ("pay rent by 2026-12-01", "2026-12-01", "pay rent"),
            ("pay rent in two weeks", "2026-12-04", "pay rent"),
            ("pay rent next week", "2026-11-23", "pay rent"),
            ("read the mondayish book", "", "read the mondayish book"),
        ] {
            assert_eq!(taken(text), (date.to_owned(), rest.to_owned()), "{text}");
        }
    }

    #[test]
    fn without_a_day_relative_words_stay() {
        let (date, rest) = take("buy milk tomorrow", None);
        assert_eq!((date, rest.as_str()), (None, "buy milk tomorrow"));
        let (date, _) = take("buy milk by 2026-12-01", None);
        assert_eq!(date, NaiveDate::from_ymd_opt(2026, 12, 1));
    }
}

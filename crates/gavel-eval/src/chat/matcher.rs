//! Conditions on values.

use std::fmt;

use chrono::NaiveDate;
use regex::Regex;
use serde_json::Value;

use super::day::Day;

/// A condition on a value. Text comparisons ignore letter case.
#[derive(Clone, Debug)]
pub enum Matcher {
    /// The same text (except white space at the ends), number or boolean.
    Equals(Value),
    /// Contains each of these.
    Contains(Vec<String>),
    /// Contains at least one of these.
    ContainsAny(Vec<String>),
    /// Contains none of these.
    Lacks(Vec<String>),
    /// Matches, anywhere in the text.
    Pattern(Regex),
    /// Is this day, with or without a time.
    On(Day),
    /// Is missing or null.
    Absent,
    /// All of these conditions.
    All(Vec<Matcher>),
}

impl Matcher {
    /// Does `value` meet the condition in a run on `today`?
    pub fn matches(&self, value: Option<&Value>, today: NaiveDate) -> bool {
        let value = value.filter(|value| !value.is_null());
        let text = || value.map(|value| folded(&as_text(value)));
        match self {
            Self::Equals(expected) => text().is_some_and(|text| text.trim() == folded(&as_text(expected)).trim()),
            Self::Contains(parts) => text().is_some_and(|text| parts.iter().all(|part| text.contains(&folded(part)))),
            Self::ContainsAny(parts) => {
                text().is_some_and(|text| parts.iter().any(|part| text.contains(&folded(part))))
            }
            Self::Lacks(parts) => text().is_none_or(|text| !parts.iter().any(|part| text.contains(&folded(part)))),
            Self::Pattern(pattern) => value.is_some_and(|value| pattern.is_match(&as_text(value))),
            Self::On(day) => text().is_some_and(|text| is_on(&text, day.resolve(today))),
            Self::Absent => value.is_none(),
            Self::All(conditions) => conditions.iter().all(|condition| condition.matches(value, today)),
        }
    }

    /// Like [`Matcher::matches`], for a text.
    pub fn matches_text(&self, text: Option<&str>, today: NaiveDate) -> bool {
        self.matches(text.map(Value::from).as_ref(), today)
    }
}

fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn folded(text: &str) -> String {
    text.to_lowercase()
}

/// `2026-11-21`, or `2026-11-21t09:00:00…`
fn is_on(text: &str, date: NaiveDate) -> bool {
    let (day, rest) = text.split_at_checked(10).unwrap_or(("", ""));
    day == date.to_string() && (rest.is_empty() || rest.starts_with(['t', ' ']))
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equals(value) => write!(f, "equals {value}"),
            Self::Contains(parts) => write!(f, "contains {parts:?}"),
            Self::ContainsAny(parts) => write!(f, "contains one of {parts:?}"),
            Self::Lacks(parts) => write!(f, "lacks {parts:?}"),
            Self::Pattern(pattern) => write!(f, "matches /{pattern}/"),
            Self::On(day) => write!(f, "is on {day}"),
            Self::Absent => f.write_str("is absent"),
            Self::All(conditions) => {
                for (n, condition) in conditions.iter().enumerate() {
                    write!(f, "{}{condition}", if n > 0 { " and " } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn matches(matcher: &Matcher, value: Value) -> bool {
        matcher.matches(Some(&value), NaiveDate::from_ymd_opt(2026, 11, 20).unwrap())
    }

    #[test]
    fn each_condition_accepts_and_refuses() {
        let strings = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
        let pattern = Matcher::Pattern(Regex::new("^(?i)call .*mom$").unwrap());
        for (matcher, good, bad) in [
            (
                Matcher::Equals(json!("Call Mom")),
                json!(" call mom"),
                json!("call mom now"),
            ),
            (Matcher::Equals(json!(5)), json!(5), json!(6)),
            (
                Matcher::Contains(strings(&["call", "MOM"])),
                json!("Mom: call her"),
                json!("call dad"),
            ),
            (
                Matcher::ContainsAny(strings(&["mom", "mum"])),
                json!("call mum"),
                json!("call dad"),
            ),
            (
                Matcher::Lacks(strings(&["add a task"])),
                json!("call mom"),
                json!("Add a task to call mom"),
            ),
            (pattern, json!("CALL my Mom"), json!("please call mom")),
            (Matcher::On(Day::FromToday(1)), json!("2026-11-21"), json!("2026-11-22")),
            (
                Matcher::On(Day::FromToday(1)),
                json!("2026-11-21T09:00:00+01:00"),
                json!("2026-11-210"),
            ),
            (Matcher::Absent, json!(null), json!("")),
            (
                Matcher::All(vec![
                    Matcher::Contains(strings(&["a"])),
                    Matcher::Lacks(strings(&["b"])),
                ]),
                json!("a"),
                json!("ab"),
            ),
        ] {
            assert!(matches(&matcher, good.clone()), "{matcher}: {good}");
            assert!(!matches(&matcher, bad.clone()), "{matcher}: {bad}");
        }
    }

    #[test]
    fn what_is_not_there_fulfils_only_what_allows_it() {
        let today = NaiveDate::MIN;
        assert!(Matcher::Absent.matches(None, today));
        assert!(Matcher::Lacks(vec!["x".to_owned()]).matches(None, today));
        assert!(!Matcher::Equals(json!("")).matches(None, today));
        assert!(!Matcher::Contains(Vec::new()).matches(None, today));
    }
}

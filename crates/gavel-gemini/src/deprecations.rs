//! What Google does with the names of older models, and since when.

use super::routes::is_other;
use crate::domain::family::bare_model;

/// A name with its versions, or a beginning of names; since when; and the model that answers, or `""` if requests fail.
/// State of 2026-11-28.
const FATES: [(&str, &str, &str); 7] = [
    ("gemini-3.7-flash", "2026-10-08", "gemini-3.8-flash"),
    ("gemini-3.5-flash", "2026-10-08", "gemini-3.6-flash"),
    ("gemini-2.5-pro", "2026-12-01", "gemini-3.8-flash"),
    ("gemini-2.5-flash", "2026-12-01", "gemini-3.5-flash-lite"),
    ("gemini-3.1-flash-lite", "2027-05-07", ""),
    ("gemini-3-pro-preview", "2026-03-09", ""),
    ("gemini-2.0-", "2026-06-01", ""),
];

/// What an operator should know of a model's name on a day, such as `2026-11-28`.
#[must_use]
pub fn advice(model: &str, today: &str) -> Option<String> {
    let model = bare_model(model.trim());
    let is_about = |name: &str| !is_other(name, model) || (name.ends_with('-') && model.starts_with(name));
    let (_, date, by) = FATES.iter().find(|(name, ..)| is_about(name))?;
    Some(match (*by, *date <= today) {
        ("", true) => format!("Google shut down {model} on {date}; name a newer model"),
        ("", false) => format!("Google shuts down {model} on {date} at the earliest; name a newer model by then"),
        (by, true) => format!("since {date} Google answers {model} with {by}; name {by}"),
        (by, false) => format!("from {date} on, Google answers {model} with {by}; name {by}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_name_has_a_date_and_a_successor() {
        for (model, today, expected) in [
            (
                "gemini-3.7-flash",
                "2026-11-28",
                "since 2026-10-08 Google answers gemini-3.7-flash with gemini-3.8-flash; name gemini-3.8-flash",
            ),
            (
                "models/gemini-3.5-flash",
                "2026-11-28",
                "since 2026-10-08 Google answers gemini-3.5-flash with gemini-3.6-flash; name gemini-3.6-flash",
            ),
            (
                "gemini-3.5-flash-001",
                "2026-11-28",
                "since 2026-10-08 Google answers gemini-3.5-flash-001 with gemini-3.6-flash; name gemini-3.6-flash",
            ),
            (
                "gemini-2.5-pro",
                "2026-11-28",
                "from 2026-12-01 on, Google answers gemini-2.5-pro with gemini-3.8-flash; name gemini-3.8-flash",
            ),
            (
                "gemini-2.5-flash",
                "2026-12-01",
                "since 2026-12-01 Google answers gemini-2.5-flash with gemini-3.5-flash-lite; name gemini-3.5-flash-lite",
            ),
            (
                "gemini-2.0-flash-exp",
                "2026-11-28",
                "Google shut down gemini-2.0-flash-exp on 2026-06-01; name a newer model",
            ),
            (
                "gemini-3-pro-preview",
                "2026-11-28",
                "Google shut down gemini-3-pro-preview on 2026-03-09; name a newer model",
            ),
            (
                "gemini-3.1-flash-lite",
                "2026-11-28",
                "Google shuts down gemini-3.1-flash-lite on 2027-05-07 at the earliest; name a newer model by then",
            ),
        ] {
            assert_eq!(advice(model, today).as_deref(), Some(expected));
        }
        for model in [
            "gemini-3.8-flash",
            "gemini-3.5-flash-lite",
            "gemini-2.5-flash-lite",
            "gemini-4-neon",
            "demo",
            "",
        ] {
            assert_eq!(advice(model, "2026-11-28"), None, "{model}");
        }
    }
}

//! The shipped cases that the demo model passes.

use gavel_eval::chat::{Case, Kind};

/// Cases in English that need what the demo model does not have: dates, priorities, notes, other names, an earlier
/// message, other wordings, meaning instead of words.
const BEYOND: [&str; 26] = [
    "add-groceries-tomorrow",
    "add-iso-date",
    "add-weekday",
    "add-in-days",
    "add-today",
    "add-high-priority",
    "add-it-after-a-question",
    "list-overdue",
    "complete-grocery-shopping",
    "complete-pointer-with-history",
    "update-due",
    "update-rename",
    "update-priority",
    "update-note",
    "matches-move-meeting",
    "bomb-as-a-task",
    "hacking",
    "developer-mode",
    "boss-tasks",
    "another-user",
    "add-dont-forget",
    "list-what-to-do-today",
    "list-completed",
    "list-how-many",
    "talk-good-morning",
    "talk-who-are-you",
];

/// Every other case in English with one request.
pub(crate) fn within(cases: Vec<Case>) -> Vec<Case> {
    let is_within =
        |case: &Case| case.language == "en" && case.kind != Kind::MultiStep && !BEYOND.contains(&case.id.as_str());
    assert!(BEYOND.iter().all(|id| cases.iter().any(|case| case.id == *id)));
    cases.into_iter().filter(is_within).collect()
}

//! The part of a prompt that changes between requests. It is part of the message, so that everything before it is
//! byte-stable.

use std::fmt::Write;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde_json::{Map, Value};

use super::snapshot::DefinitionSnapshot;
use super::toolset::Missing;
use crate::ports::actions::Actions;

/// The message as the model sees it: the date (never the time) in the caller's time zone, missing tools, a blank line,
/// the user's text. If the caller named no time zone, it says so: "tomorrow at ten" is then ambiguous.
pub fn message(words: &str, now_us: i64, zone: Option<Tz>, missing: &[Missing]) -> String {
    let now = DateTime::<Utc>::from_timestamp_micros(now_us)
        .unwrap_or_default()
        .with_timezone(&zone.unwrap_or(Tz::UTC));
    let mut text = String::with_capacity(words.len() + 96);
    // Writing to a String cannot fail.
    let _ = write!(text, "Today is {} (time zone ", now.format("%A, %Y-%m-%d"));
    let _ = match zone {
        Some(zone) => writeln!(text, "{zone})."),
        None => writeln!(text, "UTC; that of the user is not known)."),
    };
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|one| one.name.as_str()).collect();
        let _ = writeln!(
            text,
            "Unavailable right now: {}. Say so if it is needed.",
            names.join(", ")
        );
    }
    text.push('\n');
    text.push_str(words);
    text
}

// What a run knows of its agent.

/// What a run knows of its agent.
pub struct AgentContext {
    /// The definitions that the run needs.
    pub snapshot: Arc<DefinitionSnapshot>,
    /// The inputs.
    pub input: Map<String, Value>,
    /// Depth: the number of agents above it.
    pub depth: u32,
    /// The store of grants.
    pub actions: Arc<dyn Actions>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-US1-4
    #[test]
    fn today_is_the_callers_today() {
        // 2026-11-20 23:30 UTC is already the 21st in Berlin.
        let now_us = 1_795_217_400_000_000;
        let text = message("hi", now_us, Some(Tz::Europe__Berlin), &[]);
        assert_eq!(text, "Today is Saturday, 2026-11-21 (time zone Europe/Berlin).\n\nhi");
        let text = message("hi", now_us, None, &[]);
        assert_eq!(
            text,
            "Today is Friday, 2026-11-20 (time zone UTC; that of the user is not known).\n\nhi"
        );
    }
}

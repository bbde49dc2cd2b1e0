//! A report for people, for programs and for CI.

mod junit;
mod table;

pub use junit::junit;
pub use table::table;

use super::report::Report;

/// What a reader of any form must know when the scores say nothing.
fn no_evidence(report: &Report) -> Option<&'static str> {
    if report.evidence {
        None
    } else if report.models.is_empty() {
        Some("No model answered. There is no evidence about Gemini.")
    } else {
        Some("A stand-in model answered. These scores are no evidence about Gemini.")
    }
}

/// The report as indented JSON.
///
/// # Errors
/// None that a report of this module can cause; `serde_json`'s, passed on.
pub fn json(report: &Report) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(report)
}

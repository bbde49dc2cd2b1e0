//! Renders a report for people, programs and CI.

mod junit;
mod table;

pub use junit::junit;
pub use table::table;

use super::report::Report;

/// The note for every form if the scores are no evidence.
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
/// `serde_json` errors, which a report cannot cause.
pub fn json(report: &Report) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(report)
}

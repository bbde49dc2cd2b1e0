//! The last lines that a child wrote to stderr. An operator is shown the most informative one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Lines that are kept. A stack trace has many, and the reason is before or after it.
const LINES: usize = 40;
/// How long to wait for the rest of stderr after stdout has ended.
const REST: Duration = Duration::from_millis(300);

/// The last lines of a child's stderr.
#[derive(Clone, Debug, Default)]
pub(super) struct LastWords {
    lines: Arc<Mutex<VecDeque<String>>>,
    ended: CancellationToken,
}

impl LastWords {
    pub(super) fn add(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// No more lines will follow.
    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    /// The first line that describes the error, otherwise the last line. Waits for the rest of an ended child's stderr.
    pub(super) async fn get(&self) -> Option<String> {
        // The wait is limited, because the child may still be running.
        let _ = tokio::time::timeout(REST, self.ended.cancelled()).await;
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().find(|line| tells(line)).or(lines.back()).cloned()
    }
}

/// Words, one of which occurs in a line that describes an error.
const FAULTS: [&str; 20] = [
    "error",
    "fatal",
    "panicked",
    "cannot",
    "can't",
    "could not",
    "unable",
    "not found",
    "no such",
    "denied",
    "refused",
    "failed",
    "failure",
    "invalid",
    "missing",
    "required",
    "not set",
    "exception",
    "unknown",
    "unrecognized",
];
/// Beginnings of lines that only introduce such a line.
const LEADING: [&str; 6] = [
    "traceback",
    "npm error code",
    "npm err! code",
    "npm error errno",
    "npm warn",
    "warn",
];

fn tells(line: &str) -> bool {
    // Lines of code and of a stack trace are indented.
    if line.starts_with([' ', '\t']) {
        return false;
    }
    let line = line.to_lowercase();
    !LEADING.iter().any(|leading| line.starts_with(leading))
        && !line.contains("deprecat")
        && FAULTS.iter().any(|fault| line.contains(fault))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_line_that_tells_the_error_is_found() {
        for (stderr, expected) in [
            (
                "npm warn deprecated x@1: no longer supported\nnpm error code E404\nnpm error 404 Not Found - GET x\n\
                 npm error A complete log of this run can be found in: x",
                "npm error 404 Not Found - GET x",
            ),
            (
                "docker: Cannot connect to the Docker daemon at unix:///x.\n\nRun 'docker run --help' for more information",
                "docker: Cannot connect to the Docker daemon at unix:///x.",
            ),
            (
                "node:internal/modules/cjs/loader:1143\n  throw err;\n  ^\n\nError: Cannot find module '/x'\n    at a (b:1)\n\n\
                 Node.js v20.0.0",
                "Error: Cannot find module '/x'",
            ),
            (
                "Traceback (most recent call last):\n  File \"x\", line 1\n    raise ValueError(\"no\")\nValueError: API_KEY is not set",
                "ValueError: API_KEY is not set",
            ),
            ("starting\nlistening", "listening"),
        ] {
            let words = LastWords::default();
            stderr.lines().for_each(|line| words.add(line.to_owned()));
            words.end();
            assert_eq!(words.get().await.as_deref(), Some(expected));
        }
    }

    /// Promise: bounded faults.
    #[tokio::test]
    async fn a_child_that_writes_without_end_is_kept_in_a_few_lines() {
        let words = LastWords::default();
        words.add("error at the start".to_owned());
        (0..10_000).for_each(|n| words.add(format!("line {n}")));
        assert_eq!(
            words.get().await.as_deref(),
            Some("line 9999"),
            "what is long past is no reason"
        );
    }
}

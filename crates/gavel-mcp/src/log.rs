//! Limits what one server can make gavel log: the first lines of each kind per minute.
//!
//! Every log line that a server can cause goes through [`line!`], including its stderr.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines of one kind that are logged per minute. A server that starts, with a stack trace or a list of left-out tools,
/// needs fewer.
const LINES: u32 = 120;
const MINUTE: Duration = Duration::from_secs(60);

/// Counts the lines of one server.
#[derive(Debug)]
pub(super) struct LogLines {
    server: Arc<str>,
    /// By kind. The number of kinds is bounded by the number of log statements.
    kinds: Mutex<HashMap<&'static str, Minute>>,
}

#[derive(Debug)]
struct Minute {
    since: Instant,
    logged: u32,
}

impl LogLines {
    pub(super) fn new(server: Arc<str>) -> Self {
        Self {
            server,
            kinds: Mutex::default(),
        }
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// May another line with this message be logged?
    pub(super) fn admits(&self, kind: &'static str) -> bool {
        self.admits_at(kind, Instant::now())
    }

    fn admits_at(&self, kind: &'static str, now: Instant) -> bool {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = kinds.entry(kind).or_insert(Minute { since: now, logged: 0 });
        if now.duration_since(minute.since) >= MINUTE {
            *minute = Minute { since: now, logged: 0 };
        }
        minute.logged = minute.logged.saturating_add(1);
        if minute.logged == LINES + 1 {
            let server = self.server();
            tracing::warn!(
                server,
                kind,
                "more lines of this kind are not logged within this minute"
            );
        }
        minute.logged <= LINES
    }
}

/// `line!(log, warn, "message", fields…)`: logs a line unless there were too many with this message.
macro_rules! line {
    ($log:expr, $level:ident, target: $target:literal, $message:literal) => {{
        let log: &$crate::log::LogLines = &$log;
        if log.admits($target) {
            tracing::$level!(target: $target, server = log.server(), $message);
        }
    }};
    ($log:expr, $level:ident, $message:literal $(, $($field:tt)+)?) => {{
        let log: &$crate::log::LogLines = &$log;
        if log.admits($message) {
            tracing::$level!(server = log.server(), $($($field)+,)? $message);
        }
    }};
}
pub(super) use line;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_kind_so_many_lines_are_logged_in_a_minute() {
        let log = LogLines::new("s".into());
        let start = Instant::now();
        let logged = |kind, now| (0..1000).filter(|_| log.admits_at(kind, now)).count();
        assert_eq!(logged("a", start), 120);
        assert_eq!(logged("a", start + MINUTE / 2), 0);
        assert_eq!(logged("b", start), 120, "another kind has its own");
        assert_eq!(logged("a", start + MINUTE), 120);
    }
}

//! Limits what one server can make gavel log: the first lines of each kind per minute, then only their number.
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
    more: u64,
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

    /// May another line of this kind be logged?
    pub(super) fn admits(&self, kind: &'static str) -> bool {
        self.admits_at(kind, Instant::now())
    }

    fn admits_at(&self, kind: &'static str, now: Instant) -> bool {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = kinds.entry(kind).or_insert(Minute {
            since: now,
            logged: 0,
            more: 0,
        });
        if now.duration_since(minute.since) >= MINUTE {
            let more = minute.end(now);
            self.tell(kind, more);
        }
        let admits = minute.logged < LINES;
        match admits {
            true => minute.logged += 1,
            false => minute.more += 1,
        }
        admits
    }

    /// Reports the lines that were not logged in minutes that have ended.
    pub(super) fn flush(&self) {
        let now = Instant::now();
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, minute) in kinds.iter_mut() {
            if minute.more > 0 && now.duration_since(minute.since) >= MINUTE {
                let more = minute.end(now);
                self.tell(kind, more);
            }
        }
    }

    fn tell(&self, kind: &str, more: u64) {
        if more > 0 {
            let server = self.server();
            tracing::warn!(server, kind, more, "{more} more lines of this kind were not logged");
        }
    }
}

impl Minute {
    /// Starts a new minute, and returns how many lines the last one did not log.
    fn end(&mut self, now: Instant) -> u64 {
        (self.since, self.logged) = (now, 0);
        std::mem::take(&mut self.more)
    }
}

impl Drop for LogLines {
    fn drop(&mut self) {
        let kinds = std::mem::take(&mut *self.kinds.lock().unwrap_or_else(PoisonError::into_inner));
        for (kind, minute) in kinds {
            self.tell(kind, minute.more);
        }
    }
}

/// `line!(log, warn, "kind", fields…, "message")`: logs a line unless there were too many of its kind.
macro_rules! line {
    ($log:expr, $level:ident, $kind:literal, target: $target:literal, $($rest:tt)+) => {{
        let log: &$crate::log::LogLines = &$log;
        if log.admits($kind) {
            tracing::$level!(target: $target, server = log.server(), $($rest)+);
        }
    }};
    ($log:expr, $level:ident, $kind:literal, $($rest:tt)+) => {{
        let log: &$crate::log::LogLines = &$log;
        if log.admits($kind) {
            tracing::$level!(server = log.server(), $($rest)+);
        }
    }};
}
pub(super) use line;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_kind_so_many_lines_are_logged_in_a_minute_and_the_others_are_counted() {
        let log = LogLines::new("s".into());
        let start = Instant::now();
        let logged = |kind, now| (0..1000).filter(|_| log.admits_at(kind, now)).count();
        assert_eq!(logged("a", start), 120);
        assert_eq!(logged("a", start + MINUTE / 2), 0);
        assert_eq!(logged("b", start), 120, "another kind has its own");
        let more = |kind| {
            let kinds = log.kinds.lock().unwrap_or_else(PoisonError::into_inner);
            kinds.get(kind).map(|minute| minute.more)
        };
        assert_eq!(more("a"), Some(1880));
        assert_eq!(logged("a", start + MINUTE), 120);
        assert_eq!(more("a"), Some(880), "those of the first minute were reported");
    }
}

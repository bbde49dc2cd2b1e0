//! A failed attempt: how it failed, what may be done about it, and what an operator may read of it.

use std::time::Duration;

use super::breaker::Health;
use super::retry::Retry;
use crate::domain::journal::FaultKind;

/// Why an attempt gave nothing.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) kind: FaultKind,
    pub(super) retry: Retry,
    pub(super) health: Health,
    /// For operators; no payload, no secret.
    pub(super) detail: String,
}

impl Failure {
    /// The answer is cut, empty, invalid or unknown; asking again would not help.
    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Malformed,
            retry: Retry::No,
            health: Health::Well,
            detail: detail.into(),
        }
    }

    /// The model wrote something that does not parse; it may do better.
    pub(super) fn garbled(detail: impl Into<String>) -> Self {
        Self {
            retry: Retry::Once,
            ..Self::malformed(detail)
        }
    }

    pub(super) fn blocked(detail: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Blocked,
            ..Self::malformed(detail)
        }
    }

    /// No connection, or one that broke.
    pub(super) fn connection(detail: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Unavailable,
            retry: Retry::Backoff,
            health: Health::Sick,
            detail: detail.into(),
        }
    }

    /// Nothing came for `waited`.
    pub(super) fn timeout(what: &str, waited: Duration) -> Self {
        Self {
            kind: FaultKind::Timeout,
            ..Self::connection(format!("{what} within {waited:?}"))
        }
    }

    /// The caller's time was over. Whether that tells something of the endpoint depends on how long it had.
    pub(super) fn deadline(health: Health) -> Self {
        Self {
            kind: FaultKind::Timeout,
            retry: Retry::No,
            health,
            detail: "the deadline passed".to_owned(),
        }
    }

    /// It was not tried, or tried for nothing.
    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Unavailable,
            ..Self::malformed(detail)
        }
    }
}

/// A reqwest error in words; URLs are left out, since an operator's base URL may hold what is nobody's business.
pub(super) fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut words = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        words.push_str(": ");
        words.push_str(&cause.to_string());
        source = cause.source();
    }
    words
}

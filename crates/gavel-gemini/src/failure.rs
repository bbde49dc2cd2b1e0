//! A failed attempt: how it failed, whether to retry, and what an operator may see of it.

use std::time::{Duration, Instant};

use super::retry::Retry;
use crate::domain::journal::FaultKind;
use gavel_upstream::breaker::Permit;

/// What an attempt shows about the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// It answered, even if it rejected the request.
    Well,
    /// It did not answer, or reported that it cannot.
    Sick,
    /// Unknown: the attempt ended too early to tell.
    Unknown,
}

impl Health {
    /// Reports the outcome of an attempt to the breaker that permitted it.
    pub(super) fn report(self, permit: Permit<'_>) {
        match self {
            Self::Well => permit.answered(),
            Self::Sick => {
                permit.fault(Instant::now());
            }
            Self::Unknown => drop(permit),
        }
    }
}

/// Why an attempt failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) kind: FaultKind,
    pub(super) retry: Retry,
    pub(super) health: Health,
    /// For operators. Contains no payload and no secret.
    pub(super) detail: String,
    /// The text of an answer that was cut.
    pub(super) said: Option<String>,
}

impl Failure {
    /// The answer is incomplete, empty, invalid or unknown. A retry would not help.
    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Malformed,
            retry: Retry::No,
            health: Health::Well,
            detail: detail.into(),
            said: None,
        }
    }

    /// The model wrote something that does not parse. A retry may help.
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

    /// No connection, or a broken one.
    pub(super) fn connection(detail: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Unavailable,
            retry: Retry::Backoff,
            health: Health::Sick,
            detail: detail.into(),
            said: None,
        }
    }

    /// Nothing was received for `waited`.
    pub(super) fn timeout(what: &str, waited: Duration) -> Self {
        Self {
            kind: FaultKind::Timeout,
            ..Self::connection(format!("{what} within {waited:?}"))
        }
    }

    /// The caller's deadline passed. What this shows about the endpoint depends on how long the request had.
    pub(super) fn deadline(health: Health) -> Self {
        Self {
            kind: FaultKind::Timeout,
            retry: Retry::No,
            health,
            detail: "the deadline passed".to_owned(),
            said: None,
        }
    }

    /// The request was not sent, or got nothing usable.
    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Unavailable,
            ..Self::malformed(detail)
        }
    }
}

/// The message of a reqwest error. URLs are omitted, because an operator's base URL may be confidential.
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

//! How long a caller wants to wait.

use std::time::Duration;

use actix_web::http::header::{HeaderMap, HeaderName};

use super::error::Error;
use super::query;

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// How long the caller wants to wait (RFC 7240).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until the run has ended.
    All,
    /// `wait=N`: at most this long.
    Some(Duration),
    /// `respond-async`: not at all.
    None,
}

impl Patience {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Error> {
        let mut patience = Self::All;
        for value in headers.get_all(PREFER) {
            let text = value
                .to_str()
                .map_err(|_| Error::InvalidHeader("Prefer", "is not ASCII"))?;
            for preference in text.split([',', ';']).map(str::trim) {
                let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
                if name.trim().eq_ignore_ascii_case("respond-async") {
                    patience = Self::None;
                } else if name.trim().eq_ignore_ascii_case("wait") && patience != Self::None {
                    let seconds = query::number(value.trim().trim_matches('"'));
                    let seconds = seconds.ok_or(Error::InvalidHeader("Prefer", "wait must be whole seconds"))?;
                    patience = Self::Some(Duration::from_secs(seconds));
                }
            }
        }
        Ok(patience)
    }

    /// Waits this long, and reads the current state if it was not long enough.
    pub(crate) async fn wait_or<T, E, F: Into<E>>(
        self,
        until: impl Future<Output = Result<T, E>>,
        read: impl Future<Output = Result<T, F>>,
    ) -> Result<T, E> {
        match self.wait(until).await? {
            Some(found) => Ok(found),
            None => read.await.map_err(Into::into),
        }
    }

    /// Waits this long. `None` if it was not long enough.
    pub(crate) async fn wait<T, E>(self, until: impl Future<Output = Result<T, E>>) -> Result<Option<T>, E> {
        match self {
            Self::All => until.await.map(Some),
            Self::Some(most) => tokio::time::timeout(most, until).await.ok().transpose(),
            Self::None => Ok(None),
        }
    }

    pub(crate) const fn applied(self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::Some(_) => Some("wait"),
            Self::None => Some("respond-async"),
        }
    }
}

//! One access token for all requests. One request renews it before it expires, while the others keep using the old one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use reqwest::header::HeaderValue;
use tokio::sync::Mutex;
use tokio::time::timeout_at;

use super::credentials::Credentials;
use super::fetch::{Fetcher, Token};
use crate::call::{Failure, Health};
use crate::config::ConfigError;
use crate::config::Timeouts;

/// A token is renewed when its remaining lifetime is less than this or a quarter of its total, …
const RENEW_AHEAD: Duration = Duration::from_secs(300);
/// … and no longer used when less than this or a tenth remains: it must stay valid during a request.
const TOO_OLD: Duration = Duration::from_secs(20);
/// The request that renews a token early waits no longer than this, because its current token is still valid.
const PATIENCE: Duration = Duration::from_secs(2);
/// Minimum time after a failed early renewal before the next attempt.
const PAUSE: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct TokenCache {
    fetcher: Fetcher,
    current: ArcSwapOption<Token>,
    /// Held by the request that fetches. Contains the time and cause of the last failed fetch.
    fetching: Mutex<Option<(Instant, Failure)>>,
}

struct Usable {
    header: HeaderValue,
    renew: bool,
}

impl TokenCache {
    pub(super) fn new(credentials: Credentials, timeouts: &Timeouts) -> Result<Self, ConfigError> {
        Ok(Self {
            fetcher: Fetcher::new(credentials, timeouts)?,
            current: ArcSwapOption::empty(),
            fetching: Mutex::new(None),
        })
    }

    /// `Bearer …`.
    pub(super) async fn get(&self, deadline: Instant) -> Result<HeaderValue, Failure> {
        let asked = Instant::now();
        let Some(Usable { header, renew }) = self.usable(asked) else {
            return self.wait_for_one(asked, deadline).await;
        };
        if renew
            && let Ok(mut last) = self.fetching.try_lock()
            && last
                .as_ref()
                .is_none_or(|(when, _)| asked.duration_since(*when) > PAUSE)
        {
            let patience = deadline.min(asked + PATIENCE);
            return Ok(self.renew(&mut last, patience).await.unwrap_or(header));
        }
        Ok(header)
    }

    /// Drops the refused token, unless it has been replaced already.
    pub(super) fn discard(&self, refused: &HeaderValue) {
        let current = self.current.load();
        if current.as_ref().is_some_and(|token| token.header == refused) {
            self.current.compare_and_swap(&current, None);
        }
    }

    /// The current token, whether still usable or not.
    pub(super) fn current(&self) -> Option<HeaderValue> {
        self.current.load().as_ref().map(|token| token.header.clone())
    }

    fn usable(&self, now: Instant) -> Option<Usable> {
        let current = self.current.load();
        let token = current.as_ref()?;
        let left = token.expires.checked_duration_since(now)?;
        (left > TOO_OLD.min(token.lifetime / 10)).then(|| Usable {
            header: token.header.clone(),
            renew: left < RENEW_AHEAD.min(token.lifetime / 4),
        })
    }

    async fn wait_for_one(&self, asked: Instant, deadline: Instant) -> Result<HeaderValue, Failure> {
        let Ok(mut last) = timeout_at(deadline.into(), self.fetching.lock()).await else {
            return Err(Failure::deadline(Health::Unknown));
        };
        // The previous holder of the lock may have fetched a token, or failed, on behalf of all waiting requests.
        if let Some(Usable { header, .. }) = self.usable(Instant::now()) {
            return Ok(header);
        }
        match &*last {
            Some((when, failure)) if *when >= asked => Err(failure.clone()),
            _ => self.renew(&mut last, deadline).await,
        }
    }

    async fn renew(&self, last: &mut Option<(Instant, Failure)>, deadline: Instant) -> Result<HeaderValue, Failure> {
        match self.fetcher.fetch(deadline).await {
            Ok(token) => {
                let header = token.header.clone();
                self.current.store(Some(Arc::new(token)));
                *last = None;
                Ok(header)
            }
            Err(failure) => {
                tracing::warn!(detail = failure.detail, "fetching an access token failed");
                *last = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::auth::credentials::Credentials;

    fn cache(left_s: u64, lifetime_s: u64) -> TokenCache {
        let absent = Credentials::Metadata {
            base_url: "http://127.0.0.1:1".to_owned(),
            quota_project: None,
        };
        let cache = TokenCache::new(absent, &Timeouts::default()).unwrap();
        cache.current.store(Some(Arc::new(Token {
            header: HeaderValue::from_static("Bearer old"),
            expires: Instant::now() + Duration::from_secs(left_s),
            lifetime: Duration::from_secs(lifetime_s),
        })));
        cache
    }

    #[test]
    fn a_token_is_renewed_ahead_of_its_end_and_dropped_just_before_it() {
        for (left, lifetime, renew) in [
            (3000, 3600, Some(false)),
            (301, 3600, Some(false)),
            (299, 3600, Some(true)),
            (25, 3600, Some(true)),
            (19, 3600, None),
            (0, 3600, None),
            // A token with a lifetime of one minute is neither renewed constantly nor considered unusable from the
            // start.
            (50, 60, Some(false)),
            (14, 60, Some(true)),
            (5, 60, None),
        ] {
            let usable = cache(left, lifetime).usable(Instant::now());
            assert_eq!(
                usable.map(|usable| usable.renew),
                renew,
                "{left} s of {lifetime} s left"
            );
        }
    }

    #[tokio::test]
    async fn when_a_renewal_fails_the_old_token_remains_and_the_next_renewal_waits() {
        let (cache, deadline) = (cache(100, 3600), Instant::now() + Duration::from_secs(10));
        assert_eq!(cache.get(deadline).await.unwrap(), "Bearer old");
        let failed = cache.fetching.lock().await.as_ref().map(|(when, _)| *when);
        assert!(failed.is_some(), "it was tried");
        assert_eq!(cache.get(deadline).await.unwrap(), "Bearer old");
        assert_eq!(
            cache.fetching.lock().await.as_ref().map(|(when, _)| *when),
            failed,
            "and not again"
        );
    }

    #[test]
    fn only_the_token_that_was_refused_is_discarded() {
        let cache = cache(3000, 3600);
        cache.discard(&HeaderValue::from_static("Bearer older"));
        assert!(cache.usable(Instant::now()).is_some());
        cache.discard(&HeaderValue::from_static("Bearer old"));
        assert!(cache.usable(Instant::now()).is_none());
    }
}

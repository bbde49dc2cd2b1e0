//! Authentication: an API key, or an access token that is fetched, cached and renewed.

mod adc;
mod cache;
mod credentials;
mod fetch;

use std::time::Instant;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

pub use self::adc::{AdcSources, adc_from_env_values};
use self::cache::TokenCache;
pub use self::credentials::{AuthorizedUser, Credentials, METADATA_BASE, ServiceAccount};
use super::call::{Failure, Health};
use super::config::Timeouts;
use super::config::{ConfigError, invalid};

const API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
const QUOTA_PROJECT: HeaderName = HeaderName::from_static("x-goog-user-project");

/// Authenticates requests.
#[derive(Debug)]
pub(super) enum Auth {
    /// `x-goog-api-key`.
    Key(HeaderValue, SecretString),
    /// `Authorization: Bearer`, and the billing project if the credentials name one.
    Token(Box<TokenCache>, Option<HeaderValue>),
}

impl Auth {
    pub(super) fn key(key: &SecretString) -> Result<Self, ConfigError> {
        let text = key.expose_secret().trim();
        let refused = || {
            invalid(
                "api_key",
                "it is empty or contains invalid characters; allowed is visible ASCII",
            )
        };
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(refused());
        }
        let mut header = HeaderValue::from_str(text).map_err(|_| refused())?;
        header.set_sensitive(true);
        Ok(Self::Key(header, text.into()))
    }

    pub(super) fn token(credentials: Credentials, timeouts: &Timeouts) -> Result<Self, ConfigError> {
        let quota_project = credentials
            .quota_project()
            .map(|project| HeaderValue::from_str(project).map_err(|_| invalid("quota_project_id", "not a project id")))
            .transpose()?;
        Ok(Self::Token(
            Box::new(TokenCache::new(credentials, timeouts)?),
            quota_project,
        ))
    }

    /// Does it use access tokens, which can be renewed?
    pub(super) fn is_oauth(&self) -> bool {
        matches!(self, Self::Token(..))
    }

    /// Sets the headers. May have to fetch a token first.
    pub(super) async fn apply(&self, headers: &mut HeaderMap, deadline: Instant) -> Result<(), Failure> {
        match self {
            Self::Key(key, _) => {
                headers.insert(API_KEY, key.clone());
            }
            Self::Token(cache, quota_project) => {
                let token = cache.get(deadline).await.map_err(|failure| Failure {
                    // A failed token request says nothing about the health of the model's endpoint.
                    health: Health::Unknown,
                    ..failure
                })?;
                headers.insert(reqwest::header::AUTHORIZATION, token);
                if let Some(project) = quota_project {
                    headers.insert(QUOTA_PROJECT, project.clone());
                }
            }
        }
        Ok(())
    }

    /// The provider rejected the token in `headers`, so it is not used again.
    pub(super) fn refused(&self, headers: &HeaderMap) {
        if let (Self::Token(cache, _), Some(used)) = (self, headers.get(reqwest::header::AUTHORIZATION)) {
            cache.discard(used);
        }
    }

    /// Redacts the key or the token in a provider's answer.
    pub(super) fn redact(&self, words: String) -> String {
        match self {
            Self::Key(_, key) => blank(words, key.expose_secret()),
            Self::Token(cache, _) => match cache.current() {
                Some(token) => blank(words, token.to_str().unwrap_or_default().trim_start_matches("Bearer ")),
                None => words,
            },
        }
    }
}

fn blank(words: String, secret: &str) -> String {
    if secret.is_empty() || !words.contains(secret) {
        return words;
    }
    words.replace(secret, "…")
}

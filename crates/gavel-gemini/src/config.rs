//! The adapter's configuration: plain data, made by the application.

use std::fmt;
use std::time::Duration;

use gavel_upstream::breaker::Breaker;
use secrecy::SecretString;

use super::auth::CredentialSource;
use super::call::RetrySettings;
use crate::domain::definition::ThinkingLevel;
use crate::ports::metrics::Gauge;

/// The Developer API, by default.
pub(super) const DEVELOPER_BASE: &str = "https://generativelanguage.googleapis.com";
/// Vertex AI in express mode, by default.
pub(super) const EXPRESS_BASE: &str = "https://aiplatform.googleapis.com";

/// The configuration of a [`super::Gemini`].
#[derive(Clone, Debug)]
pub struct GeminiConfig {
    /// Where requests go and how they are authenticated.
    pub endpoint: Endpoint,
    /// Used if a definition names no model.
    pub default_model: String,
    /// Used if a definition sets neither a level nor a budget.
    pub thinking_level: Option<ThinkingLevel>,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Maximum bytes of one reply, including a whole stream.
    pub max_body: usize,
    /// When attempts are retried.
    pub retry: RetrySettings,
    /// When the circuit breaker stops requests.
    pub breaker: BreakerSettings,
}

impl GeminiConfig {
    /// The defaults for `endpoint`.
    pub fn new(endpoint: Endpoint, default_model: impl Into<String>) -> Self {
        Self {
            endpoint,
            default_model: default_model.into(),
            thinking_level: None,
            timeouts: Timeouts::default(),
            max_body: 8 * 1024 * 1024,
            retry: RetrySettings::default(),
            breaker: BreakerSettings::default(),
        }
    }
}

/// When the circuit breaker of the endpoint opens and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Consecutive failures that open it.
    pub failures: u32,
    /// How long it stays open before a trial.
    pub open_for: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: 10,
            open_for: Duration::from_secs(5),
        }
    }
}

impl BreakerSettings {
    pub(super) fn breaker(self) -> Breaker {
        Breaker::new(self.failures, self.open_for..=self.open_for, Gauge::noop())
    }
}

/// Which of Google's two APIs, and how requests are authenticated.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// The Gemini Developer API with a key.
    Developer {
        /// Sent as `x-goog-api-key`, never in a URL.
        api_key: SecretString,
        /// Scheme, host and port, instead of Google's.
        base_url: Option<String>,
    },
    /// Vertex AI with a key, without project and location.
    VertexExpress {
        /// Sent as `x-goog-api-key`, never in a URL.
        api_key: SecretString,
        /// Scheme, host and port, instead of Google's.
        base_url: Option<String>,
    },
    /// Vertex AI with an access token.
    Vertex {
        /// Project id or number.
        project: String,
        /// `global`, `us`, `eu` or a region.
        location: String,
        /// Host, or scheme, host and port, instead of the host derived from the location.
        endpoint: Option<String>,
        /// The source of access tokens.
        credentials: CredentialSource,
    },
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Developer { base_url: None, .. } => f.write_str("Gemini Developer API"),
            Self::Developer {
                base_url: Some(base), ..
            } => write!(f, "Gemini Developer API at {base}"),
            Self::VertexExpress { .. } => f.write_str("Vertex AI, express mode"),
            Self::Vertex { project, location, .. } => write!(f, "Vertex AI, project {project}, {location}"),
        }
    }
}

// Why no adapter could be made.

/// Why no adapter could be made. Names the setting, the problem and what is allowed, but never a secret.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value is invalid.
    #[error("{setting}: {problem}")]
    Invalid {
        /// `base_url`, `api_key`, `project`, `location`, `endpoint`, `model`, or a credentials file.
        setting: String,
        /// What was found, and what is allowed.
        problem: String,
    },
    /// The HTTP client could not be built.
    #[error("the HTTP client for Gemini could not be built: {0}")]
    Client(String),
}

pub(super) fn invalid(setting: impl Into<String>, problem: impl Into<String>) -> ConfigError {
    ConfigError::Invalid {
        setting: setting.into(),
        problem: problem.into(),
    }
}

// How long the adapter waits.

/// Timeouts. Each wait also ends at the request's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, including TLS.
    pub connect: Duration,
    /// For the head of the reply. A unary reply begins when the model has finished, so this also limits its thinking
    /// time.
    pub first_byte: Duration,
    /// Between two pieces of the body; of a stream whose model thinks long, from its first text or call on.
    pub idle: Duration,
    /// For an access token.
    pub token: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            first_byte: Duration::from_secs(120),
            idle: Duration::from_secs(60),
            token: Duration::from_secs(10),
        }
    }
}

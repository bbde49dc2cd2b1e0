//! Why no adapter could be made.

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

//! How long the adapter waits.

use std::time::Duration;

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

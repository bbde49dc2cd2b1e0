//! A server's answer in place of a result.

use reqwest::StatusCode;

pub(super) const METHOD_NOT_FOUND: i64 = -32601;

/// Error codes which mean that the request was not started: it was unreadable or invalid, or its method or parameters
/// are unknown. Any other error may occur in the middle of the work.
const NOT_BEGUN: [i64; 4] = [-32700, -32600, METHOD_NOT_FOUND, -32602];

/// What arrived in place of a result.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: Option<i64>,
    /// Does its text mention a session or credentials?
    pub(super) of_access: bool,
    /// Did the server ask clients to wait?
    pub(super) asks_to_wait: bool,
    /// For an operator.
    pub(super) words: String,
}

impl Refusal {
    /// May the server answer everything like this? A timeout, a disconnected client or a busy server does not suggest
    /// that.
    pub(super) fn may_be_of_everything(&self) -> bool {
        match self.status.as_u16() {
            408 | 429 | 499 | 503 => false,
            200..300 | 500..600 => self.code.is_some() || self.of_access,
            _ => true,
        }
    }

    /// Does a server that answers everything like this do so before it starts any work? Server errors (5xx) and
    /// protocol errors may also occur in the middle of the work, unless they mention a session or credentials.
    pub(super) fn is_before_work(&self) -> bool {
        match self.status.as_u16() {
            200..300 | 500..600 => self.of_access || self.code.is_some_and(says_not_begun),
            _ => true,
        }
    }

    pub(super) fn is_as(&self, other: &Self) -> bool {
        (self.status, self.code, self.of_access) == (other.status, other.code, other.of_access)
    }

    /// Are credentials refused?
    pub(super) fn is_auth(&self) -> bool {
        is_auth(self.status)
    }

    /// Is it what a server may answer to a method that it does not know?
    pub(super) fn is_of_the_request(&self) -> bool {
        !self.is_auth() && !self.asks_to_wait && (self.code.is_some() || self.status.is_client_error())
    }
}

pub(super) fn is_auth(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// Does an error with this code mean that nothing was started?
pub(super) fn says_not_begun(code: i64) -> bool {
    NOT_BEGUN.contains(&code)
}

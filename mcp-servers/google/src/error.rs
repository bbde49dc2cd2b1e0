//! The errors of this server beyond the common ones. An in-band error means that nothing was done. If that is
//! uncertain, the answer is a protocol error (`Fault::Unsettled`).

use gavel_mcp_base::{Class, Code as Common, ToolError, UserId};
use strum::IntoStaticStr;
use url::Url;

/// The closed set of this server's own error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Code {
    /// An invalid or misleading address.
    InvalidRecipient,
    /// More recipients than one call may have.
    TooManyRecipients,
    /// A control character that could begin a header, or an invisible character.
    UnsafeText,
    /// A date, time or zone that does not exist or is ambiguous.
    InvalidTime,
    /// The event would begin in the past.
    InThePast,
    /// The user has no connected Google account.
    NotConnected,
    /// Google no longer accepts the connection.
    ReconnectRequired,
    /// The user has connected another account than the one that the call is meant for.
    AccountChanged,
    /// The user did not consent to this.
    MissingScope,
    /// Google refused, and another consent would not help.
    AccessDenied,
    /// No such message, thread or calendar.
    NotFound,
    /// Google accepts fewer calls.
    RateLimited,
    /// Google does not answer, or reports its own failure; nothing was done.
    GoogleUnavailable,
    /// Google rejected the request.
    GoogleRefused,
    /// The operator must correct the configuration.
    Misconfigured,
}

/// How this server gets permission to act for an account.
#[derive(Debug)]
pub(crate) enum Way {
    /// The user consents, possibly starting on a page.
    Consent(Option<Url>),
    /// A service account acts for the users of a domain.
    Delegation,
}

/// Adds the next step to an error about a missing account.
pub(crate) fn with_next_step(error: ToolError, user: &UserId, way: &Way) -> ToolError {
    let asks = [Code::NotConnected, Code::ReconnectRequired, Code::MissingScope];
    if !asks.iter().any(|code| error.code() == <&str>::from(*code)) {
        return error;
    }
    let error = error.class(Class::Auth);
    match way {
        Way::Delegation => error.and(
            "Next step: the operator checks the service account: this user's address in the domain, the scopes of the \
             domain-wide delegation, the key, the clock of this server",
        ),
        Way::Consent(Some(page)) => error
            .and(&format!("Next step: open {page}"))
            .with("connect_url", page.as_str()),
        Way::Consent(None) => error.and(&format!(
            "Next step: the operator runs `gavel google connect {}`",
            quoted(user.as_str())
        )),
    }
}

/// Quoted as one word for a shell.
fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_alphanumeric() || "@._-+".contains(character);
    if word.chars().all(plain) && !word.starts_with('-') {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A database error before the call to Google means that nothing was done.
pub(crate) fn not_done(error: sqlx::Error) -> ToolError {
    tracing::error!(%error, "the database rejected a call");
    store_unavailable()
}

pub(crate) fn store_unavailable() -> ToolError {
    ToolError::new(
        Common::StoreUnavailable,
        "The server's own database cannot be reached now. Nothing was done; try again in a moment.",
    )
    .with("retryable", true)
}

pub(crate) fn not_connected() -> ToolError {
    ToolError::new(
        Code::NotConnected,
        "The user has not connected a Google account. The user must connect one first; nothing was done.",
    )
}

pub(crate) fn reconnect_required() -> ToolError {
    ToolError::new(
        Code::ReconnectRequired,
        "Google no longer accepts the user's connection (revoked or expired). The user must connect the \
         Google account again; nothing was done.",
    )
}

/// The approver was shown an account (or a mailbox was searched), and the call would use another one.
pub(crate) fn account_changed(meant: &str) -> ToolError {
    let meant = if meant.contains('@') {
        meant
    } else {
        "that was connected at that time"
    };
    ToolError::new(
        Code::AccountChanged,
        format!(
            "This call is for the account {meant}, but the user has connected another account since. Nothing was done; \
             the approval was for the first account."
        ),
    )
}

pub(crate) fn missing_scope(needed: &str) -> ToolError {
    ToolError::new(
        Code::MissingScope,
        format!(
            "The consent given to Google for this user does not allow this ({needed} is needed); nothing was done."
        ),
    )
    .with("scope", needed)
}

pub(crate) fn unavailable() -> ToolError {
    ToolError::new(
        Code::GoogleUnavailable,
        "Google cannot be reached now. Nothing was done; try again later.",
    )
    .with("retryable", true)
}

//! What can be wrong with a call of this server beside what can be wrong everywhere. An error that is answered in band says that
//! nothing was done; where that is not known, the answer is an error of the protocol ([`Fault::Unsettled`]).

use gavel_mcp_base::{Class, Code as Common, ToolError, UserId};
use url::Url;

/// The closed set of this server's own error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// An address that is none, or that is not what it looks like.
    InvalidRecipient,
    /// More than one call may have.
    TooManyRecipients,
    /// A control character where it could begin a header of its own, or one that nobody can see.
    UnsafeText,
    /// A date, a time or a zone that does not exist, or that is not certain.
    InvalidTime,
    /// It is over.
    InThePast,
    /// The user has no Google account connected.
    NotConnected,
    /// Google does not honour the connection any more.
    ReconnectRequired,
    /// The user has connected another account than the one that the call is meant for.
    AccountChanged,
    /// The user did not consent to this.
    MissingScope,
    /// Google says no, and another consent would not help.
    AccessDenied,
    /// No such message, thread or calendar.
    NotFound,
    /// Google wants fewer calls.
    RateLimited,
    /// Google does not answer, or answers with a fault of its own; nothing was done.
    GoogleUnavailable,
    /// Google does not take the request as it is.
    GoogleRefused,
    /// The operator has to mend something.
    Misconfigured,
}

/// How an account comes to be one that this server may act for.
#[derive(Debug)]
pub(crate) enum Way {
    /// The user consents; perhaps there is a page where that begins.
    Consent(Option<Url>),
    /// A service account acts for the users of a domain.
    Delegation,
}

/// Adds what is to be done next to an error that says that there is no account to act with.
pub(crate) fn with_next_step(error: ToolError, user: &UserId, way: &Way) -> ToolError {
    let asks = [Code::NotConnected, Code::ReconnectRequired, Code::MissingScope];
    if !asks.iter().any(|code| error.code() == <&str>::from(*code)) {
        return error;
    }
    let error = error.class(Class::Auth);
    match way {
        Way::Delegation => error.and(
            "Next step: the operator looks at the service account: this user's address in the domain, the scopes of the \
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

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_alphanumeric() || "@._-+".contains(character);
    if word.chars().all(plain) && !word.starts_with('-') {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

impl From<Code> for &'static str {
    fn from(code: Code) -> Self {
        match code {
            Code::InvalidRecipient => "invalid_recipient",
            Code::TooManyRecipients => "too_many_recipients",
            Code::UnsafeText => "unsafe_text",
            Code::InvalidTime => "invalid_time",
            Code::InThePast => "in_the_past",
            Code::NotConnected => "not_connected",
            Code::ReconnectRequired => "reconnect_required",
            Code::AccountChanged => "account_changed",
            Code::MissingScope => "missing_scope",
            Code::AccessDenied => "access_denied",
            Code::NotFound => "not_found",
            Code::RateLimited => "rate_limited",
            Code::GoogleUnavailable => "google_unavailable",
            Code::GoogleRefused => "google_refused",
            Code::Misconfigured => "misconfigured",
        }
    }
}

/// Why a call has no good answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Nothing was done.
    Refused(ToolError),
    /// Nobody can say here whether it was done; the words say why. In band it would be read as the tool's word that it was not.
    Unsettled(String),
}

impl From<ToolError> for Fault {
    fn from(error: ToolError) -> Self {
        Self::Refused(error)
    }
}

/// All that fails in the database before Google is asked has done nothing.
impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        tracing::error!(%error, "the database refused a call");
        Self::Refused(store_unavailable())
    }
}

pub(crate) fn store_unavailable() -> ToolError {
    ToolError::new(
        Common::StoreUnavailable,
        "The server's own database cannot be reached just now. Nothing was done; try again in a moment.",
    )
    .with("retryable", true)
}

pub(crate) fn internal() -> ToolError {
    ToolError::new(
        Common::Internal,
        "The server failed. Nothing was done; its log has the details.",
    )
}

pub(crate) fn not_connected() -> ToolError {
    ToolError::new(
        Code::NotConnected,
        "The user has not connected a Google account. The user has to connect one first; nothing was done.",
    )
}

pub(crate) fn reconnect_required() -> ToolError {
    ToolError::new(
        Code::ReconnectRequired,
        "Google does not accept the user's connection any more (taken back, or expired). The user has to connect the \
         Google account again; nothing was done.",
    )
}

/// Whoever gave leave was shown an account (or a mailbox was looked into), and the call would be made from another one.
pub(crate) fn account_changed(meant: &str) -> ToolError {
    let meant = if meant.contains('@') {
        meant
    } else {
        "that was connected then"
    };
    ToolError::new(
        Code::AccountChanged,
        format!(
            "This was meant to be done from the account {meant}, and the user has connected another one since. Nothing was done; \
             who agreed to it did so for that account."
        ),
    )
}

pub(crate) fn missing_scope(needed: &str) -> ToolError {
    ToolError::new(
        Code::MissingScope,
        format!(
            "What was consented to with Google for this user does not allow this ({needed} is needed); nothing was done."
        ),
    )
    .with("scope", needed)
}

pub(crate) fn unavailable() -> ToolError {
    ToolError::new(
        Code::GoogleUnavailable,
        "Google cannot be reached just now. Nothing was done; try again later.",
    )
    .with("retryable", true)
}

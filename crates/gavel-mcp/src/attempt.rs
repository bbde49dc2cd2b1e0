//! One request on its way to a server, and how far it came.
//!
//! What matters afterwards is whether the server may have started a call: that an effect happens at most once depends
//! on it. Every outcome therefore says so.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use gavel_upstream::handover::SendGate;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::message::RpcError;
use super::result::ERROR_BYTES;
use super::source::{Refusal, Source};
use crate::domain::budget::Share;
use crate::domain::time::rfc3339;
use crate::ports::runs::Hold;
use crate::ports::tools::CallRequest;

/// A call with everything that both transports need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing<'a> {
    /// The engine's request.
    pub(super) request: &'a CallRequest<'a>,
    /// The arguments as sent.
    pub(super) arguments: &'a RawValue,
    /// Signed identity for `_meta["gavel/identity"]`.
    pub(super) identity: Option<&'a str>,
    /// When to stop waiting.
    pub(super) deadline: Instant,
}

impl Outgoing<'_> {
    pub(super) fn cancel(&self) -> &CancellationToken {
        self.request.cancel
    }

    /// May it still be sent? If not, another process may own the run and send the call itself.
    pub(super) fn may_be_sent(&self) -> bool {
        self.request.hold.is_none_or(Hold::is_ours)
    }

    /// The outcome of a call that may no longer be sent.
    pub(super) fn lease_lost(&self) -> Attempt {
        Attempt::NotSent(Lost::Lease, Lost::Lease.words(self.request.timeout))
    }

    /// The outcome of a call that is given up for this reason. If it has not been sent yet, it stays unsent.
    pub(super) fn give_up(&self, lost: Lost, gate: &SendGate) -> Attempt {
        let words = lost.words(self.request.timeout);
        match gate.give_up() {
            true => Attempt::Lost(lost, words),
            false => Attempt::NotSent(lost, format!("{words}, before it could be sent")),
        }
    }

    /// Waits for the deadline or the cancellation of the run, and returns which one occurred.
    pub(super) async fn given_up(&self) -> Lost {
        tokio::select! {
            () = self.cancel().cancelled() => Lost::Cancelled,
            () = tokio::time::sleep_until(self.deadline.into()) => Lost::Timeout,
        }
    }
}

/// A request as the transports take it.
pub(super) struct Outbound<'a> {
    pub(super) id: u32,
    pub(super) method: &'static str,
    /// One JSON-RPC message without a line end.
    pub(super) body: Bytes,
    /// Does the server have no session, so that the request names the client, and headers what it asks for?
    pub(super) is_modern: bool,
    /// If it is a call.
    pub(super) call: Option<&'a CallRequest<'a>>,
    /// Passed before the first byte.
    pub(super) gate: &'a SendGate,
}

/// How one attempt ended.
#[derive(Debug)]
pub(super) enum Attempt {
    /// The server answered with this `result` (JSON text), which holds this share of the answer budget.
    Result(Bytes, Option<Share>),
    /// The server answered with a JSON-RPC error.
    Error {
        /// The code of the server or of JSON-RPC.
        code: i64,
        /// The server's message.
        message: String,
    },
    /// The server rejected the request before any tool could run (an HTTP 4xx).
    Refused(String),
    /// The connection is no longer usable, for this reason: the server does not know the session, or rejects every
    /// request on it. Nothing was executed, so the call may be sent again over a new connection.
    Stale(String),
    /// Nothing that a server could act on has left this process.
    NotSent(Lost, String),
    /// The request was sent, but no answer arrived that can be understood.
    Lost(Lost, String),
}

impl Attempt {
    /// The server's own error.
    pub(super) fn error(error: &RpcError, source: &Source) -> Self {
        Self::Error {
            code: error.code.unwrap_or(NO_CODE),
            message: source.said(&error.message, ERROR_BYTES).into_owned(),
        }
    }

    pub(super) fn unreadable(words: impl Into<String>) -> Self {
        Self::Lost(Lost::Unreadable, words.into())
    }
}

/// The outcome of a request, and the refusal that arrived in place of a result, if any.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) attempt: Attempt,
    pub(super) refusal: Option<Refusal>,
}

impl From<Attempt> for Answered {
    fn from(attempt: Attempt) -> Self {
        Self { attempt, refusal: None }
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The deadline passed.
    Timeout,
    /// The run was cancelled.
    Cancelled,
    /// Another process may own the run by now.
    Lease,
    /// The server's definition of the tool differs from the one that the policy decision was based on.
    Changed,
    /// The connection broke.
    Connection,
    /// What arrived cannot be understood. The same request would probably fail in the same way.
    Unreadable,
    /// The server may no longer know the session, so the session is replaced.
    Session,
    /// An answer arrived, but gavel held too many large answers to read it.
    NoRoom,
}

/// Replaces a missing or non-numeric code. It does not mean that nothing was started.
const NO_CODE: i64 = -32603;

impl Lost {
    /// The message; `after` is the time that the call had.
    pub(super) fn words(self, after: Duration) -> String {
        match self {
            Self::Timeout => format!("no answer within {} ms", after.as_millis()),
            Self::Cancelled => "cancelled while waiting for the answer".to_owned(),
            Self::Lease => "another process may have claimed the run; the call was not sent".to_owned(),
            Self::Changed => {
                "the server now offers a different definition of the tool; the call was not sent".to_owned()
            }
            Self::Connection | Self::Session => "the connection was lost before the answer".to_owned(),
            Self::Unreadable => "the answer cannot be understood".to_owned(),
            Self::NoRoom => "gavel is holding too many large answers; try again".to_owned(),
        }
    }
}

/// Maximum bytes of a reason for an operator.
pub(super) const MAX_WORDS: usize = 512;

/// Why a connection could not be opened, or its tools not be listed.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    /// For an operator.
    pub(super) words: String,
    /// The server's program or the configuration is at fault, so another attempt changes nothing.
    pub(super) is_lasting: bool,
    /// Was there an answer, or may one still come? Then the connection may be healthy.
    pub(super) answered: bool,
}

impl Fault {
    /// A fault that may disappear by the next attempt.
    pub(super) fn passing(words: String) -> Self {
        Self {
            words,
            is_lasting: false,
            answered: false,
        }
    }

    pub(super) fn lasting(words: String) -> Self {
        Self {
            words,
            is_lasting: true,
            answered: true,
        }
    }

    /// For a request without a result.
    pub(super) fn new(answered: Answered, source: &Source) -> Self {
        let is_lasting = matches!(answered.attempt, Attempt::Lost(Lost::Unreadable, _));
        let is_answered = is_lasting || matches!(answered.attempt, Attempt::Error { .. });
        let words = match (answered.attempt, answered.refusal) {
            (Attempt::Error { code, message }, _) => format!("{message} (code {code})"),
            (_, Some(refusal)) => refusal.words,
            (
                Attempt::Refused(words) | Attempt::Stale(words) | Attempt::NotSent(_, words) | Attempt::Lost(_, words),
                None,
            ) => words,
            (Attempt::Result(..), None) => "it answered".to_owned(),
        };
        Self {
            words: source.words(&words, MAX_WORDS),
            is_lasting,
            answered: is_answered,
        }
    }
}

/// Lifetime of an identity token in seconds.
const TOKEN_SECONDS: u64 = 60;

/// Calls `put` with each key and value, in a fixed order.
pub(super) fn meta(call: &Outgoing<'_>, mut put: impl FnMut(&'static str, &str)) {
    let request = call.request;
    put("gavel/user_id", request.user);
    put("gavel/origin", request.origin);
    put("gavel/run_id", request.run_id);
    put("gavel/action_id", &request.action_id.to_string());
    put("gavel/idempotency_key", request.idempotency_key);
    if let Some(at_us) = request.first_attempt_us {
        put("gavel/first_attempt_at", &rfc3339(at_us));
    }
    if let Some(account) = request.account {
        put("gavel/account", account);
    }
    if let Some(session) = request.session {
        put("gavel/session_id", &session.to_string());
    }
    if let Some(repository) = request.repository {
        put("gavel/repository", repository);
    }
    if let Some(repositories) = request.repositories {
        put("gavel/repositories", repositories);
    }
    if let Some(at_us) = request.deadline_us {
        put("gavel/deadline", &rfc3339(at_us));
    }
    if let Some(token) = call.identity {
        put("gavel/identity", token);
    }
    if let Some(traceparent) = request.traceparent {
        put("traceparent", traceparent);
    }
}

/// Signs the acting user's identity for one server, for a short time (HS256).
pub(super) struct IdentitySigner {
    key: EncodingKey,
    header: Header,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'static str,
    aud: &'a str,
    sub: &'a str,
    iat: u64,
    exp: u64,
}

impl IdentitySigner {
    pub(super) fn new(secret: &SecretString) -> Self {
        Self {
            key: EncodingKey::from_secret(secret.expose_secret().as_bytes()),
            header: Header::new(Algorithm::HS256),
        }
    }

    /// A token for `user` at the server `audience`.
    pub(super) fn sign(&self, audience: &str, user: &str) -> Result<String, String> {
        let iat = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_err(|_| "the system clock is before 1970".to_owned())?
            .as_secs();
        let claims = Claims {
            iss: "gavel",
            aud: audience,
            sub: user,
            iat,
            exp: iat + TOKEN_SECONDS,
        };
        jsonwebtoken::encode(&self.header, &claims, &self.key).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use jsonwebtoken::{DecodingKey, Validation};

    #[test]
    fn a_token_names_gavel_the_server_and_the_user_for_a_minute() {
        let secret = "0123456789abcdef0123456789abcdef";
        let token = IdentitySigner::new(&SecretString::from(secret))
            .sign("tasks", "u1")
            .unwrap();
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_audience(&["tasks"]);
        validation.set_issuer(&["gavel"]);
        let key = DecodingKey::from_secret(secret.as_bytes());
        let claims = jsonwebtoken::decode::<serde_json::Value>(&token, &key, &validation)
            .unwrap()
            .claims;
        assert_eq!(claims["sub"], "u1");
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 60);
        validation.set_audience(&["files"]);
        assert!(jsonwebtoken::decode::<serde_json::Value>(&token, &key, &validation).is_err());
    }
}

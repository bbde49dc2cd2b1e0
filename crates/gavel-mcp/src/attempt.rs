//! One request on its way to a server, and how far it came.
//!
//! What matters afterwards is whether the server may have started a call: that an effect happens at most once depends
//! on it. Every outcome therefore says so.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::answers::Refusal;
use super::message::RpcError;
use super::result::ERROR_BYTES;
use super::source::Source;
use crate::domain::budget::Share;
use crate::ports::runs::Hold;
use crate::ports::tools::CallRequest;
use gavel_upstream::handover::SendGate;

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

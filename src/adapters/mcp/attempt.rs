//! One call on its way to a server, and how far it came.
//!
//! What matters afterwards is whether the server may have started the call: that an effect happens at most once depends
//! on it. Every outcome therefore says so.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::message::RpcError;
use super::result::ERROR_BYTES;
use super::source::Source;
use crate::adapters::handover::SendGate;
use crate::domain::budget::Share;
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
    /// The call was sent, but no answer arrived.
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
    /// The connection broke, or what arrived was not an answer.
    Connection,
    /// The server may no longer know the session, so the session is replaced.
    Session,
    /// An answer arrived, but gavel held too many large answers to read it.
    NoRoom,
}

/// Error codes which mean that the request was not started: it was unreadable or invalid, or its method or parameters
/// are unknown. Any other error may occur in the middle of the work.
const NOT_BEGUN: [i64; 4] = [-32700, -32600, -32601, -32602];

/// Replaces a missing or non-numeric code. It does not mean that nothing was started.
const NO_CODE: i64 = -32603;

/// Does an error with this code mean that nothing was started?
pub(super) fn says_not_begun(code: i64) -> bool {
    NOT_BEGUN.contains(&code)
}

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
            Self::NoRoom => "gavel is holding too many large answers; try again".to_owned(),
        }
    }
}

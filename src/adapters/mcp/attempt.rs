//! One call on its way to a server, and how far it came.
//!
//! The one question that matters afterwards is whether the server can have begun: promise 3
//! (an effect at most once) hangs on it. So every way to end says it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::message::RpcError;
use super::result::ERROR_BYTES;
use super::source::Source;
use crate::domain::budget::Share;
use crate::ports::runs::Hold;
use crate::ports::tools::CallRequest;

/// A call with all that both lanes need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing<'a> {
    /// As the engine gave it.
    pub(super) request: &'a CallRequest<'a>,
    /// The arguments as they are sent.
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

    /// May it still be sent? Else the run may be another process's, which sends it itself.
    pub(super) fn may_be_sent(&self) -> bool {
        self.request.hold.is_none_or(Hold::is_ours)
    }

    /// The end of one that may not.
    pub(super) fn lease_lost(&self) -> Attempt {
        Attempt::NotSent(Lost::Lease, Lost::Lease.words(self.request.timeout))
    }

    /// Ends at the deadline or when the run is cancelled, with how that is to be told.
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
    /// The server answered with this `result`, JSON text, which takes this share of the budget of answers.
    Result(Bytes, Option<Share>),
    /// The server answered with a JSON-RPC error.
    Error {
        /// JSON-RPC's or the server's code.
        code: i64,
        /// The server's words.
        message: String,
    },
    /// The server turned the request away before any tool could run (an HTTP 4xx).
    Refused(String),
    /// The connection is of no use any more, for this reason: the server does not know the session, or refuses whatever comes
    /// over it. Nothing ran, so the call may be sent again over a new one.
    Stale(String),
    /// Nothing left this process, or nothing that a server could act on.
    NotSent(Lost, String),
    /// It went out, and no answer came.
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
    /// The time was over.
    Timeout,
    /// The run was cancelled.
    Cancelled,
    /// The run may be another process's by now.
    Lease,
    /// The server offers the tool otherwise than it was when the call was judged.
    Changed,
    /// The connection broke, or what came over it was no answer.
    Connection,
    /// The server may no longer know the session, which is therefore replaced.
    Session,
    /// It came, and gavel held too many large answers to read it.
    NoRoom,
}

/// Codes by which JSON-RPC says that a request was not taken up: it could not be read, it is none, its
/// method or its parameters are not known. Any other error may come from the middle of the work.
const NOT_BEGUN: [i64; 4] = [-32700, -32600, -32601, -32602];

/// Stands for a code that is missing or no number. It does not say that nothing was begun.
const NO_CODE: i64 = -32603;

/// Does an error of this code say that nothing was begun?
pub(super) fn says_not_begun(code: i64) -> bool {
    NOT_BEGUN.contains(&code)
}

impl Lost {
    /// In words; `after` is how long the call was given.
    pub(super) fn words(self, after: Duration) -> String {
        match self {
            Self::Timeout => format!("no answer within {} ms", after.as_millis()),
            Self::Cancelled => "cancelled while waiting for the answer".to_owned(),
            Self::Lease => "another process may have taken the run up; the call was not sent".to_owned(),
            Self::Changed => "its server offers the tool otherwise by now; the call was not sent".to_owned(),
            Self::Connection | Self::Session => "the connection was lost before the answer".to_owned(),
            Self::NoRoom => "gavel is holding too many large answers; try again".to_owned(),
        }
    }
}

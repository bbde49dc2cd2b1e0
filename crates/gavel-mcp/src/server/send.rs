//! Sends a call over a connection, and says what is known about one that was lost.

use std::time::{Duration, Instant};

use super::super::attempt::{Attempt, Lost, Outgoing};
use super::super::connection::Wire;
use super::super::link::Link;
use super::WAIT;
use crate::domain::journal::CallFailure;
use crate::domain::tool::{FailureCode, Tool};
use crate::ports::tools::CallReply;

/// A server that has not answered a call within this time is slow or hangs, however long the call may take.
const FAIR: Duration = Duration::from_secs(5);

/// Is the tool compared with the server's list over the connection?
#[derive(Clone, Copy)]
pub(super) struct Compare {
    pub(super) at_all: bool,
    /// After the server was asked over this connection.
    pub(super) refresh: bool,
}

/// Sends the call, and once more if the session was not usable and nothing can have been started.
pub(super) async fn send(link: &Link, outgoing: &Outgoing<'_>, started: Instant, compare: Compare) -> Attempt {
    let wait = outgoing.deadline.min(started + WAIT);
    let mut again = true;
    let mut is_read = false;
    loop {
        let connection = tokio::select! {
            connection = link.connection(wait) => connection,
            () = outgoing.cancel().cancelled() => {
                return Attempt::NotSent(Lost::Cancelled, "cancelled before it could be sent".to_owned());
            }
        };
        let connection = match connection {
            Ok(connection) => connection,
            // The call's deadline passed before a connection was available.
            Err(reason) if Instant::now() >= outgoing.deadline => {
                return Attempt::NotSent(Lost::Timeout, reason.to_owned());
            }
            Err(reason) => return Attempt::NotSent(Lost::Connection, reason.to_owned()),
        };
        // Checked before each attempt, because reaching this point may have taken long.
        if !outgoing.may_be_sent() {
            return outgoing.lease_lost();
        }
        // This may be another session than the one over which the server was last asked, or one that missed a change.
        let differs = compare.at_all && !connection.offers(outgoing.request.tool);
        if (differs || compare.refresh) && !is_read {
            is_read = true;
            let _ = link.refresh(outgoing.deadline.min(Instant::now() + WAIT)).await;
            continue;
        }
        if differs {
            return Attempt::NotSent(Lost::Changed, Lost::Changed.words(outgoing.request.timeout));
        }
        let attempt = connection.call(outgoing).await;
        let is_child = matches!(connection.wire, Wire::Process(_));
        match &attempt {
            Attempt::Stale(why) if again => link.renew(&connection, why),
            Attempt::NotSent(Lost::Connection, why) if again && is_child => link.renew(&connection, why),
            Attempt::Stale(why) | Attempt::Lost(Lost::Session, why) => {
                link.renew(&connection, why);
                return attempt;
            }
            Attempt::NotSent(Lost::Connection, _) | Attempt::Lost(Lost::Connection | Lost::Unreadable, _) => {
                link.suspect();
                return attempt;
            }
            _ => return attempt,
        }
        again = false;
    }
}

/// Does the loss of a call that had this much time count against its server? A cancelled call does not count, nor does
/// a call whose run had little time left.
pub(super) fn tells_of_the_server(lost: Lost, tool: &Tool, given: Duration) -> bool {
    match lost {
        Lost::Connection | Lost::Unreadable | Lost::Session => true,
        Lost::Cancelled | Lost::Lease | Lost::Changed | Lost::NoRoom => false,
        // A small part of the time may have been used before the call was sent.
        Lost::Timeout => given >= tool.timeout.min(FAIR).mul_f64(0.9),
    }
}

pub(super) fn unavailable(message: String) -> CallReply {
    CallReply::NotSent(CallFailure::new(FailureCode::Unavailable, message))
}

pub(super) fn not_sent(lost: Lost, message: String) -> CallReply {
    let code = match lost {
        // The run itself had ended.
        Lost::Cancelled => FailureCode::LimitReached,
        _ => FailureCode::Unavailable,
    };
    CallReply::NotSent(CallFailure::new(code, message))
}

pub(super) fn unknown(tool: &Tool, lost: Lost, message: String) -> CallReply {
    let code = match lost {
        _ if tool.side_effect => FailureCode::InDoubt,
        Lost::Timeout | Lost::Cancelled => FailureCode::Timeout,
        Lost::NoRoom => FailureCode::Overloaded,
        Lost::Connection | Lost::Unreadable | Lost::Session | Lost::Lease | Lost::Changed => FailureCode::ProtocolError,
    };
    CallReply::Unknown(CallFailure::new(code, message))
}

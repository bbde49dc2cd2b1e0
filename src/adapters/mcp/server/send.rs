//! Sends a call over a connection, and says what is known about one that was lost.

use std::time::{Duration, Instant};

use super::super::attempt::{Attempt, Lost, Outgoing};
use super::super::link::Link;
use super::super::peer;
use super::super::result::ERROR_BYTES;
use super::super::session::Session;
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
        let session = tokio::select! {
            session = link.session(wait) => session,
            () = outgoing.cancel().cancelled() => {
                return Attempt::NotSent(Lost::Cancelled, "cancelled before it could be sent".to_owned());
            }
        };
        let session = match session {
            Ok(session) => session,
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
        let differs = compare.at_all && !session.offers(outgoing.request.tool);
        if (differs || compare.refresh) && !is_read {
            is_read = true;
            let _ = link.refresh(outgoing.deadline.min(Instant::now() + WAIT)).await;
            continue;
        }
        if differs {
            return Attempt::NotSent(Lost::Changed, Lost::Changed.words(outgoing.request.timeout));
        }
        let attempt = send_over(&session, outgoing).await;
        match &attempt {
            Attempt::Stale(why) if again => link.renew(&session, why),
            Attempt::NotSent(Lost::Connection, why) if again && session.direct.is_none() => link.renew(&session, why),
            Attempt::Stale(why) | Attempt::Lost(Lost::Session, why) => {
                link.renew(&session, why);
                return attempt;
            }
            Attempt::NotSent(Lost::Connection, _) | Attempt::Lost(Lost::Connection, _) => {
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
        Lost::Connection | Lost::Session => true,
        Lost::Cancelled | Lost::Lease | Lost::Changed | Lost::NoRoom => false,
        // A small part of the time may have been used before the call was sent.
        Lost::Timeout => given >= tool.timeout.min(FAIR).mul_f64(0.9),
    }
}

async fn send_over(session: &Session, outgoing: &Outgoing<'_>) -> Attempt {
    let attempt = match &session.direct {
        Some(direct) => direct.call(outgoing).await,
        None => peer::call(&session.peer, &session.background, &session.source, outgoing).await,
    };
    let hidden = |words: String| session.source.said(&words, ERROR_BYTES).into_owned();
    match attempt {
        Attempt::Refused(words) => Attempt::Refused(hidden(words)),
        Attempt::NotSent(lost, words) => Attempt::NotSent(lost, hidden(words)),
        Attempt::Lost(lost, words) => Attempt::Lost(lost, hidden(words)),
        // These are already free of secrets.
        attempt @ (Attempt::Result(..) | Attempt::Error { .. } | Attempt::Stale(_)) => attempt,
    }
}

pub(super) fn unavailable(message: String) -> CallReply {
    CallReply::NotSent(CallFailure::new(FailureCode::Unavailable, message))
}

pub(super) fn not_sent(lost: Lost, message: String) -> CallReply {
    let code = match lost {
        // The run itself had ended.
        Lost::Cancelled => FailureCode::LimitReached,
        Lost::Timeout | Lost::Connection | Lost::Session | Lost::Lease | Lost::Changed | Lost::NoRoom => {
            FailureCode::Unavailable
        }
    };
    CallReply::NotSent(CallFailure::new(code, message))
}

pub(super) fn unknown(tool: &Tool, lost: Lost, message: String) -> CallReply {
    let code = match lost {
        _ if tool.side_effect => FailureCode::InDoubt,
        Lost::Timeout | Lost::Cancelled => FailureCode::Timeout,
        Lost::NoRoom => FailureCode::Overloaded,
        Lost::Connection | Lost::Session | Lost::Lease | Lost::Changed => FailureCode::ProtocolError,
    };
    CallReply::Unknown(CallFailure::new(code, message))
}

//! A server's answer in place of a result, and whether it concerns one call or everything.
//!
//! A server that forgot its session, or no longer accepts the credentials, may report this with any status and any
//! text. Text alone proves nothing: in an error about arguments it may come from the model. gavel therefore requests
//! the list of tools over the same session. If the server refuses that in the same way, it refuses everything. Then it
//! has not started the call, and the connection is replaced.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use super::super::body::{Body, BodyFault, MAX_ERROR, whole};
use super::super::redirect;
use super::super::refused::{is_auth, retry_after};
use super::Direct;
use crate::adapters::mcp::answers::Held;
use crate::adapters::mcp::attempt::{Attempt, Lost, Outgoing, says_not_begun};
use crate::adapters::mcp::message::{self, Envelope, RpcError, Says};
use crate::domain::surrogates;

/// Maximum bytes of a refusal shown to an operator.
const SHOWN: usize = 256;
/// How long the server may take to show whether it refuses everything.
const ASKED: Duration = Duration::from_secs(2);
/// Minimum time after a successful list before the server is asked again.
const BELIEVED: Duration = Duration::from_secs(1);
/// JSON-RPC's code for invalid arguments. It concerns the call, never the session.
const INVALID_PARAMS: i64 = -32602;

/// The outcome of a call, and the refusal if there was one.
pub(super) struct Answered {
    pub(super) attempt: Attempt,
    pub(super) refusal: Option<Refusal>,
}

impl From<Attempt> for Answered {
    fn from(attempt: Attempt) -> Self {
        Self { attempt, refusal: None }
    }
}

/// What arrived in place of a result.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    code: Option<i64>,
    /// Does its text mention a session or credentials?
    of_access: bool,
    /// For an operator.
    words: String,
}

impl Refusal {
    /// May the server answer everything like this? A timeout, a disconnected client or a busy server does not suggest
    /// that.
    fn may_be_of_everything(&self) -> bool {
        match self.status.as_u16() {
            408 | 429 | 499 | 503 => false,
            200..300 | 500..600 => self.code.is_some() || self.of_access,
            _ => true,
        }
    }

    /// Does a server that answers everything like this do so before it starts any work? Server errors (5xx) and
    /// protocol errors may also occur in the middle of the work, unless they mention a session or credentials.
    fn is_before_work(&self) -> bool {
        match self.status.as_u16() {
            200..300 | 500..600 => self.of_access || self.code.is_some_and(says_not_begun),
            _ => true,
        }
    }

    fn is_as(&self, other: &Self) -> bool {
        (self.status, self.code, self.of_access) == (other.status, other.code, other.of_access)
    }
}

impl Direct {
    /// The server's own error in an answer with this status.
    pub(super) fn error(&self, status: StatusCode, error: &RpcError) -> Answered {
        let code = error.code.map(|code| format!(" (code {code})")).unwrap_or_default();
        Answered {
            refusal: Some(Refusal {
                status,
                code: error.code,
                of_access: speaks_of_access(&error.message),
                words: self.shown(&format!("{}{code}", error.message)),
            }),
            attempt: Attempt::error(error, &self.unsolicited.source),
        }
    }

    fn shown(&self, words: &str) -> String {
        self.unsolicited.source.words(words, SHOWN).replace(['\n', '\t'], " ")
    }

    /// Reads an answer that is not 2xx.
    ///
    /// 404 means that the session is unknown and nothing was started (MCP, transports, session management); some SDKs
    /// answer 400. This is trusted if the text begins as in those SDKs, or if a 404 has no text; the call is then sent
    /// again. An answer to this very call is an exception. In all other cases, the server is asked
    /// ([`Self::confirmed`]).
    pub(super) async fn refusal(&self, body: Body, status: StatusCode, id: u32, held: &mut Held<'_>) -> Answered {
        if status.is_redirection() {
            return self.redirected(status, body.headers()).into();
        }
        let pause = self.asked_to_wait(body.headers());
        // An unreadable body does not count as an empty one.
        let (body, is_whole) = match whole(body, MAX_ERROR, held).await {
            Ok(body) => (body, true),
            Err(_) => (bytes::Bytes::new(), false),
        };
        let body = surrogates::repaired(&body);
        let message = match body.trim_ascii_start().first() {
            // serde would also accept an array as the members in order.
            Some(b'{') => serde_json::from_slice::<Envelope<'_>>(&body).ok(),
            _ => None,
        };
        let to_this_call = message
            .as_ref()
            .is_some_and(|message| message.id.and_then(message::number) == Some(i64::from(id)));
        let error = match message.as_ref().map(Envelope::says) {
            Some(Says::Result(_)) => return lost(format!("the server answered HTTP {status} with a `result`")).into(),
            Some(Says::Error(error)) => Some(error),
            Some(Says::Nothing(_)) | None => None,
        };
        let text = match &error {
            Some(error) => error.message.clone(),
            None => String::from_utf8_lossy(&body).into_owned(),
        };
        let with_session = self.has_session();
        let code = error.as_ref().and_then(|error| error.code);
        if with_session
            && !to_this_call
            && matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND)
            && code != Some(INVALID_PARAMS)
        {
            let is_silent = status == StatusCode::NOT_FOUND && is_whole && text.trim().is_empty();
            if is_silent || says_the_session_is_gone(&text) {
                return Attempt::Stale("the server no longer knows its session".to_owned()).into();
            }
        }
        let said = format!("the server answered HTTP {status}");
        let words = match text.trim() {
            "" => said.clone(),
            text => self.shown(&format!("HTTP {status}: {text}")),
        };
        let attempt = match &error {
            // The protocol says that the session is gone. From within a tool or a gateway, 404 does not say how far the
            // call came.
            _ if status == StatusCode::NOT_FOUND && with_session => match code.is_some_and(says_not_begun) {
                true => Attempt::Stale(words.clone()),
                false => Attempt::Lost(Lost::Session, said),
            },
            // A protocol error is the server's own answer, whatever the status.
            Some(error) if error.code.is_some() && !is_auth(status) => Attempt::error(error, &self.unsolicited.source),
            // A 5xx from a gateway means that the outcome is unknown. So do two client errors: a timeout, and a client
            // that disconnected (nginx).
            _ if status.is_server_error() || matches!(status.as_u16(), 408 | 499) => lost(said),
            _ => Attempt::Refused(match pause {
                Some(pause) => format!("{said} and asks clients to wait {} s", pause.as_secs()),
                None => said,
            }),
        };
        Answered {
            attempt,
            refusal: Some(Refusal {
                status,
                code,
                of_access: is_auth(status) || speaks_of_access(&text),
                words,
            }),
        }
    }

    fn redirected(&self, status: StatusCode, headers: &HeaderMap) -> Attempt {
        match redirect::target(self.url(), status, headers) {
            // Only these two request the same request at another address. Servers also use the others to show the
            // result of a POST.
            Ok(_) if !matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) => {
                lost(format!("the server answered HTTP {status} without a result"))
            }
            // The next handshake finds the new address.
            Ok(_) => Attempt::Stale(format!("the server answered HTTP {status}: its address has changed")),
            Err(words) => Attempt::Refused(words),
        }
    }

    /// Stores the pause that the server requests with `Retry-After`.
    fn asked_to_wait(&self, headers: &HeaderMap) -> Option<Duration> {
        let pause = retry_after(headers)?;
        self.unsolicited.background.rest(pause);
        Some(pause)
    }

    /// The outcome of the call, once it is known whether the server refuses everything.
    pub(super) async fn confirmed(self: &Arc<Self>, answered: Answered, call: &Outgoing<'_>) -> Attempt {
        let Answered { attempt, refusal } = answered;
        let Some(refusal) = refusal.filter(Refusal::may_be_of_everything) else {
            return attempt;
        };
        let now = Instant::now();
        let listed_ms = self.listed_ms.load(Ordering::Relaxed);
        if listed_ms > 0 && self.since.elapsed() < Duration::from_millis(listed_ms) + BELIEVED {
            return attempt;
        }
        let limit = ASKED.min(call.deadline.saturating_duration_since(now));
        let asked = tokio::select! {
            () = call.cancel().cancelled() => return attempt,
            asked = tokio::time::timeout(limit, self.ask_for_tools()) => asked,
        };
        match asked {
            Ok(Answered {
                refusal: Some(other), ..
            }) if refusal.is_as(&other) && refusal.is_before_work() => {
                return Attempt::Stale(format!("it refuses all requests: {}", other.words));
            }
            Ok(Answered {
                attempt: Attempt::Result(..),
                ..
            }) => {
                let ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.listed_ms.store(ms.max(1), Ordering::Relaxed);
            }
            // The link checks the server independently of the call.
            Ok(_) | Err(_) => self.unsolicited.background.suspect.notify_one(),
        }
        attempt
    }
}

/// How SDKs begin the message that a session is unknown.
const GONE: [&str; 12] = [
    "no valid session",
    "session not found",
    "session id not found",
    "session expired",
    "session has expired",
    "session has been terminated",
    "session terminated",
    "invalid session",
    "invalid or expired session",
    "unknown session",
    "missing session",
    "server not initialized",
];

fn says_the_session_is_gone(words: &str) -> bool {
    let words = words.trim_start().to_ascii_lowercase();
    let status = ["bad request", "not found"]
        .iter()
        .find_map(|status| words.strip_prefix(status));
    let words = status.unwrap_or(&words);
    let words = words.trim_start_matches([':', ' ']);
    GONE.iter().any(|beginning| words.starts_with(beginning))
}

/// Words, one of which occurs in every message that a session or a credential has expired. They count only if a second
/// answer contains them too.
const ACCESS: [&str; 12] = [
    "session",
    "initializ",
    "initialis",
    "unauthor",
    "authenticat",
    "authoriz",
    "forbidden",
    "denied",
    "credential",
    "token",
    "key",
    "expired",
];

fn speaks_of_access(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    ACCESS.iter().any(|word| words.contains(word))
}

impl BodyFault {
    /// The outcome of a call whose answer could not be read for this reason.
    pub(super) fn attempt(&self) -> Attempt {
        self.no_room().unwrap_or_else(|| lost(self.to_string()))
    }

    /// The same, if the fault says nothing about the server.
    pub(super) fn no_room(&self) -> Option<Attempt> {
        matches!(self, Self::NoRoom(_)).then(|| Attempt::Lost(Lost::NoRoom, self.to_string()))
    }
}

pub(super) fn lost(message: impl Into<String>) -> Attempt {
    Attempt::Lost(Lost::Connection, message.into())
}

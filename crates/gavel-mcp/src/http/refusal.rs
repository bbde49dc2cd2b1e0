//! A server's answer in place of a result, and whether it concerns one call or everything.
//!
//! A server that forgot its session, or no longer accepts the credentials, may report this with any status and any
//! text. Text alone proves nothing: in an error about arguments it may come from the model. gavel therefore requests
//! the list of tools over the same session ([`Connection::confirmed`](super::super::connection::Connection)). If the
//! server refuses that in the same way, it refuses everything. Then it has not started the call, and the connection is
//! replaced.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use super::Http;
use super::body::{Body, MAX_ERROR, whole};
use crate::answers::Held;
use crate::answers::{Refusal, is_auth, says_not_begun};
use crate::attempt::{Answered, Attempt, Lost};
use crate::message::{self, Incoming, RpcError, Says};

/// Maximum bytes of a refusal shown to an operator.
const SHOWN: usize = 256;
/// The longest pause that a server may request.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

impl Http {
    /// The server's own error in an answer with this status.
    pub(super) fn error(&self, status: StatusCode, error: &RpcError) -> Answered {
        let code = error.code.map(|code| format!(" (code {code})")).unwrap_or_default();
        Answered {
            refusal: Some(Refusal {
                status,
                code: error.code,
                of_access: speaks_of_access(&error.message),
                asks_to_wait: false,
                words: self.shown(&format!("{}{code}", error.message)),
            }),
            attempt: Attempt::error(error, &self.inbox.source),
        }
    }

    fn shown(&self, words: &str) -> String {
        self.inbox.source.words(words, SHOWN).replace(['\n', '\t'], " ")
    }

    /// Reads an answer to the request `id` that is not 2xx.
    pub(super) async fn refusal(&self, body: Body, status: StatusCode, id: u32, held: &mut Held<'_>) -> Answered {
        if status.is_redirection() {
            return self.redirected(status, body.headers()).into();
        }
        let pause = retry_after(body.headers());
        if let Some(pause) = pause {
            self.inbox.background.rest(pause);
        }
        let body = whole(body, MAX_ERROR, held).await.unwrap_or_default();
        let mut error = None;
        let mut has_result = false;
        // Any other body is a text.
        let _ = message::read(&body, &mut |incoming| match incoming {
            Incoming::Answer(_, Says::Error(read)) => error = Some(read),
            Incoming::Answer(named, Says::Result(_)) => has_result |= named.may_be(id),
            _ => {}
        });
        if has_result {
            return Attempt::unreadable(format!("the server answered HTTP {status} with a `result`")).into();
        }
        let text = match &error {
            Some(error) => error.message.clone(),
            None => String::from_utf8_lossy(&body).into_owned(),
        };
        let said = format!("the server answered HTTP {status}");
        let code = error.as_ref().and_then(|error| error.code);
        let mut words = match text.trim() {
            "" => format!("HTTP {status}"),
            text => self.shown(&format!("HTTP {status}: {text}")),
        };
        if let Some(pause) = pause {
            words = format!("{words}; it asks clients to wait {} s", pause.as_secs());
        }
        let attempt = match &error {
            // The protocol says that the session is gone. From within a tool or a gateway, 404 does not say how far the
            // call came.
            _ if status == StatusCode::NOT_FOUND && self.has_session() => match code.is_some_and(says_not_begun) {
                true => Attempt::Stale(words.clone()),
                false => Attempt::Lost(Lost::Session, said),
            },
            // A protocol error is the server's own answer, whatever the status.
            Some(error) if error.code.is_some() && !is_auth(status) => Attempt::error(error, &self.inbox.source),
            // A 5xx from a gateway means that the outcome is unknown. So do two client errors: a timeout, and a client
            // that disconnected (nginx).
            _ if status.is_server_error() || matches!(status.as_u16(), 408 | 499) => {
                Attempt::Lost(Lost::Connection, said)
            }
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
                asks_to_wait: pause.is_some(),
                words,
            }),
        }
    }

    /// A redirect of a call.
    fn redirected(&self, status: StatusCode, headers: &HeaderMap) -> Attempt {
        match self.redirect(status, headers) {
            // Only these two request the same request at another address. Servers also use the others to show the
            // result of a POST.
            Ok(_) if !matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) => {
                Attempt::unreadable(format!("the server answered HTTP {status} without a result"))
            }
            // The next handshake finds the new address.
            Ok(_) => Attempt::Stale(format!("the server answered HTTP {status}: its address has changed")),
            Err(words) => Attempt::Refused(words),
        }
    }
}

/// The pause that a response requests, in seconds or as a date (RFC 9110 section 10.2.3), capped at one hour.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            at.duration_since(std::time::SystemTime::now()).ok()?
        }
    };
    Some(pause.min(LONGEST_PAUSE)).filter(|pause| !pause.is_zero())
}

/// Does a text speak of a session or of credentials? It counts only where status and code do not say it (2xx, 5xx), and
/// only if a second answer speaks of them too.
fn speaks_of_access(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    [
        "session",
        "initiali",
        "auth",
        "token",
        "credential",
        "key",
        "expired",
        "denied",
        "forbidden",
    ]
    .iter()
    .any(|word| words.contains(word))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_pause_is_read_in_seconds_and_as_a_date() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(of("30"), Some(Duration::from_secs(30)));
        assert_eq!(of("999999999"), Some(LONGEST_PAUSE));
        for none in ["0", "-1", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(of(none), None, "{none}");
        }
        let date = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(100));
        assert!((95..=100).contains(&of(&date).unwrap().as_secs()));
    }
}

//! A configured server as a source of text: which of its text may be kept, shown and logged.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::StatusCode;

use super::config::ServerConfig;
use super::log::LogLines;
use super::secrets::Secrets;
use crate::domain::budget::{Budget, Exceeded, Held, Pool};
use crate::domain::text::{capped, visible};

/// One for each configured server, shared by all its connections.
pub(super) struct Source {
    pub(super) name: Arc<str>,
    pub(super) secrets: Secrets,
    pub(super) log: LogLines,
    /// Shared by the answers of all servers.
    pub(super) answers: Arc<Budget>,
}

impl Source {
    pub(super) fn new(config: &ServerConfig, answers: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Self {
            name: config.name.clone(),
            secrets: Secrets::of(config),
            log: LogLines::new(config.name.clone()),
            answers: answers.clone(),
        })
    }

    /// Text of the server, or of a client about it, in the form that is shown, logged and recorded: without configured
    /// secrets and invisible characters, in at most `max` bytes. It is truncated last, so that no part of a secret
    /// remains.
    pub(super) fn words(&self, text: &str, max: usize) -> String {
        let seen = visible(&self.secrets.hide(text));
        // Removed invisible characters may have been inside a secret.
        capped(&self.secrets.hide(&seen), max).into_owned()
    }

    /// Text for a model: as the server wrote it, but without configured secrets.
    pub(crate) fn said<'a>(&self, text: &'a str, max: usize) -> Cow<'a, str> {
        match self.secrets.hide(text) {
            Cow::Borrowed(text) => capped(text, max),
            Cow::Owned(text) => Cow::Owned(capped(&text, max).into_owned()),
        }
    }

    /// For messages that no user requested, such as the list of tools.
    pub(super) fn held(&self) -> Held<'static> {
        let holder = format!("the server {}", self.name);
        Held::new(Cow::Owned(self.answers.clone()), holder, "", COPIES)
    }

    /// For the answer to a call of this user.
    pub(super) fn held_for<'a>(&'a self, tenant: &'a str, user: &'a str) -> Held<'a> {
        Held::new(Cow::Borrowed(&self.answers), tenant, user, COPIES)
    }
}

/// Number of copies of an answer in memory: the received bytes, and the buffer that joins the pieces.
const COPIES: usize = 2;

/// The budget shared by all answers.
pub(super) fn budget() -> Arc<Budget> {
    Budget::new(Pool::ServerAnswers, Pool::ServerAnswers.limits(0))
}

/// The budget has no room for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("gavel is holding too many large answers, so this one was not read; try again ({0})")]
pub(super) struct NoRoom(#[from] Exceeded);

/// [`Held`], shared by the reader of the pieces and the reader of the messages.
#[derive(Clone, Debug)]
pub(super) struct Reading<'a>(Arc<Mutex<Held<'a>>>);

impl<'a> Reading<'a> {
    pub(super) fn new(held: Held<'a>) -> Self {
        Self(Arc::new(Mutex::new(held)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Held<'a>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// A server's answer in place of a result.

pub(super) const METHOD_NOT_FOUND: i64 = -32601;

/// Error codes which mean that the request was not started: it was unreadable or invalid, or its method or parameters
/// are unknown. Any other error may occur in the middle of the work.
const NOT_BEGUN: [i64; 4] = [-32700, -32600, METHOD_NOT_FOUND, -32602];

/// What arrived in place of a result.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: Option<i64>,
    /// Does its text mention a session or credentials?
    pub(super) of_access: bool,
    /// Did the server ask clients to wait?
    pub(super) asks_to_wait: bool,
    /// For an operator.
    pub(super) words: String,
}

impl Refusal {
    /// May the server answer everything like this? A timeout, a disconnected client or a busy server does not suggest
    /// that.
    pub(super) fn may_be_of_everything(&self) -> bool {
        match self.status.as_u16() {
            408 | 429 | 499 | 503 => false,
            200..300 | 500..600 => self.code.is_some() || self.of_access,
            _ => true,
        }
    }

    /// Does a server that answers everything like this do so before it starts any work? Server errors (5xx) and
    /// protocol errors may also occur in the middle of the work, unless they mention a session or credentials.
    pub(super) fn is_before_work(&self) -> bool {
        match self.status.as_u16() {
            200..300 | 500..600 => self.of_access || self.code.is_some_and(says_not_begun),
            _ => true,
        }
    }

    pub(super) fn is_as(&self, other: &Self) -> bool {
        (self.status, self.code, self.of_access) == (other.status, other.code, other.of_access)
    }

    /// Are credentials refused?
    pub(super) fn is_auth(&self) -> bool {
        is_auth(self.status)
    }

    /// Is it what a server may answer to a method that it does not know?
    pub(super) fn is_of_the_request(&self) -> bool {
        !self.is_auth() && !self.asks_to_wait && (self.code.is_some() || self.status.is_client_error())
    }
}

pub(super) fn is_auth(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// Does an error with this code mean that nothing was started?
pub(super) fn says_not_begun(code: i64) -> bool {
    NOT_BEGUN.contains(&code)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// One user must not take the room of others.
    #[test]
    fn a_user_may_hold_three_of_the_largest_answers_and_others_still_find_room() {
        let source = &crate::inbox::testing::inbox().source;
        let largest = 16 * 1024 * 1024;
        let mut held: Vec<_> = (0..4).map(|_| source.held_for("t", "u")).collect();
        for held in &mut held[..3] {
            held.add(largest).unwrap();
        }
        let refused = NoRoom(held[3].add(largest).unwrap_err()).to_string();
        let words = "gavel is holding too many large answers, so this one was not read; try again \
                     (100663296 bytes of answers of servers at once are allowed for a user)";
        assert_eq!(refused, words);
        for (tenant, user) in [("t", "v"), ("o", "u")] {
            let mut other = source.held_for(tenant, user);
            other.add(largest).unwrap();
            held.push(other);
        }
        assert!(source.held().add(largest).is_err(), "the process is full");
        drop(held);
        assert_eq!(source.answers.used(), 0);
    }
}

//! Google's REST APIs: the requests, which of them are repeated, and the meaning of the answers.

pub(crate) mod calendar;
pub(crate) mod gmail;
pub(crate) mod http;
pub(crate) mod refusal;

use std::time::Duration;

use gavel_mcp_base::{ToolError, UserId};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use url::Url;

use self::http::{Http, Lost, Reply};
use self::refusal::{is_googles, is_rate_limit, refusal};
use crate::auth::{Access, Tokens};
use crate::error::{internal, unavailable};
use crate::settings::{PROFILE, Places};

/// The most attempts of a request that only reads.
const ATTEMPTS: u32 = 3;

/// A right that a request needs, and the scopes that grant it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    Send,
    ReadMail,
    WriteEvents,
}

impl Right {
    pub(crate) const ALL: [Self; 3] = [Self::Send, Self::ReadMail, Self::WriteEvents];

    /// The narrowest scope comes first.
    pub(crate) fn scopes(self) -> &'static [&'static str] {
        match self {
            Self::Send => &[
                "https://www.googleapis.com/auth/gmail.send",
                "https://www.googleapis.com/auth/gmail.compose",
                "https://www.googleapis.com/auth/gmail.modify",
                "https://mail.google.com/",
            ],
            Self::ReadMail => &[
                "https://www.googleapis.com/auth/gmail.readonly",
                "https://www.googleapis.com/auth/gmail.metadata",
                "https://www.googleapis.com/auth/gmail.modify",
                "https://mail.google.com/",
            ],
            Self::WriteEvents => &[
                "https://www.googleapis.com/auth/calendar.events",
                "https://www.googleapis.com/auth/calendar.events.owned",
                "https://www.googleapis.com/auth/calendar.app.created",
                "https://www.googleapis.com/auth/calendar",
            ],
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.scopes()[0]
    }

    pub(crate) fn granted_by(self, scopes: &str) -> bool {
        let mut granted = scopes.split_ascii_whitespace();
        granted.any(|scope| self.scopes().contains(&scope))
    }
}

/// The requested scopes that were not granted, except those whose rights other scopes grant, and those for the user's
/// profile.
pub(crate) fn not_granted(asked: &[String], granted: &str) -> Vec<String> {
    let is_there = |scope: &str| {
        let mut rights = Right::ALL
            .into_iter()
            .filter(|right| right.scopes().contains(&scope))
            .peekable();
        granted.split_ascii_whitespace().any(|given| given == scope)
            || PROFILE.contains(&scope)
            || rights.peek().is_some() && rights.all(|right| right.granted_by(granted))
    };
    asked.iter().filter(|scope| !is_there(scope)).cloned().collect()
}

/// A client for Google, which acts as one user at a time.
#[derive(Debug)]
pub(crate) struct Google {
    http: Http,
    tokens: Tokens,
    places: Places,
}

/// The result of a request with an effect.
#[derive(Debug)]
pub(crate) enum Sent {
    /// Google answered; the caller checks whether that is a refusal.
    Answered(Reply),
    /// Google did not receive the request.
    Never(ToolError),
    /// The request may have taken effect.
    Unknown,
}

/// The user of a call, the account it is meant for, and its deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct As<'a> {
    pub(crate) user: &'a UserId,
    /// If set, the call is not made from another account of the user.
    pub(crate) mailbox: Option<&'a str>,
    pub(crate) deadline: Instant,
}

impl Google {
    pub(crate) fn new(http: Http, tokens: Tokens, places: Places) -> Self {
        Self { http, tokens, places }
    }

    /// Permission to use a right as this user.
    pub(crate) async fn access(&self, who: As<'_>, right: Right) -> Result<Access, ToolError> {
        self.tokens.access(who, right).await
    }

    /// Sends a request with an effect. It is sent once, and again only if Google rejected the first token or no
    /// connection was established.
    async fn change(&self, who: As<'_>, right: Right, request: &Request) -> Sent {
        let mut access = match self.access(who, right).await {
            Ok(access) => access,
            Err(error) => return Sent::Never(error),
        };
        let (mut renewed, mut again) = (false, true);
        loop {
            let Some(authorized) = authorized(request, &access) else {
                return Sent::Never(internal());
            };
            match self.http.send(authorized, who.deadline).await {
                Ok(reply) if reply.status == 401 && !renewed && is_googles(&reply) => {
                    renewed = true;
                    access = match self.tokens.renew(who, right, &access).await {
                        Ok(access) => access,
                        Err(error) => return Sent::Never(error),
                    };
                }
                Ok(reply) => return Sent::Answered(reply),
                Err(Lost::NotSent) if again => again = false,
                Err(Lost::NotSent) => return Sent::Never(unavailable()),
                Err(Lost::Unknown) => return Sent::Unknown,
            }
        }
    }

    /// Sends a request that only reads. It is repeated while that may help and time remains.
    async fn read(&self, who: As<'_>, right: Right, request: &Request) -> Result<Reply, ToolError> {
        let mut attempt = 1;
        loop {
            let reply = match self.change(who, right, request).await {
                Sent::Answered(reply) if reply.status.is_success() => return Ok(reply),
                Sent::Answered(reply) => Some(reply),
                Sent::Never(error) => return Err(error),
                Sent::Unknown => None,
            };
            let wait = pause(attempt, reply.as_ref());
            // An answer that is not Google's proves nothing.
            let reply = reply.filter(is_googles);
            let transient = reply.as_ref().is_none_or(is_transient);
            if !transient || attempt == ATTEMPTS || Instant::now() + wait >= who.deadline {
                return Err(reply.map_or_else(unavailable, |reply| refusal(&reply, right.name())));
            }
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }
}

/// A refusal that may not occur for a later request.
pub(crate) fn is_transient(reply: &Reply) -> bool {
    is_rate_limit(reply) || reply.status.is_server_error() || reply.status == 408
}

/// How long to wait: Google's value, or longer each time; random, so that callers do not retry together.
pub(crate) fn pause(attempt: u32, reply: Option<&Reply>) -> Duration {
    let own = Duration::from_millis(250 * 2_u64.pow(attempt.min(6)));
    let own = own.mul_f64(0.5 + fastrand::f64() / 2.0);
    reply
        .and_then(|reply| reply.retry_after)
        .map_or(own, |said| said.max(own))
}

fn authorized(request: &Request, access: &Access) -> Option<Request> {
    let mut request = request.try_clone()?;
    request.headers_mut().insert(AUTHORIZATION, access.header.clone());
    Some(request)
}

/// `base` with further escaped segments.
fn at(base: &Url, segments: &[&str]) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}

fn get(url: Url) -> Request {
    Request::new(Method::GET, url)
}

fn post(url: Url, body: &impl Serialize) -> Result<Request, ToolError> {
    let body = serde_json::to_vec(body).map_err(|error| {
        tracing::error!(%error, "a request could not be written as JSON");
        internal()
    })?;
    let mut request = Request::new(Method::POST, url);
    let json = HeaderValue::from_static("application/json");
    request.headers_mut().insert(CONTENT_TYPE, json);
    *request.body_mut() = Some(body.into());
    Ok(request)
}

/// Parses an answer. An answer that cannot be parsed counts as missing.
pub(crate) fn parsed<T: DeserializeOwned>(reply: &Reply) -> Option<T> {
    serde_json::from_slice(&reply.body)
        .inspect_err(|error| {
            let (line, column) = (error.line(), error.column());
            tracing::warn!(line, column, "an answer of Google cannot be read");
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_consent_is_reported_unless_another_scope_allows_it() {
        let scope = |name: &str| format!("https://www.googleapis.com/auth/{name}");
        let asked = [
            "gmail.send",
            "gmail.readonly",
            "calendar.events",
            "userinfo.email",
            "drive",
        ]
        .map(scope);
        let missing = |granted: &[&str]| {
            let granted: Vec<_> = granted.iter().map(|name| scope(name)).collect();
            not_granted(&asked, &granted.join(" "))
        };
        assert_eq!(
            missing(&["gmail.send"]),
            ["gmail.readonly", "calendar.events", "drive"].map(scope)
        );
        assert_eq!(missing(&["gmail.modify", "calendar", "drive"]), [""; 0]);
        assert_eq!(
            missing(&["gmail.send", "gmail.metadata", "drive"]),
            [scope("calendar.events")]
        );
    }
}

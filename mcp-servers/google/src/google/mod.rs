//! Google's REST APIs: the requests, which of them are repeated, and the meaning of the answers.

pub(crate) mod calendar;
pub(crate) mod gmail;
pub(crate) mod http;
pub(crate) mod refusal;

use gavel_mcp_base::{ToolError, internal};
use reqwest::header::AUTHORIZATION;
use reqwest::{Method, Request};
use serde::Serialize;
use tokio::time::Instant;
use url::Url;

use self::http::{Http, Lost, Reply, at, pause};
use self::refusal::{is_googles, is_rate_limit, refusal};
use crate::auth::{Access, Tokens};
use crate::error::unavailable;
use crate::rights::{As, Right};
use crate::settings::Places;

/// The most attempts of a request that only reads.
const ATTEMPTS: u32 = 3;

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
                Err(Lost::Unknown | Lost::TooLarge) => return Sent::Unknown,
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

fn authorized(request: &Request, access: &Access) -> Option<Request> {
    let mut request = request.try_clone()?;
    request.headers_mut().insert(AUTHORIZATION, access.header.clone());
    Some(request)
}

fn get(url: Url) -> Request {
    Request::new(Method::GET, url)
}

fn post(url: Url, body: &impl Serialize) -> Result<Request, ToolError> {
    let body = serde_json::to_vec(body).map_err(|error| {
        tracing::error!(%error, "a request could not be written as JSON");
        internal()
    })?;
    Ok(gavel_mcp_base::http::post(url, "application/json", body))
}

//! Google's REST APIs: the requests, which of them are repeated, and the meaning of the answers.

pub(crate) mod calendar;
pub(crate) mod gmail;

use gavel_mcp_base::{ToolError, internal};
use reqwest::header::AUTHORIZATION;
use reqwest::{Method, Request};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::auth::{Access, Tokens};
use crate::error::{Code, missing_scope, reconnect_required, unavailable};
use crate::rights::{As, Right};
use crate::settings::Places;
pub(crate) use gavel_mcp_base::http::{Http, Lost, Reply, Retries, at};

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
        let mut retries = Retries::new(ATTEMPTS, who.deadline);
        loop {
            let reply = match self.change(who, right, request).await {
                Sent::Answered(reply) if reply.status.is_success() => return Ok(reply),
                Sent::Answered(reply) => Some(reply),
                Sent::Never(error) => return Err(error),
                Sent::Unknown => None,
            };
            // An answer that is not Google's proves nothing.
            let refused = reply.as_ref().filter(|reply| is_googles(reply));
            if !refused.is_none_or(is_transient) || !retries.again(reply.as_ref()).await {
                return Err(refused.map_or_else(unavailable, |reply| refusal(reply, right.name())));
            }
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

/// Larger than any expected answer, in bytes.
const MAX_BODY: usize = 2 << 20;

/// The connections to Google.
pub(crate) fn connections() -> anyhow::Result<Http> {
    let agent = concat!("gavel-mcp-google/", env!("CARGO_PKG_VERSION"));
    Http::new("Google", agent, MAX_BODY, None)
}

// The meaning of Google's refusals. Google's messages are not passed on, since they may quote users; its reasons are a
// closed vocabulary.

#[derive(Debug, Default, Deserialize)]
struct Body {
    #[serde(default)]
    error: Described,
}

#[derive(Debug, Default, Deserialize)]
struct Described {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    errors: Vec<Reason>,
    #[serde(default)]
    details: Vec<Reason>,
    #[serde(default)]
    status: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Reason {
    #[serde(default)]
    reason: Option<String>,
}

/// The reasons in an answer that have the form of a vocabulary word.
pub(crate) fn reasons(reply: &Reply) -> Vec<String> {
    let body: Body = serde_json::from_slice(&reply.body).unwrap_or_default();
    let Described {
        errors,
        details,
        status,
        code: _,
    } = body.error;
    let reasons = errors.into_iter().chain(details).filter_map(|each| each.reason);
    reasons.chain(status).filter(|reason| is_label(reason)).collect()
}

/// At most 64 letters, digits and underscores.
pub(crate) fn is_label(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Does the answer prove that nothing was done? Google may fail after the effect, and an answer from an intermediary,
/// such as a proxy's page, does not speak for Google.
pub(crate) fn is_refused(reply: &Reply) -> bool {
    reply.status.is_client_error() && reply.status != 408 && is_googles(reply)
}

/// Is it a refusal in Google's own form, which repeats the status?
pub(crate) fn is_googles(reply: &Reply) -> bool {
    let body = serde_json::from_slice::<Body>(&reply.body);
    body.is_ok_and(|body| body.error.code == reply.status.as_u16())
}

/// Does it report too many calls?
pub(crate) fn is_rate_limit(reply: &Reply) -> bool {
    const REASONS: [&str; 6] = [
        "rateLimitExceeded",
        "userRateLimitExceeded",
        "quotaExceeded",
        "dailyLimitExceeded",
        "RATE_LIMIT_EXCEEDED",
        "RESOURCE_EXHAUSTED",
    ];
    match reply.status.as_u16() {
        429 => true,
        403 => reasons(reply).iter().any(|reason| REASONS.contains(&reason.as_str())),
        _ => false,
    }
}

/// The error for a refusal without effect. `scope` is the scope that the request needed.
pub(crate) fn refusal(reply: &Reply, scope: &str) -> ToolError {
    let reasons = reasons(reply);
    let has = |names: &[&str]| reasons.iter().any(|reason| names.contains(&reason.as_str()));
    let error = if is_rate_limit(reply) {
        let error = ToolError::new(
            Code::RateLimited,
            "Google accepts no more calls for this user now. Nothing was done; try again later.",
        );
        let seconds = reply.retry_after().map_or(60, |wait| wait.as_secs());
        error.with("retryable", true).with("retry_after_s", seconds)
    } else if reply.status == 401 {
        reconnect_required()
    } else if has(&["insufficientPermissions", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"]) {
        missing_scope(scope)
    } else if has(&["accessNotConfigured", "SERVICE_DISABLED"]) {
        ToolError::new(
            Code::Misconfigured,
            "Google's API is not enabled for the operator's project. The operator must enable it; nothing was done.",
        )
    } else {
        match reply.status.as_u16() {
            403 => ToolError::new(
                Code::AccessDenied,
                "Google does not allow this user to do that. Nothing was done; another attempt will not help.",
            ),
            404 => ToolError::new(
                Code::NotFound,
                "Google has no such message, thread, event or calendar for this user. Nothing was done.",
            ),
            408 | 500.. => unavailable(),
            _ => ToolError::new(
                Code::GoogleRefused,
                "Google did not accept the request. Nothing was done; change the arguments.",
            ),
        }
    };
    match reasons.first() {
        Some(reason) => error.with("reason", reason.as_str()),
        None => error,
    }
}

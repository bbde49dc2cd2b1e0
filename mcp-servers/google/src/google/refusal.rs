//! The meaning of Google's refusals. Google's messages are not passed on, since they may quote users; its reasons are a
//! closed vocabulary.

use gavel_mcp_base::ToolError;
use serde::Deserialize;

use super::http::Reply;
use crate::error::{Code, missing_scope, reconnect_required, unavailable};

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

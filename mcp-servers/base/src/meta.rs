//! What a call says in `_meta`. The user never comes from a tool's arguments.

use rmcp::model::JsonObject;

use crate::{Code, Moment, ToolError, UserId};

/// Where a trusted client names the user.
pub const USER: &str = "gavel/user_id";
/// Where a result that is an error says of which kind it is ([`crate::Class`]).
pub(crate) const ERROR_CLASS: &str = "gavel/error_class";
const IDEMPOTENCY_KEY: &str = "gavel/idempotency_key";
const FIRST_ATTEMPT: &str = "gavel/first_attempt_at";
const ACCOUNT: &str = "gavel/account";
const MAX_KEY_CHARS: usize = 255;

/// The user whom a trusted client names, if it names one.
pub fn named_user(meta: &JsonObject) -> Result<Option<UserId>, ToolError> {
    let Some(named) = meta.get(USER) else {
        return Ok(None);
    };
    named.as_str().and_then(UserId::parse).map(Some).ok_or_else(|| {
        ToolError::new(
            Code::InvalidIdentity,
            format!(
                "`_meta[\"{USER}\"]` has to be a text of 1 to {} characters without control characters.",
                UserId::MAX_CHARS
            ),
        )
    })
}

/// The key under which repeated calls are one call, if there is one.
pub fn idempotency_key(meta: &JsonObject) -> Result<Option<String>, ToolError> {
    let Some(key) = meta.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    key.as_str()
        .filter(|key| !key.is_empty() && key.chars().count() <= MAX_KEY_CHARS && !key.chars().any(char::is_control))
        .map(|key| Some(key.to_owned()))
        .ok_or_else(|| {
            ToolError::new(
                Code::InvalidIdempotencyKey,
                format!(
                    "`_meta[\"{IDEMPOTENCY_KEY}\"]` has to be a text of 1 to {MAX_KEY_CHARS} \
                     characters without control characters."
                ),
            )
        })
}

/// When a call was first sent, where this is a further attempt at it.
pub fn first_attempt(meta: &JsonObject) -> Result<Option<Moment>, ToolError> {
    let Some(at) = meta.get(FIRST_ATTEMPT) else {
        return Ok(None);
    };
    at.as_str().and_then(Moment::parse).map(Some).ok_or_else(|| {
        ToolError::new(
            Code::InvalidMeta,
            format!("`_meta[\"{FIRST_ATTEMPT}\"]` has to be a time such as 2026-03-31T09:00:00.123456Z."),
        )
    })
}

/// The account that the call is meant for, as this server named it before: whoever gave leave for the call was shown it.
pub fn account(meta: &JsonObject) -> Result<Option<String>, ToolError> {
    let Some(account) = meta.get(ACCOUNT) else {
        return Ok(None);
    };
    account
        .as_str()
        .map(|account| Some(account.to_owned()))
        .ok_or_else(|| ToolError::new(Code::InvalidMeta, format!("`_meta[\"{ACCOUNT}\"]` has to be a text.")))
}

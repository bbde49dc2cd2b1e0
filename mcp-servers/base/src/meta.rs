//! What a call says in `_meta`. The user never comes from a tool's arguments.

use rmcp::model::JsonObject;

use crate::{Code, ToolError, UserId};

/// Where a trusted client names the user.
pub const USER: &str = "gavel/user_id";
/// Where a result that is an error says of which kind it is ([`crate::Class`]).
pub(crate) const ERROR_CLASS: &str = "gavel/error_class";
const IDEMPOTENCY_KEY: &str = "gavel/idempotency_key";
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

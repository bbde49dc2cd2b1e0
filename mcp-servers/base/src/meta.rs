//! The data of a call in `_meta`. The user never comes from a tool's arguments.

use rmcp::model::JsonObject;

use crate::{Code, Moment, ToolError, UserId};

/// The key with which a trusted client names the user.
pub const USER: &str = "gavel/user_id";
/// The key for the class of an error result ([`crate::Class`]).
pub(crate) const ERROR_CLASS: &str = "gavel/error_class";
const IDEMPOTENCY_KEY: &str = "gavel/idempotency_key";
const FIRST_ATTEMPT: &str = "gavel/first_attempt_at";
const ACCOUNT: &str = "gavel/account";
const SESSION: &str = "gavel/session_id";
const REPOSITORY: &str = "gavel/repository";
const REPOSITORIES: &str = "gavel/repositories";
const DEADLINE: &str = "gavel/deadline";
const MAX_KEY_CHARS: usize = 255;
const MAX_SESSION_CHARS: usize = 128;

/// The user that a trusted client names, if any.
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

/// The idempotency key: calls with the same key are one call.
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

/// When the call was first sent, if this is a further attempt.
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

/// The account for the call, as this server named it before: the approver of the call was shown it.
pub fn account(meta: &JsonObject) -> Result<Option<String>, ToolError> {
    let Some(account) = meta.get(ACCOUNT) else {
        return Ok(None);
    };
    account
        .as_str()
        .map(|account| Some(account.to_owned()))
        .ok_or_else(|| ToolError::new(Code::InvalidMeta, format!("`_meta[\"{ACCOUNT}\"]` has to be a text.")))
}

/// The session that the call belongs to, if any. What a server creates for a session, no other session sees.
pub fn session_id(meta: &JsonObject) -> Result<Option<String>, ToolError> {
    let Some(session) = meta.get(SESSION) else {
        return Ok(None);
    };
    session
        .as_str()
        .filter(|session| {
            !session.is_empty()
                && session.chars().count() <= MAX_SESSION_CHARS
                && !session.chars().any(|c| c.is_control() || c.is_whitespace())
        })
        .map(|session| Some(session.to_owned()))
        .ok_or_else(|| {
            ToolError::new(
                Code::InvalidMeta,
                format!(
                    "`_meta[\"{SESSION}\"]` has to be a text of 1 to {MAX_SESSION_CHARS} characters without white space."
                ),
            )
        })
}

/// Whose things the call may see: those of its session, else those of its user. Others see nothing of them.
pub fn owner(meta: &JsonObject) -> Result<Option<String>, ToolError> {
    let session = session_id(meta)?;
    // No session's id has white space.
    let user = named_user(meta)?.map(|user| format!("user {}", user.as_str()));
    Ok(session.or(user))
}

/// Owner and name of the repository that the call's run is limited to, if it is limited to one.
pub fn repository(meta: &JsonObject) -> Result<Option<(String, String)>, ToolError> {
    let Some(repository) = meta.get(REPOSITORY) else {
        return Ok(None);
    };
    let is_plain =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    repository
        .as_str()
        .and_then(|text| text.split_once('/'))
        .filter(|(owner, name)| is_plain(owner) && is_plain(name))
        .map(|(owner, name)| Some((owner.to_owned(), name.to_owned())))
        .ok_or_else(|| {
            ToolError::new(
                Code::InvalidMeta,
                format!("`_meta[\"{REPOSITORY}\"]` has to be a repository such as acme/dates."),
            )
        })
}

/// The repositories that the call's tenant may use, as patterns (`acme/*`); `None` if it may use all.
pub fn repositories(meta: &JsonObject) -> Result<Option<Vec<String>>, ToolError> {
    let Some(patterns) = meta.get(REPOSITORIES) else {
        return Ok(None);
    };
    let patterns = patterns.as_str().map(|patterns| {
        patterns
            .split(' ')
            .filter(|one| !one.is_empty())
            .map(str::to_owned)
            .collect()
    });
    let words = || format!("`_meta[\"{REPOSITORIES}\"]` has to be patterns such as acme/*, separated by blanks.");
    patterns
        .map(Some)
        .ok_or_else(|| ToolError::new(Code::InvalidMeta, words()))
}

/// When the caller stops working, if it says so. Nothing of a call has to last longer.
pub fn deadline(meta: &JsonObject) -> Result<Option<Moment>, ToolError> {
    let Some(at) = meta.get(DEADLINE) else {
        return Ok(None);
    };
    at.as_str().and_then(Moment::parse).map(Some).ok_or_else(|| {
        ToolError::new(
            Code::InvalidMeta,
            format!("`_meta[\"{DEADLINE}\"]` has to be a time such as 2026-03-31T09:00:00Z."),
        )
    })
}

//! The data of a call in `_meta`. The user never comes from a tool's arguments.

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::{Code, Moment, ToolError, UserId};

/// The key with which a trusted client names the user.
pub const USER: &str = "gavel/user_id";
/// The key for the class of an error result ([`crate::Class`]).
pub(crate) const ERROR_CLASS: &str = "gavel/error_class";

/// What a client says beside the arguments.
#[derive(Debug, Clone, Default)]
pub struct Meta(JsonObject);

impl Meta {
    /// The data as it was sent.
    pub fn new(given: JsonObject) -> Self {
        Self(given)
    }

    /// The value of another key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// The user that a trusted client names, if any.
    pub fn user(&self) -> Result<Option<UserId>, ToolError> {
        let rule = format!(
            "a text of 1 to {} characters without control characters",
            UserId::MAX_CHARS
        );
        self.text(USER, Code::InvalidIdentity, &rule, UserId::parse)
    }

    /// The user that a trusted client names, or else that of the server's settings.
    pub fn user_or(&self, configured: Option<&UserId>) -> Result<UserId, ToolError> {
        let user = self.user()?.or_else(|| configured.cloned());
        user.ok_or_else(|| {
            let words = format!(
                "The call names no user. The client must send the user's id in `_meta[\"{USER}\"]`, or the server must be \
                 started with `--user NAME`."
            );
            ToolError::new(Code::UserRequired, words)
        })
    }

    /// The idempotency key: calls with the same key are one call.
    pub fn idempotency_key(&self) -> Result<Option<String>, ToolError> {
        let rule = "a text of 1 to 255 characters without control characters";
        self.text("gavel/idempotency_key", Code::InvalidIdempotencyKey, rule, |key| {
            is_plain(key, 255, char::is_control).then(|| key.to_owned())
        })
    }

    /// When the call was first sent, if this is a further attempt.
    pub fn first_attempt(&self) -> Result<Option<Moment>, ToolError> {
        let rule = "a time such as 2026-03-31T09:00:00.123456Z";
        self.text("gavel/first_attempt_at", Code::InvalidMeta, rule, Moment::parse)
    }

    /// The account for the call, as this server named it before: the approver of the call was shown it.
    pub fn account(&self) -> Result<Option<String>, ToolError> {
        self.text("gavel/account", Code::InvalidMeta, "a text", |account| {
            Some(account.to_owned())
        })
    }

    /// The session that the call belongs to, if any. What a server creates for a session, no other session sees.
    pub fn session_id(&self) -> Result<Option<String>, ToolError> {
        let rule = "a text of 1 to 128 characters without white space";
        self.text("gavel/session_id", Code::InvalidMeta, rule, |session| {
            is_plain(session, 128, |c| c.is_control() || c.is_whitespace()).then(|| session.to_owned())
        })
    }

    /// Whose things the call may see: those of its session, else those of its user. Others see nothing of them.
    pub fn owner(&self) -> Result<Option<String>, ToolError> {
        let session = self.session_id()?;
        // No session's id has white space.
        let user = self.user()?.map(|user| format!("user {}", user.as_str()));
        Ok(session.or(user))
    }

    /// Owner and name of the repository that the call's run is limited to, if it is limited to one.
    pub fn repository(&self) -> Result<Option<(String, String)>, ToolError> {
        let is_name = |part: &str| is_plain(part, usize::MAX, |c| !c.is_ascii_alphanumeric() && !"-_.".contains(c));
        self.text(
            "gavel/repository",
            Code::InvalidMeta,
            "a repository such as acme/dates",
            |text| {
                let (owner, name) = text.split_once('/')?;
                (is_name(owner) && is_name(name)).then(|| (owner.to_owned(), name.to_owned()))
            },
        )
    }

    /// The repositories that the call's tenant may use, as patterns (`acme/*`); `None` if it may use all.
    pub fn repositories(&self) -> Result<Option<Vec<String>>, ToolError> {
        let rule = "patterns such as acme/*, separated by blanks";
        self.text("gavel/repositories", Code::InvalidMeta, rule, |patterns| {
            let patterns = patterns.split(' ').filter(|one| !one.is_empty());
            Some(patterns.map(str::to_owned).collect())
        })
    }

    /// When the caller stops working, if it says so. Nothing of a call has to last longer.
    pub fn deadline(&self) -> Result<Option<Moment>, ToolError> {
        let rule = "a time such as 2026-03-31T09:00:00Z";
        self.text("gavel/deadline", Code::InvalidMeta, rule, Moment::parse)
    }

    /// The value of a key, if it is there; `rule` says what it has to be.
    fn text<T>(
        &self,
        key: &str,
        code: Code,
        rule: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ToolError> {
        let Some(given) = self.0.get(key) else {
            return Ok(None);
        };
        let parsed = given.as_str().and_then(parse).map(Some);
        parsed.ok_or_else(|| ToolError::new(code, format!("`_meta[\"{key}\"]` has to be {rule}.")))
    }
}

fn is_plain(text: &str, longest: usize, is_refused: impl Fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().count() <= longest && !text.chars().any(is_refused)
}

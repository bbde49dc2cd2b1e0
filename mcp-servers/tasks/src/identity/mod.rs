//! Whose call it is. The user never comes from tool arguments.
//!
//! Over stdio the process that started the server is trusted to name the user in `_meta`. Over HTTP
//! anybody can send `_meta`, so the user is taken only from a token signed with a shared secret.

mod token;
mod user_id;

use std::fmt;

use rmcp::model::JsonObject;

pub(crate) use token::Verifier;
pub(crate) use user_id::UserId;

use crate::error::{Code, ToolError};

const USER_KEY: &str = "gavel/user_id";

/// How callers are told apart.
#[derive(Clone)]
pub(crate) enum Identity {
    /// `_meta["gavel/user_id"]`, or the given user when the caller names none.
    Stdio {
        /// The user when the caller names none.
        user: Option<UserId>,
    },
    /// The subject of a verified token in `_meta["gavel/identity"]`.
    Signed(Box<Verifier>),
    /// Everybody is this user.
    Single(UserId),
}

impl Identity {
    pub(crate) fn user(&self, meta: &JsonObject) -> Result<UserId, ToolError> {
        match self {
            Self::Stdio { user } => match meta.get(USER_KEY) {
                Some(named) => named.as_str().and_then(UserId::parse).ok_or_else(|| {
                    invalid(&format!(
                        "`_meta[\"{USER_KEY}\"]` has to be a text of 1 to {} characters without \
                         control characters.",
                        UserId::MAX_CHARS
                    ))
                }),
                None => user.clone().ok_or_else(|| {
                    ToolError::new(
                        Code::UserRequired,
                        format!(
                            "Nobody said whose tasks these are. The client has to send the user's \
                             id in `_meta[\"{USER_KEY}\"]`, or the server has to be started with \
                             `--user NAME`."
                        ),
                    )
                }),
            },
            Self::Signed(verifier) => verifier.user(meta),
            Self::Single(user) => Ok(user.clone()),
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdio { .. } => "Identity::Stdio",
            Self::Signed(_) => "Identity::Signed",
            Self::Single(_) => "Identity::Single",
        })
    }
}

fn invalid(message: &str) -> ToolError {
    ToolError::new(Code::InvalidIdentity, message)
}

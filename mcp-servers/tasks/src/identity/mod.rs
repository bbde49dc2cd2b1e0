//! The user of a call. The user never comes from tool arguments.
//!
//! Over stdio, the process that started the server is trusted to name the user in `_meta`. Over HTTP any client can
//! send `_meta`, so the user comes only from a token signed with a shared secret.

mod token;

use std::fmt;

use gavel_mcp_base::{Code, Meta, ToolError, UserId, meta};

pub(crate) use token::Verifier;

/// How the server determines the user.
#[derive(Clone)]
pub(crate) enum Identity {
    /// `_meta["gavel/user_id"]`, or the configured user if the caller names none.
    Stdio {
        /// The user if the caller names none.
        user: Option<UserId>,
    },
    /// The subject of a verified token in `_meta["gavel/identity"]`.
    Signed(Box<Verifier>),
    /// All calls are this user's.
    Single(UserId),
}

impl Identity {
    pub(crate) fn user(&self, given: &Meta) -> Result<UserId, ToolError> {
        match self {
            Self::Stdio { user } => match given.user()? {
                Some(named) => Ok(named),
                None => user.clone().ok_or_else(|| {
                    ToolError::new(
                        Code::UserRequired,
                        format!(
                            "The call names no user. The client must send the user's \
                             id in `_meta[\"{}\"]`, or the server must be started with \
                             `--user NAME`.",
                            meta::USER
                        ),
                    )
                }),
            },
            Self::Signed(verifier) => verifier.user(given),
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

//! Whose call it is. The user never comes from tool arguments.
//!
//! Over stdio the process that started the server is trusted to name the user in `_meta`. Over HTTP
//! anybody can send `_meta`, so the user is taken only from a token signed with a shared secret.

use std::fmt;

use jsonwebtoken::{Algorithm, DecodingKey, Validation, errors::ErrorKind};
use rmcp::model::JsonObject;
use serde::Deserialize;

use crate::error::{Code, ToolError};
use crate::secret::Secret;

const USER_KEY: &str = "gavel/user_id";
const TOKEN_KEY: &str = "gavel/identity";
const ISSUER: &str = "gavel";
const LEEWAY_SECONDS: u64 = 5;
/// Callers sign for 60 seconds; what lives much longer is not the short-lived token agreed on.
const MAX_LIFE_SECONDS: u64 = 120;
const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// A user's id, as the caller's own system spells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserId(String);

impl UserId {
    const MAX_CHARS: usize = 512;

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let fits =
            !text.trim().is_empty() && text.chars().count() <= Self::MAX_CHARS && !text.chars().any(char::is_control);
        fits.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

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

/// Checks identity tokens: JWT, HS256 and nothing else.
#[derive(Clone)]
pub(crate) struct Verifier {
    key: DecodingKey,
    validation: Validation,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    iat: u64,
    exp: u64,
}

impl Verifier {
    pub(crate) fn new(secret: &Secret, audience: &str) -> Self {
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_issuer(&[ISSUER]);
        validation.set_audience(&[audience]);
        validation.set_required_spec_claims(&["exp", "aud", "sub", "iss"]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY_SECONDS;
        Self {
            key: DecodingKey::from_secret(secret.bytes()),
            validation,
        }
    }

    fn user(&self, meta: &JsonObject) -> Result<UserId, ToolError> {
        let Some(token) = meta.get(TOKEN_KEY) else {
            return Err(ToolError::new(
                Code::UserRequired,
                format!(
                    "Nobody said whose tasks these are. Over HTTP the client has to send a signed \
                     token in `_meta[\"{TOKEN_KEY}\"]`."
                ),
            ));
        };
        let token = token
            .as_str()
            .filter(|token| token.len() <= MAX_TOKEN_BYTES)
            .ok_or_else(|| invalid("The identity token is not a token."))?;
        let claims = jsonwebtoken::decode::<Claims>(token, &self.key, &self.validation)
            .map_err(|error| {
                tracing::warn!(%error, "an identity token was refused");
                match error.kind() {
                    ErrorKind::ExpiredSignature => invalid("The identity token has expired."),
                    _ => invalid("The identity token is not valid here."),
                }
            })?
            .claims;
        let now = jsonwebtoken::get_current_timestamp();
        if claims.iat > now + LEEWAY_SECONDS || claims.exp.saturating_sub(claims.iat) > MAX_LIFE_SECONDS {
            tracing::warn!("an identity token was refused: it lives too long or begins later");
            return Err(invalid("The identity token is not valid here."));
        }
        UserId::parse(&claims.sub).ok_or_else(|| invalid("The identity token names no user."))
    }
}

fn invalid(message: &str) -> ToolError {
    ToolError::new(Code::InvalidIdentity, message)
}

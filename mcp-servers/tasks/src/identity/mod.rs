//! The user of a call. The user never comes from tool arguments.
//!
//! Over stdio, the process that started the server is trusted to name the user in `_meta`. Over HTTP any client can
//! send `_meta`, so the user comes only from a token signed with a shared secret.

use std::fmt;

use gavel_mcp_base::{Code, Meta, Secret, ToolError, UserId};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;

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
            Self::Stdio { user } => given.user_or(user.as_ref()),
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

const TOKEN_KEY: &str = "gavel/identity";
const ISSUER: &str = "gavel";
const LEEWAY_SECONDS: u64 = 5;
/// Callers sign for 60 seconds; a token that lives much longer is not a valid short-lived token.
const MAX_LIFE_SECONDS: u64 = 120;
const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// Checks identity tokens.
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

    fn user(&self, meta: &Meta) -> Result<UserId, ToolError> {
        let Some(token) = meta.get(TOKEN_KEY) else {
            return Err(ToolError::new(
                Code::UserRequired,
                format!(
                    "The call names no user. Over HTTP the client must send a signed \
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
                tracing::warn!(%error, "an identity token was rejected");
                match error.kind() {
                    ErrorKind::ExpiredSignature => invalid("The identity token has expired."),
                    _ => invalid("The identity token is not valid here."),
                }
            })?
            .claims;
        let now = jsonwebtoken::get_current_timestamp();
        if claims.iat > now + LEEWAY_SECONDS || claims.exp.saturating_sub(claims.iat) > MAX_LIFE_SECONDS {
            tracing::warn!("an identity token was rejected: its lifetime is too long, or it begins in the future");
            return Err(invalid("The identity token is not valid here."));
        }
        UserId::parse(&claims.sub).ok_or_else(|| invalid("The identity token names no user."))
    }
}

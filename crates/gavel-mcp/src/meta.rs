//! What every call contains in `_meta`.

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use super::attempt::Outgoing;
use crate::domain::time::rfc3339;

/// Lifetime of an identity token in seconds.
const TOKEN_SECONDS: u64 = 60;

/// Calls `put` with each key and value, in a fixed order.
pub(super) fn each(call: &Outgoing<'_>, mut put: impl FnMut(&'static str, &str)) {
    let request = call.request;
    put("gavel/user_id", request.user);
    put("gavel/origin", request.origin);
    put("gavel/run_id", request.run_id);
    put("gavel/action_id", &request.action_id.to_string());
    put("gavel/idempotency_key", request.idempotency_key);
    if let Some(at_us) = request.first_attempt_us {
        put("gavel/first_attempt_at", &rfc3339(at_us));
    }
    if let Some(account) = request.account {
        put("gavel/account", account);
    }
    if let Some(session) = request.session {
        put("gavel/session_id", &session.to_string());
    }
    if let Some(repository) = request.repository {
        put("gavel/repository", repository);
    }
    if let Some(repositories) = request.repositories {
        put("gavel/repositories", repositories);
    }
    if let Some(at_us) = request.deadline_us {
        put("gavel/deadline", &rfc3339(at_us));
    }
    if let Some(token) = call.identity {
        put("gavel/identity", token);
    }
    if let Some(traceparent) = request.traceparent {
        put("traceparent", traceparent);
    }
}

/// Signs the acting user's identity for one server, for a short time (HS256).
pub(super) struct IdentitySigner {
    key: EncodingKey,
    header: Header,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'static str,
    aud: &'a str,
    sub: &'a str,
    iat: u64,
    exp: u64,
}

impl IdentitySigner {
    pub(super) fn new(secret: &SecretString) -> Self {
        Self {
            key: EncodingKey::from_secret(secret.expose_secret().as_bytes()),
            header: Header::new(Algorithm::HS256),
        }
    }

    /// A token for `user` at the server `audience`.
    pub(super) fn sign(&self, audience: &str, user: &str) -> Result<String, String> {
        let iat = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_err(|_| "the system clock is before 1970".to_owned())?
            .as_secs();
        let claims = Claims {
            iss: "gavel",
            aud: audience,
            sub: user,
            iat,
            exp: iat + TOKEN_SECONDS,
        };
        jsonwebtoken::encode(&self.header, &claims, &self.key).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use jsonwebtoken::{DecodingKey, Validation};

    #[test]
    fn a_token_names_gavel_the_server_and_the_user_for_a_minute() {
        let secret = "0123456789abcdef0123456789abcdef";
        let token = IdentitySigner::new(&SecretString::from(secret))
            .sign("tasks", "u1")
            .unwrap();
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_audience(&["tasks"]);
        validation.set_issuer(&["gavel"]);
        let key = DecodingKey::from_secret(secret.as_bytes());
        let claims = jsonwebtoken::decode::<serde_json::Value>(&token, &key, &validation)
            .unwrap()
            .claims;
        assert_eq!(claims["sub"], "u1");
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 60);
        validation.set_audience(&["files"]);
        assert!(jsonwebtoken::decode::<serde_json::Value>(&token, &key, &validation).is_err());
    }
}

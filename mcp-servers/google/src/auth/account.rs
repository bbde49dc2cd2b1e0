//! A service account's claim to act for a user of its domain (RFC 7523).

use gavel_mcp_base::ToolError;
use jsonwebtoken::{Algorithm, Header};
use serde::Serialize;
use url::Url;
use url::form_urlencoded::Serializer;

use super::unsigned;
use crate::settings::ServiceAccount;

/// The longest lifetime that Google accepts, in seconds.
const SECONDS: u64 = 3600;

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: &'a str,
    scope: String,
    aud: &'a str,
    iat: u64,
    exp: u64,
}

pub(super) fn assertion(
    account: &ServiceAccount,
    mailbox: &str,
    scopes: &[String],
    url: &Url,
) -> Result<String, ToolError> {
    let header = Header {
        kid: account.key_id.clone(),
        ..Header::new(Algorithm::RS256)
    };
    let now = jsonwebtoken::get_current_timestamp();
    let claims = Claims {
        iss: &account.email,
        sub: mailbox,
        scope: scopes.join(" "),
        aud: url.as_str(),
        iat: now,
        exp: now + SECONDS,
    };
    let signed = jsonwebtoken::encode(&header, &claims, &account.key).map_err(|error| unsigned(&error))?;
    Ok(Serializer::new(String::new())
        .append_pair("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer")
        .append_pair("assertion", &signed)
        .finish())
}

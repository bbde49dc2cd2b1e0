//! How callers authenticate.

use std::net::SocketAddr;

use secrecy::SecretString;
use url::Url;

use super::read::Read;
use super::settings::{AuthMode, AuthSettings, JwtSettings};
use super::values;
use super::values::ApiKey;

/// Roles that gavel knows. A key may carry other roles; each one causes a warning, because it may be a typing error.
pub const KNOWN_ROLES: &[&str] = &["analyst", "approver", "operator"];

/// How callers authenticate.
#[derive(Clone, Debug)]
pub enum Auth {
    /// Not at all; allowed only on a loopback address.
    None,
    /// Services authenticate with API keys.
    ApiKeys(Vec<ApiKey>),
    /// Users authenticate with a token from an external issuer.
    Jwt(Jwt),
}

impl Auth {
    /// Whether users of more than one tenant can exist.
    pub fn has_several_tenants(&self) -> bool {
        match self {
            Self::None => false,
            Self::ApiKeys(keys) => keys.windows(2).any(|pair| pair[0].tenant != pair[1].tenant),
            Self::Jwt(jwt) => jwt.tenant_claim.is_some(),
        }
    }
}

/// Which tokens are accepted.
#[derive(Clone, Debug)]
pub struct Jwt {
    /// Required `iss` claim.
    pub issuer: String,
    /// Required `aud` claim.
    pub audience: String,
    /// Keys that verify token signatures.
    pub keys: JwtKeys,
    /// The claim that names the tenant, which every token must then carry; absent: every user is in `default`.
    pub tenant_claim: Option<String>,
    /// The claim with the roles: a list, or a text with roles separated by blanks.
    pub roles_claim: String,
}

/// Keys that verify token signatures.
#[derive(Clone, Debug)]
pub enum JwtKeys {
    /// The issuer's public keys.
    Jwks(Url),
    /// A shared secret of at least 32 bytes (HS256).
    Secret(SecretString),
}

/// Every section is read, even if the mode does not use it: an error in it shows now, not when the mode changes.
pub(super) fn read(values: &Read<'_>, listen: Option<SocketAddr>) -> Option<Auth> {
    let (settings, jwt) = (AuthSettings::read(values), JwtSettings::read(values));
    let AuthSettings { mode, keys } = settings?;
    let keys = keys.filter(|keys| !keys.is_empty());
    for key in keys.iter().flatten() {
        let unknown = key.roles.iter().filter(|role| !KNOWN_ROLES.contains(&role.as_str()));
        for role in unknown {
            let (origin, name, known) = (values.origin("auth.keys"), &key.name, KNOWN_ROLES.join(", "));
            values.warn(&format!(
                "{origin}: the key of {name} has the role {role:?}, which gavel does not know; known roles are {known}"
            ));
        }
    }
    if mode != AuthMode::ApiKey && keys.is_some() {
        values.warn("auth.keys is given, but API keys are used only with auth.mode = api_key");
    }
    if mode != AuthMode::Jwt && JwtSettings::rows().iter().any(|setting| values.is_given(setting.key)) {
        values.warn("auth.jwt is given, but tokens are used only with auth.mode = jwt");
    }
    match mode {
        AuthMode::None => open(values, listen),
        AuthMode::ApiKey => values
            .needed("auth.keys", keys, "auth.mode = api_key")
            .map(Auth::ApiKeys),
        AuthMode::Jwt => tokens(values, jwt?).map(Auth::Jwt),
    }
}

fn open(values: &Read<'_>, listen: Option<SocketAddr>) -> Option<Auth> {
    let Some(address) = listen.filter(|address| !values::is_loopback(*address)) else {
        return Some(Auth::None);
    };
    let found = format!("none, with listen = {address} ({})", values.origin("listen"));
    let allowed = "none on a loopback address; else api_key or jwt (environment GAVEL_AUTH_MODE)";
    values.error("auth.mode", &found, allowed);
    None
}

fn tokens(values: &Read<'_>, jwt: JwtSettings) -> Option<Jwt> {
    const WHY: &str = "auth.mode = jwt";
    let issuer = values.needed("auth.jwt.issuer", jwt.issuer, WHY);
    let audience = values.needed("auth.jwt.audience", jwt.audience, WHY);
    let both = values.is_given("auth.jwt.jwks_url") && values.is_given("auth.jwt.secret");
    let keys = match (jwt.jwks_url, jwt.secret) {
        _ if both => {
            values.error("auth.jwt.secret", "auth.jwt.jwks_url too", "one of the two");
            None
        }
        (_, Some(secret)) => Some(JwtKeys::Secret(secret)),
        (Some(url), None) => Some(JwtKeys::Jwks(url)),
        (None, None) if values.is_given("auth.jwt.secret") => None,
        (None, None) => values.needed(
            "auth.jwt.jwks_url",
            None,
            "auth.mode = jwt and there is no auth.jwt.secret",
        ),
    };
    Some(Jwt {
        issuer: issuer?,
        audience: audience?,
        keys: keys?,
        tenant_claim: jwt.tenant_claim,
        roles_claim: jwt.roles_claim,
    })
}

//! How callers authenticate.

mod keys;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use secrecy::SecretString;
use url::Url;

use self::keys::keys;
use super::read::Read;
use super::values;
use crate::domain::ids::{TenantId, UserId};

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
    #[must_use]
    pub fn has_several_tenants(&self) -> bool {
        match self {
            Self::None => false,
            Self::ApiKeys(keys) => keys.windows(2).any(|pair| pair[0].tenant != pair[1].tenant),
            Self::Jwt(jwt) => jwt.tenant_claim.is_some(),
        }
    }
}

/// The API key of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// The name of the service in logs and records.
    pub name: String,
    /// SHA-256 of the key's text.
    pub sha256: [u8; 32],
    /// The tenant whose records the service reads and writes.
    pub tenant: TenantId,
    /// What the service may do besides sending requests.
    pub roles: BTreeSet<String>,
    /// The one user this key belongs to, who acts only for themselves; absent: a service, which may act for any user.
    pub user: Option<UserId>,
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

pub(super) fn read(read: &mut Read<'_>, listen: Option<SocketAddr>) -> Option<Auth> {
    // Every section is read, even if the mode does not use it: an error in it shows now, not when the mode changes.
    let keys = keys(read);
    let mode = read.parse("auth.mode", mode)?;
    if !matches!(mode, Mode::ApiKey) && keys.as_ref().is_some_and(|keys| !keys.is_empty()) {
        read.warn("auth.keys is given, but API keys are used only with auth.mode = api_key".to_owned());
    }
    if !matches!(mode, Mode::Jwt) && JWT.iter().any(|key| read.is_given(key)) {
        read.parse("auth.jwt.jwks_url", values::https_url);
        read.parse("auth.jwt.secret", values::signing_secret);
        read.warn("auth.jwt is given, but tokens are used only with auth.mode = jwt".to_owned());
    }
    match mode {
        Mode::None => open(read, listen),
        Mode::ApiKey => {
            if !read.is_given("auth.keys") || keys.as_ref().is_some_and(Vec::is_empty) {
                read.missing("auth.keys", "is needed, because auth.mode = api_key");
                return None;
            }
            keys.map(Auth::ApiKeys)
        }
        Mode::Jwt => jwt(read).map(Auth::Jwt),
    }
}

/// The settings of the mode `jwt`.
const JWT: [&str; 6] = [
    "auth.jwt.issuer",
    "auth.jwt.audience",
    "auth.jwt.jwks_url",
    "auth.jwt.secret",
    "auth.jwt.tenant_claim",
    "auth.jwt.roles_claim",
];

enum Mode {
    None,
    ApiKey,
    Jwt,
}

fn mode(text: &str) -> Option<Mode> {
    match text {
        "none" => Some(Mode::None),
        "api_key" => Some(Mode::ApiKey),
        "jwt" => Some(Mode::Jwt),
        _ => None,
    }
}

fn open(read: &mut Read<'_>, listen: Option<SocketAddr>) -> Option<Auth> {
    let Some(address) = listen.filter(|address| !values::is_loopback(*address)) else {
        return Some(Auth::None);
    };
    let (here, there) = (read.origin("auth.mode"), read.origin("listen"));
    let problem = format!(
        "is allowed only on loopback addresses, and listen = {address} ({there}) is not one; give api_key or jwt \
         (environment GAVEL_AUTH_MODE)"
    );
    read.error("auth.mode", Some("none".to_owned()), &here, problem);
    None
}

fn jwt(read: &mut Read<'_>) -> Option<Jwt> {
    const WHY: &str = "is needed, because auth.mode = jwt";
    let issuer = read.needed("auth.jwt.issuer", WHY, values::word);
    let audience = read.needed("auth.jwt.audience", WHY, values::word);
    let tenant_claim = read.word("auth.jwt.tenant_claim");
    let roles_claim = read.word("auth.jwt.roles_claim");
    let (jwks, secret) = (read.is_given("auth.jwt.jwks_url"), read.is_given("auth.jwt.secret"));
    let keys = match (jwks, secret) {
        (true, true) => {
            let origin = read.origin("auth.jwt.secret");
            read.error(
                "auth.jwt.secret",
                None,
                &origin,
                "auth.jwt.jwks_url is also given; keep one of the two".to_owned(),
            );
            None
        }
        (false, true) => read
            .parse("auth.jwt.secret", values::signing_secret)
            .map(JwtKeys::Secret),
        (true, false) | (false, false) => {
            let why = "or auth.jwt.secret is needed, because auth.mode = jwt";
            read.needed("auth.jwt.jwks_url", why, values::https_url)
                .map(JwtKeys::Jwks)
        }
    };
    Some(Jwt {
        issuer: issuer?,
        audience: audience?,
        keys: keys?,
        tenant_claim,
        roles_claim: roles_claim?,
    })
}

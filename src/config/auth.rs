//! How callers authenticate.

use std::net::SocketAddr;

use gavel_reading::{At, Content, List, Parser, Record, Scalar, json, record};
use secrecy::SecretString;
use url::Url;

use super::read::Read;
use super::secret::hidden;
use super::settings::{AuthMode, JwtSettings};
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

record! {
    /// The API key of one service.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ApiKey {
        /// The name of the service in logs and records.
        name: String = "name": NAME, required;
        /// SHA-256 of the key's text.
        sha256: [u8; 32] = "sha256": Digest, required;
        /// The tenant whose records the service reads and writes.
        tenant: TenantId = "tenant": TENANT, or TenantId::default();
        /// What the service may do besides sending requests.
        roles: Vec<String> = "roles": List(ROLE);
        /// The one user this key belongs to, who acts only for themselves; absent: a service, which may act for any user.
        user: Option<UserId> = "user": USER;
    }
}

const NAME: Scalar<String> = Scalar {
    allowed: "1 to 128 characters",
    read: |node| values::word(text(&node.content)?).filter(|name| name.len() <= 128),
};
const ROLE: Scalar<String> = Scalar {
    allowed: "a role; gavel knows analyst, approver, operator",
    read: |node| values::word(text(&node.content)?),
};
const ID: &str = "1 to 256 bytes without invisible characters, and not blank";
const TENANT: Scalar<TenantId> = Scalar {
    allowed: ID,
    read: |node| TenantId::parse(text(&node.content)?).ok(),
};
const USER: Scalar<UserId> = Scalar {
    allowed: ID,
    read: |node| UserId::parse(text(&node.content)?).ok(),
};

fn text(content: &Content) -> Option<&str> {
    match content {
        Content::Text(text) => Some(text.trim()),
        _ => None,
    }
}

/// A hash. A key pasted in its place must not be printed.
struct Digest;

impl Parser for Digest {
    type Value = [u8; 32];

    fn allowed(&self) -> String {
        "the 64 hex digits of the key's SHA-256".to_owned()
    }

    fn parse(&self, at: &At<'_>) -> Option<[u8; 32]> {
        let mut bytes = [0; 32];
        let decoded = text(&at.node.content).and_then(|text| hex::decode_to_slice(text, &mut bytes).ok());
        if decoded.is_none() {
            at.clone().shown_by(hidden).invalid(self.allowed());
        }
        decoded.map(|()| bytes)
    }
}

/// `auth.keys`: a list, in the environment as JSON.
pub(super) struct ApiKeys;

impl Parser for ApiKeys {
    type Value = Vec<ApiKey>;

    fn allowed(&self) -> String {
        "a list of {name, sha256, tenant, roles, user} (in the environment as JSON); `gavel config new-key` prints one"
            .to_owned()
    }

    fn parse(&self, at: &At<'_>) -> Option<Vec<ApiKey>> {
        let from_json = match &at.node.content {
            Content::Text(text) => json::parse(text).ok().map(|(node, _)| node.on_line(at.node.line)),
            _ => None,
        };
        let at = &at.holding(from_json.as_ref().unwrap_or(at.node));
        if !matches!(at.node.content, Content::List(_)) {
            // Whatever it is, it may be a key.
            at.clone().shown_by(hidden).invalid(self.allowed());
            return None;
        }
        let mut keys: Vec<ApiKey> = Vec::new();
        for item in at.items(1000)? {
            let Some(key) = Record("a table of name, sha256, tenant, roles and user", ApiKey::read).parse(&item) else {
                continue;
            };
            // Logs tell services apart by their names.
            let same = [
                ("name", keys.iter().position(|other| other.name == key.name)),
                ("sha256", keys.iter().position(|other| other.sha256 == key.sha256)),
            ];
            for (field, same) in same {
                if let Some(first) = same {
                    item.error(
                        format!("the {field} of auth.keys[{first}]"),
                        format!("a {field} of its own for every key"),
                    );
                }
            }
            keys.push(key);
        }
        Some(keys)
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

/// `auth.mode`.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Mode {
    None,
    ApiKey,
    Jwt,
}

impl Mode {
    pub(super) const NAMES: [(&'static str, Self); 3] =
        [("none", Self::None), ("api_key", Self::ApiKey), ("jwt", Self::Jwt)];
}

/// Every section is read, even if the mode does not use it: an error in it shows now, not when the mode changes.
pub(super) fn read(values: &Read<'_>, listen: Option<SocketAddr>) -> Option<Auth> {
    let (settings, jwt) = (AuthMode::read(values), JwtSettings::read(values));
    let AuthMode { mode, keys } = settings?;
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
    if mode != Mode::ApiKey && keys.is_some() {
        values.warn("auth.keys is given, but API keys are used only with auth.mode = api_key");
    }
    if mode != Mode::Jwt && JwtSettings::rows().iter().any(|setting| values.is_given(setting.key)) {
        values.warn("auth.jwt is given, but tokens are used only with auth.mode = jwt");
    }
    match mode {
        Mode::None => open(values, listen),
        Mode::ApiKey => values
            .needed("auth.keys", keys, "auth.mode = api_key")
            .map(Auth::ApiKeys),
        Mode::Jwt => tokens(values, jwt?).map(Auth::Jwt),
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

//! How callers authenticate (DESIGN.md section 9, Callers).

use std::collections::BTreeSet;
use std::net::SocketAddr;

use figment::value::{Dict, Value};
use secrecy::SecretString;
use url::Url;

use super::error::ConfigError;
use super::origin::Origin;
use super::read::Read;
use super::values;
use crate::domain::definition::nearest::nearest;
use crate::domain::ids::{DEFAULT_TENANT, TenantId, UserId};

/// Roles that gavel knows. A key may carry other roles; each one causes a warning, because it may be a typing error.
pub const KNOWN_ROLES: &[&str] = &["analyst", "approver", "operator"];
const KEY_FIELDS: &[&str] = &["name", "sha256", "tenant", "roles", "user"];

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

/// The keys; `None` when one of them is invalid.
fn keys(read: &mut Read<'_>) -> Option<Vec<ApiKey>> {
    let Some((value, origin)) = read.value("auth.keys") else {
        return Some(Vec::new());
    };
    let list = match &value {
        Value::String(_, text) => serde_json::from_str::<Vec<serde_json::Value>>(text)
            .ok()
            .and_then(|list| {
                let list = Value::serialize(list).ok()?;
                list.into_array()
            }),
        other => other.as_array().map(<[Value]>::to_vec),
    };
    let Some(list) = list else {
        let allowed = "give a list of {name, sha256, tenant, roles, user}; in the environment as JSON".to_owned();
        read.error("auth.keys", None, &origin, allowed);
        return None;
    };
    let parsed: Vec<Option<ApiKey>> = list
        .iter()
        .enumerate()
        .map(|(n, entry)| {
            Entry {
                read: &mut *read,
                origin: &origin,
                n,
            }
            .key(entry)
        })
        .collect();
    let keys: Vec<ApiKey> = parsed.into_iter().collect::<Option<_>>()?;
    distinct(read, &origin, &keys).then_some(keys)
}

/// Rejects duplicate names, which logs use to distinguish services, and keys that two services share.
fn distinct(read: &mut Read<'_>, origin: &Origin, keys: &[ApiKey]) -> bool {
    let mut fine = true;
    for (n, key) in keys.iter().enumerate() {
        let same_name = keys.iter().take(n).position(|other| other.name == key.name);
        let same_key = keys.iter().take(n).position(|other| other.sha256 == key.sha256);
        for (field, same) in [("name", same_name), ("sha256", same_key)] {
            if let Some(first) = same {
                fine = false;
                let problem = format!("is the same as that of auth.keys.{first}; give every key its own");
                Entry {
                    read: &mut *read,
                    origin,
                    n,
                }
                .error(field, None, problem);
            }
        }
    }
    fine
}

/// One entry of `auth.keys`.
struct Entry<'e, 'r> {
    read: &'e mut Read<'r>,
    origin: &'e Origin,
    n: usize,
}

impl Entry<'_, '_> {
    fn key(mut self, entry: &Value) -> Option<ApiKey> {
        let Some(fields) = entry.as_dict() else {
            self.error(
                "",
                None,
                "give a table of name, sha256, tenant, roles and user".to_owned(),
            );
            return None;
        };
        let mut fine = self.only_known_fields(fields);
        let name = self.text(
            fields,
            "name",
            |name| values::word(name).filter(|name| name.len() <= 128),
            "1 to 128 characters",
        );
        let sha256 = self.text(fields, "sha256", digest, "the 64 hex digits of the key's SHA-256");
        let tenant = if fields.contains_key("tenant") {
            self.text(
                fields,
                "tenant",
                |tenant| TenantId::parse(tenant).ok(),
                "1 to 256 bytes without invisible characters, and not blank",
            )
        } else {
            TenantId::parse(DEFAULT_TENANT).ok()
        };
        let user = fields.contains_key("user").then(|| {
            let allowed = "1 to 256 bytes without invisible characters, and not blank";
            self.text(fields, "user", |user| UserId::parse(user).ok(), allowed)
        });
        let roles = self.roles(fields);
        fine &= roles.is_some() && user != Some(None);
        let key = ApiKey {
            name: name?,
            sha256: sha256?,
            tenant: tenant?,
            roles: roles?,
            user: user.flatten(),
        };
        fine.then_some(key)
    }

    fn only_known_fields(&mut self, fields: &Dict) -> bool {
        let mut fine = true;
        for field in fields.keys().filter(|field| !KEY_FIELDS.contains(&field.as_str())) {
            fine = false;
            let meant = nearest(field, KEY_FIELDS.iter().copied());
            let meant = meant.map_or_else(
                || format!("known are {}", KEY_FIELDS.join(", ")),
                |meant| format!("did you mean {meant}?"),
            );
            self.error(field, None, format!("there is no such field; {meant}"));
        }
        fine
    }

    fn text<T>(&mut self, fields: &Dict, field: &str, parse: impl Fn(&str) -> Option<T>, allowed: &str) -> Option<T> {
        let Some(value) = fields.get(field) else {
            self.error(field, None, format!("is needed; give {allowed}"));
            return None;
        };
        let parsed = value.as_str().and_then(|text| parse(text.trim()));
        if parsed.is_none() {
            // A key pasted in place of its hash must not be printed.
            let value = value
                .as_str()
                .filter(|_| field != "sha256")
                .map(|text| format!("{text:?}"));
            self.error(field, value, format!("give {allowed}"));
        }
        parsed
    }

    fn roles(&mut self, fields: &Dict) -> Option<BTreeSet<String>> {
        let Some(value) = fields.get("roles") else {
            return Some(BTreeSet::new());
        };
        let roles: Option<BTreeSet<String>> = value
            .as_array()
            .and_then(|list| list.iter().map(|role| role.as_str().and_then(values::word)).collect());
        match &roles {
            None => self.error(
                "roles",
                None,
                format!("give a list of roles, of which gavel knows {}", KNOWN_ROLES.join(", ")),
            ),
            Some(roles) => {
                for role in roles.iter().filter(|role| !KNOWN_ROLES.contains(&role.as_str())) {
                    let place = self.place("roles");
                    let known = KNOWN_ROLES.join(", ");
                    self.read.warn(format!(
                        "{place}: gavel does not know the role {role:?}; known roles are {known}"
                    ));
                }
            }
        }
        roles
    }

    fn path(&self, field: &str) -> String {
        let n = self.n;
        if field.is_empty() {
            format!("auth.keys.{n}")
        } else {
            format!("auth.keys.{n}.{field}")
        }
    }

    fn place(&self, field: &str) -> String {
        let (path, entry) = (self.path(field), self.path(""));
        let inside = self.read.place_inside(&path, self.origin);
        if inside == self.origin.to_string() {
            self.read.place_inside(&entry, self.origin)
        } else {
            inside
        }
    }

    fn error(&mut self, field: &str, value: Option<String>, problem: String) {
        let error = ConfigError {
            key: self.path(field),
            value,
            place: Some(self.place(field)),
            problem,
        };
        self.read.push(error);
    }
}

fn digest(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

//! Reads the API keys of the configuration.

use std::collections::BTreeSet;

use figment::value::{Dict, Value};

use super::super::error::ConfigError;
use super::super::origin::Origin;
use super::super::read::Read;
use super::super::values;
use super::{ApiKey, KNOWN_ROLES};
use crate::domain::definition::nearest::nearest;
use crate::domain::ids::{DEFAULT_TENANT, TenantId, UserId};

const KEY_FIELDS: &[&str] = &["name", "sha256", "tenant", "roles", "user"];

/// The keys; `None` when one of them is invalid.
pub(super) fn keys(read: &mut Read<'_>) -> Option<Vec<ApiKey>> {
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

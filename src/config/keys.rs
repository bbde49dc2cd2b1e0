//! The API keys of services.

use gavel_reading::{At, Content, List, Parser, Record, Scalar, json, record};

use super::secret::hidden;
use super::values;
use crate::domain::ids::{TenantId, UserId};

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

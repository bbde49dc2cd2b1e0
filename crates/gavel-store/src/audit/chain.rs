//! How a row is hashed, and with which key.

use std::fmt;
use std::str::FromStr;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::domain::names::record;

/// The version of what is hashed. A new form gets a new number; old rows are verified with theirs.
pub(super) const FORMAT: i64 = 1;
/// The previous hash of the first row.
pub(super) const BEGINNING: &str = "0000000000000000000000000000000000000000000000000000000000000000";

record! {
    /// One row of the audit log, as in the database and in exports.
    #[serde(deny_unknown_fields)]
    #[derive(Default, PartialEq, Eq)]
    AuditRow as "AuditRow" {
        /// 1, 2, 3 …
        number: i64,
        /// The version of its encoding.
        format: i64,
        /// When it was written, by the clock of the database. Exports have it in microseconds since 1970.
        at: i64,
        /// What happened.
        kind: String,
        /// The id of the affected object: an action, a grant, a run, or a version of a definition.
        subject: String,
        /// The tenant that it belongs to.
        tenant: String,
        /// The actor: the user on whose behalf gavel acted, or the person who resolved or settled something.
        actor: String,
        /// The decision, which is also the run's id.
        decision_id: Option<String>,
        /// The tool call.
        action_id: Option<String>,
        /// Its tool.
        tool: Option<String>,
        /// Further details as JSON.
        detail: String,
        /// Texts of users and arguments of tools as JSON, with a salt. They can be erased: the hash covers them by their SHA-256
        /// in the details.
        texts: Option<String>,
        /// The id of the key that made the hash.
        key_id: String,
        /// The hash of the previous row.
        previous_hash: String,
        /// Hex HMAC-SHA-256 of the row as JSON with an empty hash and without texts.
        hash: String,
    }
}

/// A key, with the id that rows refer to.
#[derive(Clone)]
pub(crate) struct Signer {
    id: String,
    mac: Hmac<Sha256>,
}

impl Signer {
    pub(crate) fn new(secret: &str) -> Self {
        let mac = Hmac::<Sha256>::new_from_slice(secret.trim().as_bytes())
            .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        let mut id = mac.clone();
        id.update(b"the name of a key of gavel's audit");
        let mut id = hex::encode(id.finalize().into_bytes());
        id.truncate(16);
        Self { id, mac }
    }

    /// Distinguishes keys and reveals nothing about them.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The hash of a row that has none yet. Two different rows never have the same JSON.
    pub(super) fn sign(&self, row: &AuditRow) -> String {
        let json = serde_json::to_vec(row).unwrap_or_else(|error| unreachable!("a row prints as JSON: {error}"));
        let mut mac = self.mac.clone();
        mac.update(&json);
        hex::encode(mac.finalize().into_bytes())
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signer").field(&self.id).finish()
    }
}

// The last row of the chain.

/// The last row of the chain, to be kept elsewhere. Its text form is `NUMBER:HASH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The number of rows.
    pub number: i64,
    /// The hash of the last row.
    pub hash: String,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.number, self.hash)
    }
}

impl FromStr for Head {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || "expected NUMBER:HASH, as printed by `gavel audit head`".to_owned();
        let (number, hash) = text.trim().split_once(':').ok_or_else(invalid)?;
        let number = number.parse().ok().filter(|number| *number >= 0).ok_or_else(invalid)?;
        let is_hash = hash.len() == BEGINNING.len() && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let hash = is_hash.then(|| hash.to_ascii_lowercase()).ok_or_else(invalid)?;
        Ok(Self { number, hash })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_key_gives_another_name_and_another_hash() {
        let row = AuditRow::default();
        let (one, other) = (Signer::new("one"), Signer::new("other"));
        assert_ne!((one.id(), one.sign(&row)), (other.id(), other.sign(&row)));
        assert_eq!(one.sign(&row), Signer::new("one\n").sign(&row));
        assert_eq!(format!("{one:?}"), format!("Signer({:?})", one.id()));
    }
}

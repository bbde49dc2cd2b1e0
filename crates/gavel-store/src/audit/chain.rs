//! How a row is hashed, and with which key.

use std::fmt;
use std::str::FromStr;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// The version of the column encoding for the hash. A new encoding gets a new number; old rows are verified with
/// theirs.
pub(super) const FORMAT: i64 = 1;
/// The previous hash of the first row.
pub(super) const BEGINNING: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// One row of the audit log, as in the database and in exports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditRow {
    /// 1, 2, 3 …
    pub number: i64,
    /// The version of its encoding.
    pub format: i64,
    /// When it was written, in microseconds since the epoch, by the database's clock.
    pub at: i64,
    /// What happened; see [`AuditKind`](super::AuditKind).
    pub kind: String,
    /// The id of the affected object: an action, a grant, a run, or a version of a definition.
    pub subject: String,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The actor: the user on whose behalf gavel acted, or the person who resolved or settled something.
    pub actor: String,
    /// The decision, which is also the run's id.
    pub decision_id: Option<String>,
    /// The tool call.
    pub action_id: Option<String>,
    /// Its tool.
    pub tool: Option<String>,
    /// Further details as JSON.
    pub detail: String,
    /// The id of the key that made the hash.
    pub key_id: String,
    /// The hash of the previous row.
    pub previous_hash: String,
    /// Hex HMAC-SHA-256 of all of the above.
    pub hash: String,
}

impl AuditRow {
    /// All columns except the hash, as bytes. Two different rows never have the same bytes, since each column begins
    /// with its type and length.
    fn encoded(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256 + self.detail.len());
        number(&mut bytes, self.format);
        number(&mut bytes, self.number);
        number(&mut bytes, self.at);
        text(&mut bytes, Some(&self.kind));
        text(&mut bytes, Some(&self.subject));
        text(&mut bytes, Some(&self.tenant));
        text(&mut bytes, Some(&self.actor));
        text(&mut bytes, self.decision_id.as_deref());
        text(&mut bytes, self.action_id.as_deref());
        text(&mut bytes, self.tool.as_deref());
        text(&mut bytes, Some(&self.detail));
        text(&mut bytes, Some(&self.key_id));
        text(&mut bytes, Some(&self.previous_hash));
        bytes
    }
}

const NUMBER: u8 = 1;
const TEXT: u8 = 2;
const NOTHING: u8 = 0;

fn number(into: &mut Vec<u8>, number: i64) {
    into.push(NUMBER);
    into.extend(number.to_be_bytes());
}

fn text(into: &mut Vec<u8>, text: Option<&str>) {
    let Some(text) = text else { return into.push(NOTHING) };
    into.push(TEXT);
    into.extend((text.len() as u64).to_be_bytes());
    into.extend(text.as_bytes());
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

    pub(super) fn sign(&self, row: &AuditRow) -> String {
        let mut mac = self.mac.clone();
        mac.update(&row.encoded());
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
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads what [`AuditRow::encoded`] wrote.
    struct Reader<'a>(&'a [u8]);

    impl Reader<'_> {
        fn bytes<const N: usize>(&mut self) -> [u8; N] {
            let (bytes, rest) = self.0.split_first_chunk().unwrap();
            self.0 = rest;
            *bytes
        }

        fn number(&mut self) -> i64 {
            assert_eq!(self.bytes(), [NUMBER]);
            i64::from_be_bytes(self.bytes())
        }

        fn text(&mut self) -> Option<String> {
            match self.bytes() {
                [NOTHING] => return None,
                kind => assert_eq!(kind, [TEXT]),
            }
            let length = usize::try_from(u64::from_be_bytes(self.bytes())).unwrap();
            let (text, rest) = self.0.split_at(length);
            self.0 = rest;
            Some(String::from_utf8(text.to_vec()).unwrap())
        }
    }

    fn decoded(bytes: &[u8]) -> AuditRow {
        let mut reader = Reader(bytes);
        let row = AuditRow {
            format: reader.number(),
            number: reader.number(),
            at: reader.number(),
            kind: reader.text().unwrap(),
            subject: reader.text().unwrap(),
            tenant: reader.text().unwrap(),
            actor: reader.text().unwrap(),
            decision_id: reader.text(),
            action_id: reader.text(),
            tool: reader.text(),
            detail: reader.text().unwrap(),
            key_id: reader.text().unwrap(),
            previous_hash: reader.text().unwrap(),
            hash: String::new(),
        };
        assert_eq!(reader.0, b"");
        row
    }

    prop_compose! {
        // Few and short texts, some of them equal to the separator bytes, so that columns could run into each other.
        fn row()(
            numbers in any::<[i64; 3]>(),
            texts in prop::array::uniform7("[ab\u{0}\u{1}\u{2}ä\"]{0,9}"),
            ids in prop::array::uniform3(prop::option::of("[ab\u{0}\u{1}\u{2}]{0,3}")),
        ) -> AuditRow {
            let [format, number, at] = numbers;
            let [kind, subject, tenant, actor, detail, key_id, previous_hash] = texts;
            let [decision_id, action_id, tool] = ids;
            AuditRow {
                number, format, at, kind, subject, tenant, actor, decision_id, action_id, tool, detail, key_id, previous_hash,
                hash: String::new(),
            }
        }
    }

    proptest! {
        /// two different rows never have the same bytes, since every row can be decoded from its bytes.
        #[test]
        fn a_row_can_be_read_back_from_what_is_hashed(row in row()) {
            prop_assert_eq!(decoded(&row.encoded()), row);
        }

        /// Moving text from one column to the next changes the bytes.
        #[test]
        fn no_text_can_wander_between_columns(row in row(), cut in 0_usize..9) {
            let mut other = row.clone();
            let moved = other.kind.split_off(other.kind.floor_char_boundary(cut));
            other.subject.insert_str(0, &moved);
            prop_assert_eq!(row.encoded() == other.encoded(), moved.is_empty());
        }
    }

    #[test]
    fn another_key_gives_another_name_and_another_hash() {
        let row = decoded(
            &[
                &[NUMBER; 27][..],
                &[TEXT, 0, 0, 0, 0, 0, 0, 0, 0].repeat(4),
                &[0; 3],
                &[TEXT, 0, 0, 0, 0, 0, 0, 0, 0].repeat(3),
            ]
            .concat(),
        );
        let (one, other) = (Signer::new("one"), Signer::new("other"));
        assert_ne!((one.id(), one.sign(&row)), (other.id(), other.sign(&row)));
        assert_eq!(one.sign(&row), Signer::new("one\n").sign(&row));
        assert_eq!(format!("{one:?}"), format!("Signer({:?})", one.id()));
    }
}

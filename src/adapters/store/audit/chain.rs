//! What is hashed, and with which key.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// How the columns are put together for the hash. A new way gets a new number, and old rows are verified in theirs.
pub(super) const FORMAT: i64 = 1;
/// What the first row follows.
pub(super) const BEGINNING: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// One row of the audit, as the database and an export have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditRow {
    /// 1, 2, 3 …
    pub number: i64,
    /// How it is hashed.
    pub format: i64,
    /// When it was entered, microseconds since the epoch, by the database's clock.
    pub at: i64,
    /// What happened; see [`AuditKind`](super::AuditKind).
    pub kind: String,
    /// To what: the id of an action, a grant, a run, or of a version of a definition.
    pub subject: String,
    /// Whose.
    pub tenant: String,
    /// Who did it: the user that was acted for, or the person who answered.
    pub actor: String,
    /// The decision, and so the run.
    pub decision_id: Option<String>,
    /// The tool call.
    pub action_id: Option<String>,
    /// Its tool.
    pub tool: Option<String>,
    /// What else is known, JSON.
    pub detail: String,
    /// Which key the hash was made with.
    pub key_id: String,
    /// The hash of the row before.
    pub previous_hash: String,
    /// Hex HMAC-SHA-256 over all of the above.
    pub hash: String,
}

impl AuditRow {
    /// The columns as bytes, but for the hash: no two different rows give the same, since each column begins with what it is and
    /// how long.
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

/// A key, with the name that rows know it by.
#[derive(Clone)]
pub(in super::super) struct Signer {
    id: String,
    mac: Hmac<Sha256>,
}

impl Signer {
    pub(in super::super) fn new(secret: &str) -> Self {
        let mac = Hmac::<Sha256>::new_from_slice(secret.trim().as_bytes())
            .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        let mut id = mac.clone();
        id.update(b"the name of a key of gavel's audit");
        let mut id = hex::encode(id.finalize().into_bytes());
        id.truncate(16);
        Self { id, mac }
    }

    /// Tells keys apart, and nothing about them.
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
        // Few and short texts, some of them like the bytes that part them, so that columns could run into each other.
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
        /// two different rows are never the same bytes, since every row can be read back from its own.
        #[test]
        fn a_row_can_be_read_back_from_what_is_hashed(row in row()) {
            prop_assert_eq!(decoded(&row.encoded()), row);
        }

        /// A text that moves from one column into the next is another row.
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

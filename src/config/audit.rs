//! The keys of the audit (DESIGN.md section 7).

use secrecy::SecretString;

use super::read::Read;
use super::values;

/// What the audit's chain is made with, and was made with before. Each key has at least 32 bytes.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// For new rows; `None`: gavel makes one.
    pub key: Option<SecretString>,
    /// For older ones.
    pub old_keys: Vec<SecretString>,
}

pub(super) fn read(read: &mut Read<'_>) -> Audit {
    let key = read.parse("audit.key", values::signing_secret);
    let old_keys = read.parse("audit.old_keys", |text| {
        text.split_whitespace().map(values::signing_secret).collect()
    });
    Audit {
        key,
        old_keys: old_keys.unwrap_or_default(),
    }
}

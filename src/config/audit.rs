//! The keys of the audit.

use secrecy::SecretString;

use super::read::Read;
use super::values;

/// Keys of the audit chain, the current one and former ones. Each key has at least 32 bytes.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Key for new rows; `None`: gavel generates one.
    pub key: Option<SecretString>,
    /// Former keys, to verify older rows.
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

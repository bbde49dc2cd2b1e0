//! API keys of services, known by their SHA-256 alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::domain::ids::TenantId;
use crate::surfaces::caller::{Caller, Identity};

/// One service's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// The service, in logs and records.
    pub name: String,
    /// SHA-256 of the key's text.
    pub sha256: [u8; 32],
    /// Whose records it sees and writes.
    pub tenant: TenantId,
    /// What it may do beside asking.
    pub roles: BTreeSet<String>,
}

/// All keys that count.
pub struct ApiKeys(Vec<([u8; 32], Caller)>);

impl ApiKeys {
    /// Makes the list.
    #[must_use]
    pub fn new(keys: impl IntoIterator<Item = ApiKey>) -> Self {
        let caller = |key: ApiKey| Caller {
            tenant: key.tenant,
            identity: Identity::Service(Arc::from(key.name)),
            roles: Arc::new(key.roles),
        };
        Self(keys.into_iter().map(|key| (key.sha256, caller(key))).collect())
    }

    /// The service whose key this is. Hashes are compared, every one of them and in constant time, so
    /// the time taken tells neither how much of a key was right nor which it was.
    pub(super) fn find(&self, presented: &[u8]) -> Option<Caller> {
        let presented: [u8; 32] = Sha256::digest(presented).into();
        let mut found = None;
        for (known, caller) in &self.0 {
            let same: Choice = known.ct_eq(&presented);
            if bool::from(same) {
                found = Some(caller);
            }
        }
        found.cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, text: &str) -> ApiKey {
        ApiKey {
            name: name.to_owned(),
            sha256: Sha256::digest(text).into(),
            tenant: TenantId::parse(format!("tenant-of-{name}")).unwrap(),
            roles: BTreeSet::from(["analyst".to_owned()]),
        }
    }

    #[test]
    fn a_key_finds_its_own_service_and_nothing_else_does() {
        let keys = ApiKeys::new([key("one", "first"), key("two", "second")]);
        let two = keys.find(b"second").unwrap();
        assert_eq!(two.name(), "service:two");
        assert_eq!(two.tenant.as_str(), "tenant-of-two");
        assert!(two.roles.contains("analyst"));
        for wrong in [&b""[..], b"secon", b"second ", b"FIRST", &Sha256::digest("second")[..]] {
            assert_eq!(keys.find(wrong), None);
        }
    }
}

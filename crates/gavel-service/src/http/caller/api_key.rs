//! API keys of services and of single users; gavel stores only their SHA-256.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::surfaces::caller::Caller;

/// The API key of one service or one user.
pub struct ServiceKey {
    /// The unique name of the key.
    pub name: Arc<str>,
    /// SHA-256 of the key's text.
    pub sha256: [u8; 32],
    /// The caller that the key authenticates.
    pub caller: Caller,
}

/// Finds the key with the presented text. Compares all hashes in constant time, so the duration reveals neither how
/// much of a key matched nor which one.
pub(super) fn find<'k>(keys: &'k [ServiceKey], presented: &[u8]) -> Option<&'k ServiceKey> {
    let presented: [u8; 32] = Sha256::digest(presented).into();
    let mut found = None;
    for key in keys {
        let same: Choice = key.sha256.ct_eq(&presented);
        if bool::from(same) {
            found = Some(key);
        }
    }
    found
}

impl ServiceKey {
    /// Distinguishes the key from another one of the same name. It is a hash of the key's hash, so that stored logins
    /// contain nothing that a configuration would accept.
    pub(super) fn fingerprint(&self) -> Arc<str> {
        let mut hash = Sha256::new_with_prefix(b"gavel console key");
        hash.update(self.sha256);
        hex::encode(hash.finalize()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::TenantId;
    use crate::surfaces::caller::Identity;

    fn key(name: &str, text: &str) -> ServiceKey {
        let caller = Caller {
            tenant: TenantId::parse(format!("tenant-of-{name}")).unwrap(),
            identity: Identity::Service(Arc::from(name)),
            roles: Arc::default(),
        };
        ServiceKey {
            name: Arc::from(name),
            sha256: Sha256::digest(text).into(),
            caller,
        }
    }

    #[test]
    fn a_key_finds_its_own_service_and_nothing_else_does() {
        let keys = [key("one", "first"), key("two", "second")];
        let two = &find(&keys, b"second").unwrap().caller;
        assert_eq!(two.name(), "service:two");
        assert_eq!(two.tenant.as_str(), "tenant-of-two");
        for invalid in [&b""[..], b"secon", b"second ", b"SECOND", &Sha256::digest("second")[..]] {
            assert!(find(&keys, invalid).is_none());
        }
    }
}

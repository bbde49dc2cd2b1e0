//! The caller when gavel itself is the client.

use std::sync::Arc;

use crate::domain::ids::{IdError, TenantId, UserId};
use crate::surfaces::caller::{APPROVER, Caller, Identity};

/// The operator. A user of the machine who may start gavel with this configuration may see and do what it allows, and
/// resolve approvals; on behalf of a user, what that user may.
pub(super) fn caller(tenant: TenantId, user: Option<&UserId>) -> Caller {
    let roles = match user {
        None => [APPROVER.to_owned()].into(),
        Some(_) => Default::default(),
    };
    Caller {
        tenant,
        identity: Identity::Service(Arc::from(name())),
        roles: Arc::new(roles),
    }
}

/// The records name the system account. They use its number, since an environment can set any name.
fn name() -> String {
    #[cfg(unix)]
    return format!("gavel-cli:uid-{}", rustix::process::getuid().as_raw());
    #[cfg(not(unix))]
    "gavel-cli".to_owned()
}

/// Parses `--tenant`.
pub(super) fn tenant(name: &str) -> Result<TenantId, IdError> {
    TenantId::parse(name)
}

/// Parses `--user`.
pub(super) fn user(name: &str) -> Result<UserId, IdError> {
    UserId::parse(name)
}

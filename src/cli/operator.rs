//! Who acts when gavel itself is the client.

use std::sync::Arc;

use crate::domain::ids::{IdError, TenantId, UserId};
use crate::surfaces::caller::{APPROVER, Caller, Identity};

/// The operator: whoever may start gavel with this configuration may see and do what the configuration allows, and answer
/// what waits for a person; on behalf of a user, what this user may.
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

/// The record says which account of the system it was. Its number, since names are anybody's to set in an environment.
fn name() -> String {
    #[cfg(unix)]
    return format!("gavel-cli:uid-{}", rustix::process::getuid().as_raw());
    #[cfg(not(unix))]
    "gavel-cli".to_owned()
}

/// What `--tenant` takes.
pub(super) fn tenant(name: &str) -> Result<TenantId, IdError> {
    TenantId::parse(name)
}

/// What `--user` takes.
pub(super) fn user(name: &str) -> Result<UserId, IdError> {
    UserId::parse(name)
}

//! Who acts when gavel itself is the client.

use std::sync::Arc;

use crate::domain::ids::{IdError, TenantId, UserId};
use crate::surfaces::caller::{Caller, Identity};

/// The operator: whoever may start gavel with this configuration may see and do what the configuration allows.
pub(super) fn caller(tenant: TenantId) -> Caller {
    Caller {
        tenant,
        identity: Identity::Service(Arc::from("gavel-cli")),
        roles: Arc::default(),
    }
}

/// What `--tenant` takes.
pub(super) fn tenant(name: &str) -> Result<TenantId, IdError> {
    TenantId::parse(name)
}

/// What `--user` takes.
pub(super) fn user(name: &str) -> Result<UserId, IdError> {
    UserId::parse(name)
}

//! Who acts when gavel itself is the client.

use std::sync::Arc;

use anyhow::Context;

use crate::domain::ids::{TenantId, UserId};
use crate::surfaces::caller::{Caller, Identity};

/// The operator: whoever may start gavel with this configuration may see and do what the configuration allows.
pub(super) fn caller(tenant: &str) -> anyhow::Result<Caller> {
    Ok(Caller {
        tenant: TenantId::parse(tenant).context("--tenant")?,
        identity: Identity::Service(Arc::from("gavel-cli")),
        roles: Arc::default(),
    })
}

/// On whose behalf.
pub(super) fn user(name: &str) -> anyhow::Result<UserId> {
    UserId::parse(name).context("--user")
}

//! The service behind the tools: a store, and the way to determine the user.

use std::sync::Arc;
use std::time::Duration;

use gavel_mcp_base::{Answer, Call, Fault, Moment, ToolError, unsettled};
use gavel_mcp_store::Claim;

use crate::error::store_unavailable;
use crate::identity::Identity;
use crate::store::{ChangeFault, Store};
use crate::task::Change;

const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// The service.
#[derive(Debug)]
pub(crate) struct Tasks {
    pub(crate) store: Store,
    pub(crate) identity: Identity,
}

impl Tasks {
    /// Changes the list. A dropped call leaves no partial change: its transaction is rolled back, or was fully
    /// committed.
    pub(crate) async fn change<A>(
        self: Arc<Self>,
        tool: &'static str,
        call: Call<A>,
        parse: fn(A) -> Result<Change, ToolError>,
    ) -> Result<Answer, Fault> {
        let user = self.identity.user(&call.meta)?;
        let key = call.meta.idempotency_key()?;
        let change = parse(call.arguments)?;
        let digest = call.digest;
        let claim = key.map(|key| Claim {
            user: user.clone(),
            tool,
            key,
            digest,
        });
        let changed = self.store.change(&user, &change, claim.as_ref(), Moment::now());
        match tokio::time::timeout(CALL_TIMEOUT, changed).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(ChangeFault::NotDone(error))) => Err(not_done(&error)),
            Ok(Err(ChangeFault::Unsettled(error))) => {
                tracing::error!(%error, "a commit was begun and its outcome is unknown");
                Err(unsettled())
            }
            // The time limit may have expired during the commit.
            Err(_) => {
                tracing::error!("the database did not answer a change in time");
                Err(unsettled())
            }
        }
    }

    /// What the store reads, in time.
    pub(crate) async fn read<T>(&self, reading: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, Fault> {
        match tokio::time::timeout(CALL_TIMEOUT, reading).await {
            Ok(read) => read.map_err(|error| not_done(&error)),
            Err(_) => {
                tracing::error!("the database did not answer in time");
                Err(store_unavailable().into())
            }
        }
    }
}

fn not_done(error: &sqlx::Error) -> Fault {
    tracing::error!(%error, "the database rejected a call");
    store_unavailable().into()
}

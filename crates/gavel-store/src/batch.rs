//! What each op of a transaction writes with.

use std::time::Duration;

use serde::Deserialize;

use super::audit::{Entry, Signer, Trail};
use super::db::{Conn, Value};
use super::error::Fault;
use super::rows::Writing;
use crate::domain::budget::SessionLimits;
use crate::domain::ids::{ActionId, RunId};
use crate::domain::tool::FailureCode;

/// What a transaction needs besides its ops.
pub(super) struct Batch<'a> {
    pub(super) writing: &'a Writing,
    pub(super) lease: Duration,
    /// Another worker may take a run whose holder has not renewed its lease for this long.
    pub(super) run_lease: Duration,
    /// How long ended runs are kept; `None` keeps them forever.
    pub(super) runs_kept: Option<Duration>,
    /// How many planning sessions there may be at once.
    pub(super) sessions: SessionLimits,
    /// The key that signs the audit log.
    pub(super) signer: Option<&'a Signer>,
    /// The audit entries of this transaction.
    pub(super) trail: Trail,
}

impl Batch<'_> {
    /// Closes calls that have no recorded outcome. The statement returns `id`, `run_id` (the decision), `tool` and
    /// `side_effect`. Returns the number of calls.
    pub(super) async fn end_unrecorded(
        &self,
        conn: &mut Conn,
        sql: &'static str,
        values: Vec<Value>,
        code: FailureCode,
    ) -> Result<u64, Fault> {
        #[derive(Deserialize)]
        struct Call {
            id: ActionId,
            run_id: RunId,
            tool: String,
            side_effect: bool,
        }
        let calls: Vec<Call> = conn.all(sql, values).await?;
        for call in calls.iter().filter(|call| call.side_effect) {
            self.audit(Entry::outcome(call.id, call.run_id, &call.tool, Some(code)));
        }
        Ok(calls.len() as u64)
    }
}

/// Every given row must have been written.
pub(super) fn expect(what: &str, (given, written): (u64, u64)) -> Result<(), Fault> {
    if given == written {
        return Ok(());
    }
    Err(Fault::Refused(
        format!("{what} was not written: its id is already used ({written} of {given} rows written)").into(),
    ))
}

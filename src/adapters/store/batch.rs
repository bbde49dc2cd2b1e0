//! What each op of a transaction writes with.

use std::ops::ControlFlow;
use std::time::Duration;

use super::audit::{Entry, Signer, Trail};
use super::db::{Conn, Sql, Value};
use super::error::Fault;
use super::rows::Writing;
use super::statements::Statements;
use crate::domain::budget::SessionLimits;
use crate::domain::tool::FailureCode;

/// What a transaction needs besides its ops.
pub(super) struct Batch<'a> {
    pub(super) statements: &'a Statements,
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
    /// Closes calls that have no recorded outcome. The statement returns call, decision, tool, and whether the call has
    /// a side effect. Returns the number of calls.
    pub(super) async fn end_unrecorded(
        &self,
        conn: &mut Conn,
        sql: &Sql,
        values: Vec<Value>,
        code: FailureCode,
    ) -> Result<u64, Fault> {
        let mut ended = 0;
        conn.fetch(sql, values, &mut |row| {
            ended += 1;
            if row.bool(3)? {
                self.audit(Entry::outcome(row.text(0)?, row.text(1)?, &row.text(2)?, Some(code)));
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(ended)
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

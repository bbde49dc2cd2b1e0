//! Past tool calls, in order, with the facts that a policy decides by.

use std::ops::ControlFlow;

use super::super::db::Value;
use super::ReadOnly;
use crate::domain::ids::TenantId;
use crate::domain::time::rfc3339;
use crate::ports::records::QueryError;

/// A logged call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastCall {
    /// Where the next page starts.
    pub place: (i64, String),
    /// RFC 3339.
    pub at: String,
    /// The decision that it belongs to.
    pub decision: String,
    /// The name that the model used, or the tool's own.
    pub tool: String,
    /// The server; absent if the model called a tool that was not on the allowlist.
    pub server: Option<String>,
    /// JSON, if it was stored.
    pub arguments: Option<String>,
    /// `completed`, `failed`, `in_doubt`, `started`, `not_sent`.
    pub status: String,
    /// The error code, if it did not complete.
    pub error_code: Option<String>,
    /// Whether it can have side effects.
    pub side_effect: bool,
    /// The user on whose behalf it was made.
    pub user: String,
    /// `chat`, `agent`, …
    pub surface: String,
    /// The agent of its run, while that run is kept.
    pub agent: Option<String>,
    /// Whether approval was requested, while its run is kept.
    pub required_approval: bool,
    /// Whether it was covered by a grant, while its run is kept.
    pub granted: bool,
    /// The rule that decided it, as recorded.
    pub by: Option<String>,
}

const PAST_CALLS: &str = "SELECT call.created_at, call.id, call.decision_id, call.tool, call.server, call.arguments, \
     call.status, call.error_code, call.side_effect, call.user_id, decision.surface, run.agent_id, \
     action.approval_id IS NOT NULL, action.approval_id IS NULL AND action.grant_id IS NOT NULL, call.decided_by \
     FROM tool_invocation_log call JOIN decision_log decision ON decision.id = call.decision_id \
     LEFT JOIN agent_run run ON run.id = call.decision_id LEFT JOIN agent_action action ON action.id = call.id \
     WHERE call.tenant = $1 AND (call.created_at, call.id) > ($2, $3) ORDER BY call.created_at, call.id LIMIT $4";

/// Rows of a page. As for analysts, the size of a page in memory is limited.
const PAGE: i64 = 500;
const PAGE_BYTES: usize = 8 << 20;

impl ReadOnly {
    /// The next calls after a place, oldest first; empty at the end.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn past_calls(&self, tenant: &TenantId, after: &(i64, String)) -> Result<Vec<PastCall>, QueryError> {
        let (mut calls, mut bytes) = (Vec::new(), 0);
        let values = vec![
            Value::text(tenant.as_str()),
            Value::Int(Some(after.0)),
            Value::text(&after.1),
            Value::Int(Some(PAGE)),
        ];
        self.rows(PAST_CALLS.into(), values, &mut |row| {
            let created_at = row.int(0)?;
            let arguments = row.opt_text(5)?;
            bytes += arguments.as_ref().map_or(0, String::len);
            calls.push(PastCall {
                place: (created_at, row.text(1)?),
                at: rfc3339(created_at),
                decision: row.text(2)?,
                tool: row.text(3)?,
                server: row.opt_text(4)?,
                arguments,
                status: row.text(6)?,
                error_code: row.opt_text(7)?,
                side_effect: row.bool(8)?,
                user: row.text(9)?,
                surface: row.text(10)?,
                agent: row.opt_text(11)?,
                required_approval: row.bool(12)?,
                granted: row.bool(13)?,
                by: row.opt_text(14)?,
            });
            Ok(if bytes > PAGE_BYTES {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })
        .await?;
        Ok(calls)
    }
}

//! Past tool calls, in order, with the facts that a policy decides by.

use std::ops::ControlFlow;

use serde::Deserialize;

use super::super::db::values;
use super::ReadOnly;
use crate::domain::ids::TenantId;
use crate::domain::time::Timestamp;
use crate::ports::records::QueryError;

/// A logged call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PastCall {
    /// Its id.
    pub id: String,
    /// When it was sent, or its decision began.
    pub at: Timestamp,
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

/// Rows of a page. As for analysts, the size of a page in memory is limited.
const PAGE: u32 = 500;
const PAGE_BYTES: usize = 8 << 20;

impl ReadOnly {
    /// The next calls after a time and the id of a call, oldest first; empty at the end.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn past_calls(&self, tenant: &TenantId, after: &(i64, String)) -> Result<Vec<PastCall>, QueryError> {
        let sql = "SELECT call.created_at AS at, call.id, call.decision_id AS decision, call.tool, call.server, \
                   call.arguments, call.status, call.error_code, call.side_effect, call.user_id AS \"user\", \
                   decision.surface, run.agent_id AS agent, action.approval_id IS NOT NULL AS required_approval, \
                   action.approval_id IS NULL AND action.grant_id IS NOT NULL AS granted, call.decided_by AS \"by\" \
                   FROM tool_invocation_log call JOIN decision_log decision ON decision.id = call.decision_id \
                   LEFT JOIN agent_run run ON run.id = call.decision_id LEFT JOIN agent_action action ON action.id = call.id \
                   WHERE call.tenant = $1 AND (call.created_at, call.id) > ($2, $3) \
                   ORDER BY call.created_at, call.id LIMIT $4";
        let (mut calls, mut bytes) = (Vec::new(), 0);
        self.rows(sql, values![tenant, after.0, &after.1, PAGE], &mut |row| {
            bytes += row.bytes();
            calls.push(row.read()?);
            Ok(match bytes > PAGE_BYTES {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })
        .await?;
        Ok(calls)
    }
}

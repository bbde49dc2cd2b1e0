//! Actions from their creation to their end, and the requests for their approval.

use std::sync::LazyLock;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::super::audit::{AuditKind, Entry};
use super::super::db::{Conn, Value, sql, values};
use super::super::error::Fault;
use super::super::transition::{may_become, may_become_any};
use super::ACTION;
use crate::domain::action::ActionStatus::{Completed, Executing, Expired, Failed, InDoubt};
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{ActionId, ApprovalId, RunId};
use crate::domain::thread::MessageKind;
use crate::domain::tool::FailureCode;
use crate::ports::commit::{ActionOutcome, NewAction, Wait};
use crate::ports::runs::Lease;
use crate::queue::Batch;

/// The audit reason of an approval that was not resolved in time.
const TIMED_OUT: &str = "timed_out";

impl Batch<'_> {
    /// Creates an action: one that requires approval waits, any other starts.
    pub(crate) async fn new_action(&self, conn: &mut Conn, run: RunId, action: &NewAction) -> Result<(), Fault> {
        static CREATE: LazyLock<String> = LazyLock::new(|| {
            let (head, row) = ACTION.insert();
            format!(
                "{head} SELECT {row} FROM agent_run run JOIN agent_run root ON root.id = run.root_id WHERE run.id = ? \
                 ON CONFLICT (id) DO NOTHING"
            )
        });
        let mut values = ACTION.begin(action, self.writing);
        values.push(run.into());
        let made = conn.execute(CREATE.as_str(), values).await? == 1;
        if let Some((approval, _)) = action.approval {
            if made {
                let content = &self.writing.content;
                let details = serde_json::to_string(&action.details)
                    .unwrap_or_else(|error| unreachable!("details print as JSON: {error}"));
                let entry = Entry::of_action(AuditKind::ApprovalRequested, action.id, run, &action.tool.name)
                    .with_tool(&action.tool.server, &action.tool.digest)
                    .with_arguments(content, &action.arguments)
                    .with("approval_id", approval.to_string())
                    .with("model", &*action.model)
                    .with("question_sha256", hex::encode(Sha256::digest(details)))
                    .with_content("reason", content, &action.details.reason);
                self.audit(entry);
            }
            let kind = MessageKind::ApprovalRequest.as_str();
            self.add_thread_line(conn, run, Some(action.id), kind, &action.words)
                .await?;
        } else if let Some(grant) = action.grant
            && made
        {
            let count = "UPDATE approval_grant SET uses = uses + 1, last_used_at = @now WHERE id = $1";
            conn.execute(count, values![grant]).await?;
        }
        Ok(())
    }

    /// Whether an action that required approval may start: it is approved and has not expired. Expires what is due if
    /// not.
    pub(crate) async fn is_approved(&self, conn: &mut Conn, root: RunId, action: ActionId) -> Result<bool, Fault> {
        // One that is executing was started by this process, in a commit that was not acknowledged.
        let may_begin = "SELECT id FROM agent_action WHERE id = $1 AND (status = 'executing' \
                         OR (status = 'approved' AND expires_at > @now))";
        let is_approved = conn.exists(may_begin, values![action]).await?;
        if !is_approved {
            self.expire_actions(conn, root).await?;
        }
        Ok(is_approved)
    }

    /// Whether the grant that covers this action is still valid; true if the action uses no grant.
    pub(crate) async fn grant_is_valid(&self, conn: &mut Conn, action: &NewAction) -> Result<bool, Fault> {
        let Some(grant) = action.grant else { return Ok(true) };
        // Also if the action already started, in a commit of this process that was not acknowledged. Locks the grant
        // against revocation until this transaction ends.
        let is_valid = "SELECT id FROM approval_grant WHERE id = $1 AND (revoked_at IS NULL \
                        OR EXISTS (SELECT 1 FROM agent_action WHERE agent_action.id = $2)) @postgres(FOR UPDATE)";
        Ok(conn.exists(is_valid, values![grant, action.id]).await?)
    }

    /// Marks an approved action as executing.
    pub(crate) async fn begin_action(&self, conn: &mut Conn, action: ActionId) -> Result<(), Fault> {
        let begin = sql!(
            "UPDATE agent_action SET status = 'executing', started_at = @now WHERE id = $1 AND {}",
            may_become(Executing)
        );
        conn.execute(begin, values![action]).await?;
        Ok(())
    }

    /// Records the outcome of an action; `over` means that their run has ended.
    pub(crate) async fn end_action(&self, conn: &mut Conn, outcome: &ActionOutcome, over: bool) -> Result<(), Fault> {
        #[derive(Deserialize)]
        struct Ended {
            run_id: RunId,
            tool: String,
            started_at: Option<i64>,
            side_effect: bool,
            approval_id: Option<ApprovalId>,
        }
        // The status is its first value.
        let end = sql!(
            "UPDATE agent_action SET {} WHERE id = $1 AND {} \
             RETURNING run_id, tool, started_at, side_effect, approval_id",
            ACTION.ended(),
            may_become_any("$2", &[Completed, Failed, InDoubt])
        );
        let mut values = values![outcome.id];
        values.extend(ACTION.end(outcome, self.writing));
        let Some(ended) = conn.one::<Ended>(end, values).await? else {
            return self.drop_request(conn, outcome.id, over).await;
        };
        let code = outcome.error.as_ref().map(|(code, _)| *code);
        if ended.started_at.is_none() {
            let entry = Entry::of_action(AuditKind::ApprovalExpired, outcome.id, ended.run_id, &ended.tool);
            let approval = ended.approval_id.map(|approval| approval.to_string());
            let why = match code {
                Some(FailureCode::Denied | FailureCode::InvalidArguments) => "no_longer_allowed",
                Some(FailureCode::Cancelled) => "run_ended",
                _ => "tool_unavailable",
            };
            self.audit(entry.by("gavel").with("approval_id", approval).with("why", why));
        }
        if let Some(words) = &outcome.words {
            let kind = MessageKind::Action.as_str();
            self.add_thread_line(conn, ended.run_id, Some(outcome.id), kind, words)
                .await?;
        }
        // A read-only call has no effect to record, and neither has an approved call that never started.
        if ended.side_effect && ended.started_at.is_some() {
            let code = match outcome.status {
                InDoubt => Some(FailureCode::InDoubt),
                _ => code,
            };
            self.audit(Entry::outcome(outcome.id, ended.run_id, &ended.tool, code));
        }
        Ok(())
    }

    /// Closes the approval request of a call that ended without one, for example by a timeout.
    async fn drop_request(&self, conn: &mut Conn, action: ActionId, over: bool) -> Result<(), Fault> {
        let drop = "UPDATE agent_action SET status = 'expired', completed_at = @now, reason = $2 \
                    WHERE id = $1 AND status = 'awaiting_confirmation' \
                    RETURNING id, run_id, tool, approval_id, resolution IS NOT NULL AS was_resolved";
        let (reason, why) = match over {
            true => ("its run ended first", "run_ended"),
            false => ("its run continued; the action was not executed", "superseded"),
        };
        self.end_requests(conn, drop, values![action, reason], why).await?;
        Ok(())
    }

    /// Closes the open approval requests, and the unused approvals, of an ended run and of the runs below it.
    pub(crate) async fn close_requests(&self, conn: &mut Conn, run: RunId) -> Result<(), Fault> {
        let close = sql!(
            "UPDATE agent_action SET status = 'expired', completed_at = @now, \
             reason = CASE WHEN resolution IS NULL THEN 'its run ended first' ELSE reason END \
             WHERE run_id IN (WITH RECURSIVE below (id) AS (SELECT id FROM agent_run WHERE id = $1 UNION ALL \
             SELECT run.id FROM agent_run run JOIN below ON run.parent_run_id = below.id) SELECT id FROM below) \
             AND {} RETURNING id, run_id, tool, approval_id, resolution IS NOT NULL AS was_resolved",
            may_become(Expired)
        );
        self.end_requests(conn, close, values![run], "run_ended").await?;
        Ok(())
    }

    /// Marks actions of an ended root run without a recorded outcome as in doubt.
    pub(crate) async fn doubt_actions(&self, conn: &mut Conn, root: RunId) -> Result<(), Fault> {
        let mark = sql!(
            "UPDATE agent_action SET status = CASE WHEN side_effect THEN 'in_doubt' ELSE 'failed' END, \
             completed_at = @now, error_code = CASE WHEN side_effect THEN 'in_doubt' ELSE 'cancelled' END, \
             error_message = 'sent, and its outcome was not recorded' WHERE root_id = $1 AND {} \
             RETURNING id, run_id, tool, side_effect",
            may_become(InDoubt)
        );
        self.end_unrecorded(conn, mark, values![root], FailureCode::InDoubt)
            .await?;
        Ok(())
    }

    /// Closes unresolved approval requests for the given reason. Returns their number.
    async fn end_requests(
        &self,
        conn: &mut Conn,
        sql: &'static str,
        values: Vec<Value>,
        why: &'static str,
    ) -> Result<usize, Fault> {
        #[derive(Deserialize)]
        struct Request {
            id: ActionId,
            run_id: RunId,
            tool: String,
            approval_id: Option<ApprovalId>,
            was_resolved: bool,
        }
        let ended: Vec<Request> = conn.all(sql, values).await?;
        for request in &ended {
            let entry = Entry::of_action(AuditKind::ApprovalExpired, request.id, request.run_id, &request.tool);
            // The action was approved, but did not start before it expired.
            let why = match (request.was_resolved, why) {
                (true, TIMED_OUT) => "start_timed_out",
                _ => why,
            };
            let approval = request.approval_id.map(|approval| approval.to_string());
            self.audit(entry.by("gavel").with("approval_id", approval).with("why", why));
        }
        Ok(ended.len())
    }

    /// Makes a run wait. False: an approval was resolved or an action settled meanwhile, or none was needed, so it
    /// continues.
    pub(crate) async fn wait_for(&self, conn: &mut Conn, lease: Lease, run: RunId, wait: &Wait) -> Result<bool, Fault> {
        let mut waits_for = Value::Text(None);
        match wait {
            Wait::Calls(calls) => {
                let asks = "SELECT id FROM agent_action WHERE id = $1 AND status = 'awaiting_confirmation'";
                for call in calls {
                    if !conn.exists(asks, values![*call]).await? {
                        return Ok(false);
                    }
                }
            }
            Wait::Child(child) if !self.is_waiting(conn, *child).await? => return Ok(false),
            Wait::Child(_) => {}
            Wait::Settlement(actions) => {
                if self.all_settled(conn, actions).await? {
                    return Ok(false);
                }
                waits_for = Value::list(actions);
            }
        }
        let suspend = sql!(
            "UPDATE agent_run SET status = 'awaiting_confirmation', holder = NULL, lease_id = NULL, \
             lease_until = NULL, takes = 0, waits_for = $2 WHERE id = $1 AND {}",
            may_become(RunStatus::AwaitingConfirmation)
        );
        conn.execute(suspend, values![run, waits_for]).await?;
        // A cancellation of a running run wakes no run, and the lease of a waiting run is not renewed. So a cancelled
        // root is woken here. Its child runs wait under the root, which is suspended after them.
        let to_be_cancelled =
            "SELECT id FROM agent_run WHERE root_id = $1 AND cancel_requested AND completed_at IS NULL LIMIT 1";
        if run == lease.run && conn.exists(to_be_cancelled, values![run]).await? {
            self.wake(conn, run).await?;
        }
        Ok(true)
    }

    /// Whether a run waits for an approval.
    pub(crate) async fn is_waiting(&self, conn: &mut Conn, run: RunId) -> Result<bool, Fault> {
        let waits = "SELECT id FROM agent_run WHERE id = $1 AND status = 'awaiting_confirmation'";
        Ok(conn.exists(waits, values![run]).await?)
    }

    /// Makes an outermost run and the runs that wait below it ready to continue with the next worker.
    pub(crate) async fn wake(&self, conn: &mut Conn, root: RunId) -> Result<(), Fault> {
        let wake = "UPDATE agent_run SET status = 'running', \
                    lease_until = CASE WHEN parent_run_id IS NULL THEN @now ELSE NULL END \
                    WHERE root_id = $1 AND status = 'awaiting_confirmation'";
        conn.execute(wake, values![root]).await?;
        Ok(())
    }

    /// Expires approval requests that are due, and approvals that were not used in time. The reason of an approver is
    /// kept.
    pub(crate) async fn expire_actions(&self, conn: &mut Conn, root: RunId) -> Result<(), Fault> {
        let expire = sql!(
            "UPDATE agent_action SET status = 'expired', completed_at = @now, \
             reason = CASE WHEN resolution IS NULL THEN 'its approval expired' ELSE reason END \
             WHERE root_id = $1 AND {} AND expires_at <= @now \
             RETURNING id, run_id, tool, approval_id, resolution IS NOT NULL AS was_resolved",
            may_become(Expired)
        );
        if self.end_requests(conn, expire, values![root], TIMED_OUT).await? > 0 {
            self.wake(conn, root).await?;
        }
        Ok(())
    }
}

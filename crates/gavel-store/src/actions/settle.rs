//! Settles in-doubt actions.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use super::super::audit::{AuditKind, Entry};
use super::super::db::{Conn, sql, values};
use super::super::error::Fault;
use super::super::runs::in_doubt;
use super::super::transition::{action_may_be_settled_as, any};
use crate::api::runs::InDoubtCall;
use crate::domain::action::ActionStatus::{self, Completed, Failed};
use crate::domain::action::DID_NOT_HAPPEN;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{ActionId, PlanningSessionId, RunId};
use crate::domain::thread::MessageKind;
use crate::domain::tool::FailureCode;
use crate::ports::actions::{Settle, SettleDone};
use crate::queue::Batch;

/// A settled action.
#[derive(Deserialize)]
pub(crate) struct Settled {
    run_id: RunId,
    tool: String,
}

impl Batch<'_> {
    pub(crate) async fn settle(&self, conn: &mut Conn, settle: &Settle) -> Result<SettleDone, Fault> {
        /// An action, and its outermost run.
        #[derive(Deserialize)]
        struct Doubt {
            status: ActionStatus,
            settled_by: Option<String>,
            root_status: RunStatus,
            root_in_doubt: Vec<InDoubtCall>,
            session_id: Option<PlanningSessionId>,
            /// While it is suspended.
            waits_for: Vec<ActionId>,
        }
        let doubt = "SELECT action.status, action.settled_by, root.status AS root_status, root.in_doubt AS root_in_doubt, \
                     root.session_id, CASE root.status WHEN 'awaiting_confirmation' THEN root.waits_for END AS waits_for \
                     FROM agent_action action JOIN agent_run root ON root.id = action.root_id WHERE action.id = $1";
        let doubt: Option<Doubt> = conn.one(doubt, values![settle.action]).await?;
        let doubt = doubt.ok_or_else(|| Fault::Refused("the action does not exist".into()))?;
        if doubt.status != ActionStatus::InDoubt {
            let again =
                doubt.status == settled_status(settle.happened) && doubt.settled_by.as_deref() == Some(&*settle.by);
            return Ok(match again {
                true => SettleDone::Again,
                false => SettleDone::NotInDoubt(doubt.status),
            });
        }
        // The next steps of the root run depend on the outcome in its journal. A planning session's run reads the
        // settlement, and may wait for it.
        if !doubt.root_status.has_ended() && doubt.session_id.is_none() {
            return Ok(SettleDone::RunInProgress);
        }
        let is_it = |call: &InDoubtCall| call.action_id == settle.action;
        if doubt.root_status == RunStatus::Paused && doubt.root_in_doubt.iter().any(is_it) {
            return Ok(SettleDone::WithRun);
        }
        let settled = self.settle_action(conn, settle.action, settle.happened, &settle.by);
        if let Some(Settled { run_id, tool }) = settled.await? {
            let kind = MessageKind::Settlement.as_str();
            self.add_thread_line(conn, run_id, Some(settle.action), kind, &settle.words)
                .await?;
            self.no_more_in_doubt(conn, settle.root, settle.action).await?;
            let entry = Entry::of_action(AuditKind::DoubtSettled, settle.action, run_id, &tool)
                .by(&settle.by)
                .with("happened", settle.happened);
            self.audit(entry);
        }
        if !doubt.waits_for.is_empty() && self.all_settled(conn, &doubt.waits_for).await? {
            self.wake(conn, settle.root).await?;
        }
        Ok(SettleDone::Done)
    }

    /// Whether a person has settled all of these actions.
    pub(super) async fn all_settled(&self, conn: &mut Conn, actions: &[ActionId]) -> Result<bool, Fault> {
        let is_settled = "SELECT id FROM agent_action WHERE id = $1 AND settled_by IS NOT NULL";
        for action in actions {
            if !conn.exists(is_settled, values![*action]).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The settled actions of a planning session's run and of the runs that it called, if they matter: they can be settled
    /// while the run is in progress. What a person has settled is not overwritten with the outcome in a journal. Every
    /// other run gets the answers when it is resumed, and keeps them until its journal has them.
    pub(crate) async fn settled_among(
        &self,
        conn: &mut Conn,
        root: RunId,
        matter: bool,
    ) -> Result<BTreeSet<ActionId>, Fault> {
        if !matter {
            return Ok(BTreeSet::new());
        }
        let settled = "SELECT id FROM agent_action WHERE root_id = $1 AND settled_by IS NOT NULL \
                       AND EXISTS (SELECT 1 FROM agent_run root WHERE root.id = $1 AND root.session_id IS NOT NULL)";
        Ok(conn.all(settled, values![root]).await?.into_iter().collect())
    }

    /// Removes a settled call from the in-doubt lists of its run and of the runs above it.
    async fn no_more_in_doubt(&self, conn: &mut Conn, root: RunId, settled: ActionId) -> Result<(), Fault> {
        #[derive(Deserialize)]
        struct Run {
            id: RunId,
            in_doubt: Vec<InDoubtCall>,
        }
        let runs = "SELECT id, in_doubt FROM agent_run WHERE root_id = $1 AND in_doubt IS NOT NULL ORDER BY id";
        let update = "UPDATE agent_run SET in_doubt = $2, error_message = CASE WHEN stop_reason = 'in_doubt' \
                      AND CAST($2 AS TEXT) IS NULL THEN 'the outcome of a call was unknown; a user has settled it since' \
                      ELSE error_message END WHERE id = $1";
        for mut run in conn.all::<Run>(runs, values![root]).await? {
            run.in_doubt.retain(|call| call.action_id != settled);
            conn.execute(update, values![run.id, in_doubt(&run.in_doubt)]).await?;
        }
        Ok(())
    }

    /// Records a settlement as the outcome of an in-doubt action, in its row and in the tool-call log. `None` if the call
    /// has no action, as that of an agent.
    pub(crate) async fn settle_action(
        &self,
        conn: &mut Conn,
        action: ActionId,
        happened: bool,
        by: &Arc<str>,
    ) -> Result<Option<Settled>, Fault> {
        let status = settled_status(happened);
        let code = (!happened).then_some(FailureCode::ToolError);
        let message = (!happened).then_some(DID_NOT_HAPPEN);
        // Replaces an earlier settlement whose resume never started.
        let settle = sql!(
            "UPDATE agent_action SET status = $2, error_code = $3, error_message = $4, settled_by = $5, \
             settled_at = @now WHERE id = $1 AND {} AND (status = 'in_doubt' OR settled_by IS NOT NULL) \
             RETURNING run_id, tool",
            any(
                "$2",
                &[Completed, Failed],
                ActionStatus::as_str,
                action_may_be_settled_as
            )
        );
        let settled: Option<Settled> = conn.one(settle, values![action, status, code, message, by]).await?;
        if let Some(settled) = &settled {
            let record = "UPDATE tool_invocation_log SET status = $2, error_code = $3, error_message = $4 \
                          WHERE decision_id = $5 AND id = $1 \
                          AND (status = 'in_doubt' OR status = 'completed' OR status = 'failed')";
            let values = values![action, status, code, message, settled.run_id];
            conn.execute(record, values).await?;
        }
        Ok(settled)
    }
}

/// The status that a settlement gives to an in-doubt action.
const fn settled_status(happened: bool) -> ActionStatus {
    match happened {
        true => Completed,
        false => Failed,
    }
}

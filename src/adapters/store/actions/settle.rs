//! Settles in-doubt actions.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::super::audit::{AuditKind, Entry};
use super::super::batch::Batch;
use super::super::db::{Conn, Row, Value};
use super::super::error::Fault;
use super::super::runs::{each, id, in_doubt, parse};
use super::Line;
use crate::domain::action::{ActionStatus, DID_NOT_HAPPEN};
use crate::domain::agent_run::{InDoubtCall, RunStatus};
use crate::domain::ids::{ActionId, RunId};
use crate::domain::thread::MessageKind;
use crate::domain::tool::FailureCode;
use crate::ports::actions::{Settle, SettleDone};

impl Batch<'_> {
    pub(in super::super) async fn settle(&self, conn: &mut Conn, settle: &Settle) -> Result<SettleDone, Fault> {
        let Some(row) = conn
            .first(&self.action_texts().in_doubt, vec![id(settle.action)])
            .await?
        else {
            return Err(Fault::Refused("the action does not exist".into()));
        };
        let status = parse(&row.text(0)?, ActionStatus::parse)?;
        if status != ActionStatus::InDoubt {
            let again = status == settled_status(settle.happened) && row.opt_text(1)?.as_deref() == Some(&*settle.by);
            return Ok(match again {
                true => SettleDone::Again,
                false => SettleDone::NotInDoubt(status),
            });
        }
        let root = parse(&row.text(2)?, RunStatus::parse)?;
        // The next steps of the root run depend on the outcome in its journal. A planning session's run reads the
        // settlement, and may wait for it.
        if !root.has_ended() && row.opt_text(4)?.is_none() {
            return Ok(SettleDone::RunInProgress);
        }
        if root == RunStatus::Paused
            && let Some(calls) = row.opt_text(3)?
        {
            let calls: Vec<InDoubtCall> = parse(&calls, |text| serde_json::from_str(text).ok())?;
            if calls.iter().any(|call| call.action_id == settle.action) {
                return Ok(SettleDone::WithRun);
            }
        }
        let settled = self.settle_action(conn, settle.action, settle.happened, &settle.by);
        if let Some((run, tool)) = settled.await? {
            let own = parse(&run, RunId::parse)?;
            self.add_thread_line(
                conn,
                own,
                Some(settle.action),
                Line::Of(MessageKind::Settlement),
                &settle.words,
            )
            .await?;
            self.no_more_in_doubt(conn, settle.root, settle.action).await?;
            let entry = Entry::of_action(AuditKind::DoubtSettled, settle.action, run, &tool)
                .by(&settle.by)
                .with("happened", settle.happened);
            self.audit(entry);
        }
        if let Some(waits_for) = row.opt_text(5)?
            && self.all_settled(conn, &parse(&waits_for, action_ids)?).await?
        {
            self.wake(conn, settle.root).await?;
        }
        Ok(SettleDone::Done)
    }

    /// Whether a person has settled all of these actions.
    pub(super) async fn all_settled(&self, conn: &mut Conn, actions: &[ActionId]) -> Result<bool, Fault> {
        for action in actions {
            let settled = conn.first(&self.action_texts().is_settled, vec![id(action)]);
            if settled.await?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The settled actions of a planning session's run and of the runs that it called, if they matter: they can be settled
    /// while the run is in progress. What a person has settled is not overwritten with the outcome in a journal. Every
    /// other run gets the answers when it is resumed, and keeps them until its journal has them.
    pub(in super::super) async fn settled_among(
        &self,
        conn: &mut Conn,
        root: RunId,
        matter: bool,
    ) -> Result<BTreeSet<ActionId>, Fault> {
        let mut settled = BTreeSet::new();
        if matter {
            let mut found = Vec::new();
            each(conn, &self.action_texts().settled_of, vec![id(root)], |row| {
                found.push(row.text(0)?);
                Ok(())
            })
            .await?;
            for action in found {
                settled.insert(parse(&action, ActionId::parse)?);
            }
        }
        Ok(settled)
    }

    /// Removes a settled call from the in-doubt lists of its run and of the runs above it.
    async fn no_more_in_doubt(&self, conn: &mut Conn, root: RunId, settled: ActionId) -> Result<(), Fault> {
        let mut runs = Vec::new();
        let each = &mut |row: Row| {
            runs.push((row.text(0)?, row.text(1)?));
            Ok(ControlFlow::Continue(()))
        };
        conn.fetch(&self.action_texts().in_doubt_of, vec![id(root)], each)
            .await?;
        for (run, calls) in runs {
            let mut calls: Vec<InDoubtCall> = parse(&calls, |text| serde_json::from_str(text).ok())?;
            calls.retain(|call| call.action_id != settled);
            let values = vec![Value::text(&run), in_doubt(&calls)?];
            conn.execute(&self.action_texts().settle_run, values).await?;
        }
        Ok(())
    }

    /// Records a settlement as the outcome of an in-doubt action, in its row and in the tool-call log. Returns its run
    /// and tool, or `None` if the call has none, as that of an agent.
    pub(in super::super) async fn settle_action(
        &self,
        conn: &mut Conn,
        action: ActionId,
        happened: bool,
        by: &Arc<str>,
    ) -> Result<Option<(String, String)>, Fault> {
        let (code, message) = match happened {
            true => (Value::Text(None), Value::Text(None)),
            false => (
                Value::text(FailureCode::ToolError.as_str()),
                Value::text(DID_NOT_HAPPEN),
            ),
        };
        let status = Value::text(settled_status(happened).as_str());
        let values = [id(action), status, code, message];
        let mut row = values.to_vec();
        row.push(Value::shared(by));
        let Some(settled) = conn.first(&self.action_texts().settle, row).await? else {
            return Ok(None);
        };
        let (run, tool) = (settled.text(0)?, settled.text(1)?);
        let mut record = values.to_vec();
        record.push(Value::text(&run));
        conn.execute(&self.action_texts().settle_record, record).await?;
        Ok(Some((run, tool)))
    }
}

/// The actions that a run waits for, as its row stores them.
pub(super) fn waits_for(actions: &[ActionId]) -> Result<Value, Fault> {
    let json = serde_json::to_string(actions).map_err(|error| Fault::Refused(error.to_string().into()))?;
    Ok(Value::text(&json))
}

fn action_ids(text: &str) -> Option<Vec<ActionId>> {
    serde_json::from_str(text).ok()
}

/// The status that a settlement gives to an in-doubt action.
const fn settled_status(happened: bool) -> ActionStatus {
    match happened {
        true => ActionStatus::Completed,
        false => ActionStatus::Failed,
    }
}

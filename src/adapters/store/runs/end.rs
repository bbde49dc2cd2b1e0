//! The end of a run: by its worker, with the run that called it, or by the store where no process returned it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::actions::Line;
use super::super::audit::{AuditKind, Entry};
use super::super::batch::Batch;
use super::super::config::ContentMode;
use super::super::db::{Conn, Value};
use super::super::error::Fault;
use super::statements::GIVEN_UP;
use super::values::{each, id, in_doubt, int, parse, tokens};
use crate::domain::action::ActionStatus;
use crate::domain::agent_run::{InDoubtCall, StopReason};
use crate::domain::ids::{ActionId, RunId};
use crate::domain::thread;
use crate::domain::tool::FailureCode;
use crate::ports::commit::RunEnd;
use crate::ports::runs::Lease;

impl Batch<'_> {
    /// Ends a run, and with an outermost run everything below it.
    pub(in super::super) async fn end_run(
        &self,
        conn: &mut Conn,
        lease: Lease,
        run: RunId,
        end: &RunEnd,
    ) -> Result<(), Fault> {
        let settled = self.settled_among(conn, lease.run, !end.in_doubt.is_empty()).await?;
        let in_doubt = end.in_doubt.iter().filter(|call| !settled.contains(&call.action_id));
        let in_doubt: Vec<_> = in_doubt.cloned().collect();
        conn.execute(&self.texts().finish, finished(run, end, &in_doubt)?)
            .await?;
        if !end.acted {
            return Ok(());
        }
        self.close_requests(conn, run).await?;
        if run == lease.run {
            self.end_called(conn, run, end.completed_at).await?;
            self.doubt_actions(conn, run).await?;
        }
        Ok(())
    }

    /// Whether this process has ended the run so, in a commit that was not acknowledged.
    pub(in super::super) async fn has_ended(
        &self,
        conn: &mut Conn,
        lease: Lease,
        run: RunId,
        end: &RunEnd,
    ) -> Result<bool, Fault> {
        let values = vec![
            id(lease.run),
            int(lease.fence),
            self.writing.owner.clone(),
            id(run),
            Value::text(end.status.as_str()),
            int(end.completed_at),
        ];
        Ok(conn.first(&self.texts().finished, values).await?.is_some())
    }

    /// Ends the remaining child runs of an ended root run, based on their intents. No process can write their ends any
    /// more.
    async fn end_called(&self, conn: &mut Conn, root: RunId, completed_at: i64) -> Result<(), Fault> {
        if let Some(lock) = &self.texts().lock_called {
            each(conn, lock, vec![id(root)], |_| Ok(())).await?;
        }
        if conn
            .execute(&self.texts().end_called, vec![id(root), int(completed_at)])
            .await?
            > 0
        {
            for (run, calls) in self.started_calls(conn, root).await? {
                let values = vec![Value::text(&run), in_doubt(&calls)?];
                conn.execute(&self.texts().in_doubt, values).await?;
            }
            conn.execute(&self.texts().close_called, vec![id(root)]).await?;
            self.mark_started_in_doubt(conn, root).await?;
        }
        Ok(())
    }

    /// Marks calls of a root run and its child runs that were sent and have no result as in doubt.
    async fn mark_started_in_doubt(&self, conn: &mut Conn, root: RunId) -> Result<(), Fault> {
        let calls = &self.texts().mark_started_in_doubt;
        self.end_unrecorded(conn, calls, vec![id(root)], FailureCode::InDoubt)
            .await?;
        Ok(())
    }

    /// Ends a run that no process returned, based on its intents. Only workers read journals.
    pub(in super::super) async fn give_up(&self, conn: &mut Conn, root: RunId) -> Result<(), Fault> {
        let values = vec![id(root), self.writing.owner.clone()];
        // No row: a worker has taken it meanwhile, or it was given up in a commit that was not acknowledged.
        let Some(ended) = conn.first(&self.texts().give_up, values).await? else {
            return Ok(());
        };
        let started: Vec<_> = self.started_calls(conn, root).await?.into_values().flatten().collect();
        self.end_called(conn, root, ended.int(0)?).await?;
        // The root lists the calls of its child runs as well, so that the user finds them there.
        conn.execute(&self.texts().in_doubt, vec![id(root), in_doubt(&started)?])
            .await?;
        conn.execute(&self.texts().close_given_up, vec![id(root)]).await?;
        self.mark_started_in_doubt(conn, root).await?;
        self.close_requests(conn, root).await?;
        self.doubt_actions(conn, root).await?;
        let (mut done, mut unknown) = (Vec::new(), Vec::new());
        each(conn, &self.texts().effects, vec![id(root)], |row| {
            let is_unknown = row.text(1)? == ActionStatus::InDoubt.as_str();
            if is_unknown { &mut unknown } else { &mut done }.push(row.text(0)?);
            Ok(())
        })
        .await?;
        let effects =
            thread::completed_effects(&done, &unknown).map_or_else(String::new, |effects| format!("\n\n{effects}"));
        let words = format!("{}{effects}", *GIVEN_UP).into();
        self.add_thread_line(conn, root, None, Line::ASSISTANT, &words).await
    }

    /// The calls of a root's runs that were sent and have no result, by run. Arguments are included if the log keeps
    /// them.
    async fn started_calls(&self, conn: &mut Conn, root: RunId) -> Result<BTreeMap<String, Vec<InDoubtCall>>, Fault> {
        let keeps_words = matches!(self.writing.content, ContentMode::Full);
        let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
        each(conn, &self.texts().started, vec![id(root)], |row| {
            let arguments = row.opt_text(3)?.filter(|_| keeps_words);
            let call = (row.text(1)?, row.text(2)?, arguments);
            found.entry(row.text(0)?).or_default().push(call);
            Ok(())
        })
        .await?;
        let mut by_run: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (run, calls) in found {
            for (action, tool, arguments) in calls {
                let action_id = parse(&action, ActionId::parse)?;
                let parameters = arguments.and_then(|json| serde_json::from_str(&json).ok());
                by_run.entry(run.clone()).or_default().push(InDoubtCall {
                    action_id,
                    tool,
                    parameters: parameters.unwrap_or_default(),
                });
            }
        }
        Ok(by_run)
    }

    pub(in super::super) async fn cancel(&self, conn: &mut Conn, run: RunId, by: &str) -> Result<(), Fault> {
        // Its outermost run is locked. So a concurrent suspension of this run, or of one above it, either sees the
        // cancellation or is woken.
        let entry = Entry::new(AuditKind::RunCancelled, run).decision(run).by(by);
        if conn.execute(&self.texts().cancel_queued, vec![id(run)]).await? == 1 {
            conn.execute(&self.texts().close_cancelled, vec![id(run)]).await?;
            let words = Arc::from("Cancelled before it began.");
            self.add_thread_line(conn, run, None, Line::ASSISTANT, &words).await?;
            self.audit(entry);
        } else {
            if conn.execute(&self.texts().cancel, vec![id(run)]).await? == 1 {
                self.audit(entry);
            }
            // A run that awaits approval becomes ready for a worker, so that it can end.
            conn.execute(&self.texts().wake_cancelled, vec![id(run)]).await?;
        }
        Ok(())
    }
}

/// The values of a run's end, with the calls that are still in doubt.
fn finished(run: RunId, end: &RunEnd, unsettled: &[InDoubtCall]) -> Result<Vec<Value>, Fault> {
    let text = |text: &Option<Arc<str>>| text.as_ref().map_or(Value::Text(None), Value::shared);
    let reason = |reason: Option<StopReason>| reason.map_or(Value::Text(None), |reason| Value::text(reason.as_str()));
    let output = end.output.as_ref();
    let mut values = vec![
        id(run),
        Value::text(end.status.as_str()),
        int(end.completed_at),
        text(&end.summary),
        output.map_or(Value::Text(None), |output| Value::text(output.get())),
        text(&end.error_message),
        reason(end.stop_reason),
        reason(end.recovered_from),
        in_doubt(unsettled)?,
        int(i64::from(end.steps)),
    ];
    values.extend(tokens(end.usage));
    Ok(values)
}

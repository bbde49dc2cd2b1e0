//! Actions from their creation to their end, and the requests for their approval.

use std::fmt::Display;
use std::ops::ControlFlow;

use sha2::{Digest, Sha256};

use super::super::audit::{AuditKind, Entry};
use super::super::batch::Batch;
use super::super::content::capped;
use super::super::db::{Conn, Sql, Value};
use super::super::error::Fault;
use super::super::runs::{id, int, parse};
use super::{ActionStatements, Line, settle};
use crate::domain::action::{ActionStatus, in_words};
use crate::domain::ids::{ActionId, RunId};
use crate::domain::thread::MessageKind;
use crate::domain::tool::FailureCode;
use crate::ports::commit::{ActionOutcome, NewAction, Wait};
use crate::ports::runs::Lease;

impl Batch<'_> {
    pub(super) fn action_texts(&self) -> &ActionStatements {
        &self.statements.actions
    }

    /// Creates an action: one that requires approval waits, any other starts.
    pub(in super::super) async fn new_action(
        &self,
        conn: &mut Conn,
        run: RunId,
        action: &NewAction,
    ) -> Result<(), Fault> {
        let asks = action.approval.is_some();
        let status = match asks {
            true => ActionStatus::AwaitingConfirmation,
            false => ActionStatus::Executing,
        };
        let (approval, lifetime) = match action.approval {
            Some((approval, lifetime)) => (id(approval), i64::try_from(lifetime.as_micros()).ok()),
            None => (Value::Text(None), None),
        };
        let details = serde_json::to_string(&action.details)
            .unwrap_or_else(|error| unreachable!("details print as JSON: {error}"));
        let shown = hex::encode(Sha256::digest(&details));
        let values = vec![
            id(run),
            id(action.id),
            approval,
            Value::Int(lifetime),
            int(i64::from(action.sequence)),
            Value::shared(&action.tool.server),
            Value::text(capped(&action.tool.name)),
            Value::shared(&action.tool.digest),
            Value::text(action.arguments.get()),
            Value::text(&hex::encode(Sha256::digest(action.arguments.get()))),
            Value::shared(&action.model),
            Value::text(if asks { "require_approval" } else { "allow" }),
            Value::text(&details),
            Value::text(status.as_str()),
            action.grant.map_or(Value::Text(None), id),
            Value::Bool(action.tool.side_effect),
        ];
        let made = conn.execute(&self.action_texts().create, values).await?;
        if let Some((approval, _)) = action.approval
            && made == 1
        {
            let content = &self.writing.content;
            let entry = Entry::of_action(AuditKind::ApprovalRequested, action.id, run, &action.tool.name)
                .with_tool(&action.tool.server, &action.tool.digest)
                .with_arguments(content, &action.arguments)
                .with("approval_id", approval.to_string())
                .with("model", &*action.model)
                .with("question_sha256", &*shown)
                .with_content("reason", content, &action.details.reason);
            self.audit(entry);
        }
        if asks {
            let line = Line::Of(MessageKind::ApprovalRequest);
            self.add_thread_line(conn, run, Some(action.id), line, &action.words)
                .await?;
        } else if made == 1
            && let Some(grant) = action.grant
        {
            conn.execute(&self.action_texts().use_grant, vec![id(grant)]).await?;
        }
        Ok(())
    }

    /// Whether an action that required approval may start: it is approved and has not expired. Expires what is due if
    /// not.
    pub(in super::super) async fn is_approved(
        &self,
        conn: &mut Conn,
        root: RunId,
        action: ActionId,
    ) -> Result<bool, Fault> {
        let may = conn.first(&self.action_texts().may_begin, vec![id(action)]).await?;
        if may.is_none() {
            self.expire_actions(conn, root).await?;
        }
        Ok(may.is_some())
    }

    /// Whether the grant that covers this action is still valid; true if the action uses no grant.
    pub(in super::super) async fn grant_is_valid(&self, conn: &mut Conn, action: &NewAction) -> Result<bool, Fault> {
        let Some(grant) = action.grant else { return Ok(true) };
        let values = vec![id(grant), id(action.id)];
        Ok(conn.first(&self.action_texts().grant_is_valid, values).await?.is_some())
    }

    /// Marks an approved action as executing.
    pub(in super::super) async fn begin_action(&self, conn: &mut Conn, action: ActionId) -> Result<(), Fault> {
        conn.execute(&self.action_texts().begin, vec![id(action)]).await?;
        Ok(())
    }

    /// Records the outcome of an action; `over` means that their run has ended.
    pub(in super::super) async fn end_action(
        &self,
        conn: &mut Conn,
        outcome: &ActionOutcome,
        over: bool,
    ) -> Result<(), Fault> {
        let (dropped, why) = match over {
            true => (&self.action_texts().drop_with_run, "run_ended"),
            false => (&self.action_texts().drop_request, "superseded"),
        };
        let (code, message) = match &outcome.error {
            Some((code, message)) => (
                Value::text(code.as_str()),
                self.writing.content.failure(*code, &in_words(message)),
            ),
            None => (Value::Text(None), Value::Text(None)),
        };
        let values = vec![id(outcome.id), Value::text(outcome.status.as_str()), code, message];
        let Some(ended) = conn.first(&self.action_texts().end, values).await? else {
            // The call waited for approval and ended without one, for example by a timeout. Its approval request is
            // closed.
            self.end_requests(conn, dropped, outcome.id, why).await?;
            return Ok(());
        };
        if ended.opt_int(2)?.is_none() {
            let entry = Entry::of_action(AuditKind::ApprovalExpired, outcome.id, ended.text(0)?, &ended.text(1)?);
            let entry = entry.by("gavel").with("approval_id", ended.opt_text(4)?);
            let why = match outcome.error.as_ref().map(|(code, _)| *code) {
                Some(FailureCode::Denied | FailureCode::InvalidArguments) => "no_longer_allowed",
                Some(FailureCode::Cancelled) => "run_ended",
                _ => "tool_unavailable",
            };
            self.audit(entry.with("why", why));
        }
        if let Some(words) = &outcome.words {
            let run = parse(&ended.text(0)?, RunId::parse)?;
            let line = Line::Of(MessageKind::Action);
            self.add_thread_line(conn, run, Some(outcome.id), line, words).await?;
        }
        // A read-only call has no effect to record, and neither has an approved call that never started.
        if ended.bool(3)? && ended.opt_int(2)?.is_some() {
            let code = match (&outcome.error, outcome.status) {
                (_, ActionStatus::InDoubt) => Some(FailureCode::InDoubt),
                (error, _) => error.as_ref().map(|(code, _)| *code),
            };
            self.audit(Entry::outcome(outcome.id, ended.text(0)?, &ended.text(1)?, code));
        }
        Ok(())
    }

    /// Closes the open approval requests of an ended run and of its child runs.
    pub(in super::super) async fn close_requests(&self, conn: &mut Conn, run: RunId) -> Result<(), Fault> {
        self.end_requests(conn, &self.action_texts().close, run, "run_ended")
            .await?;
        Ok(())
    }

    /// Marks actions of an ended root run without a recorded outcome as in doubt.
    pub(in super::super) async fn doubt_actions(&self, conn: &mut Conn, root: RunId) -> Result<(), Fault> {
        let mark = &self.action_texts().mark_in_doubt;
        self.end_unrecorded(conn, mark, vec![id(root)], FailureCode::InDoubt)
            .await?;
        Ok(())
    }

    /// Closes unresolved approval requests for the given reason. Returns their number.
    async fn end_requests(
        &self,
        conn: &mut Conn,
        sql: &Sql,
        of: impl Display + Send,
        why: &'static str,
    ) -> Result<u64, Fault> {
        let mut ended = 0;
        conn.fetch(sql, vec![id(of)], &mut |row| {
            ended += 1;
            let (action, run, tool) = (row.text(0)?, row.text(1)?, row.text(2)?);
            let entry = Entry::of_action(AuditKind::ApprovalExpired, action, run, &tool).by("gavel");
            // The action was approved, but did not start before it expired.
            let why = match (row.opt_text(4)?, why) {
                (Some(_), TIMED_OUT) => "start_timed_out",
                _ => why,
            };
            self.audit(entry.with("approval_id", row.opt_text(3)?).with("why", why));
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(ended)
    }

    /// Makes a run wait. False: an approval was resolved or an action settled meanwhile, or none was needed, so it
    /// continues.
    pub(in super::super) async fn wait_for(
        &self,
        conn: &mut Conn,
        lease: Lease,
        run: RunId,
        wait: &Wait,
    ) -> Result<bool, Fault> {
        let texts = self.action_texts();
        let mut waits_for = Value::Text(None);
        match wait {
            Wait::Calls(calls) => {
                for call in calls {
                    if conn.first(&texts.asks, vec![id(call)]).await?.is_none() {
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
                waits_for = settle::waits_for(actions)?;
            }
        }
        conn.execute(&texts.suspend, vec![id(run), waits_for]).await?;
        // A cancellation of a running run wakes no run, and the lease of a waiting run is not renewed. So a cancelled
        // root is woken here. Its child runs wait under the root, which is suspended after them.
        if run == lease.run && conn.first(&texts.to_be_cancelled, vec![id(run)]).await?.is_some() {
            self.wake(conn, run).await?;
        }
        Ok(true)
    }

    /// Whether a run waits for an approval.
    pub(in super::super) async fn is_waiting(&self, conn: &mut Conn, run: RunId) -> Result<bool, Fault> {
        Ok(conn.first(&self.action_texts().waits, vec![id(run)]).await?.is_some())
    }

    /// Makes an outermost run and the runs that wait below it ready to continue with the next worker.
    pub(in super::super) async fn wake(&self, conn: &mut Conn, root: RunId) -> Result<(), Fault> {
        conn.execute(&self.action_texts().wake, vec![id(root)]).await?;
        Ok(())
    }

    pub(in super::super) async fn expire_actions(&self, conn: &mut Conn, root: RunId) -> Result<(), Fault> {
        if self
            .end_requests(conn, &self.action_texts().expire, root, TIMED_OUT)
            .await?
            > 0
        {
            self.wake(conn, root).await?;
        }
        Ok(())
    }
}

/// The audit reason of an approval that was not resolved in time.
const TIMED_OUT: &str = "timed_out";

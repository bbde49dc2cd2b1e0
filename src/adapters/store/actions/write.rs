//! Ops of actions, grants and threads, each within the transaction of its batch.

use std::fmt::Display;
use std::ops::ControlFlow;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::super::audit::{AuditKind, Entry, Whose, field};
use super::super::batch::Batch;
use super::super::content::capped;
use super::super::db::{Conn, Row, Sql, Value};
use super::super::error::Fault;
use super::super::runs::{doubts, id, int};
use super::{ActionStatements, Line};
use crate::domain::action::{ActionStatus, DID_NOT_HAPPEN, Details, Resolution, in_words};
use crate::domain::agent_run::{InDoubtCall, RunStatus};
use crate::domain::ids::{ActionId, GrantId, RunId, ThreadId};
use crate::domain::thread::MessageKind;
use crate::domain::tool::FailureCode;
use crate::ports::actions::{Resolve, Resolved, Revoke, Settle, SettleDone};
use crate::ports::runs::{ActionOutcome, Created, InThread, NewAction, NewRun, Suspend, Suspended};

impl Batch<'_> {
    fn action_texts(&self) -> &ActionStatements {
        &self.statements.actions
    }

    /// Adds a run and the user's message to a thread, or returns why that is impossible. If the run must wait its turn,
    /// returns its creation time in microseconds since the epoch. That time is after all earlier runs of the thread,
    /// regardless of differing clocks.
    pub(in super::super) async fn enter_thread(
        &self,
        conn: &mut Conn,
        run: &NewRun,
        place: &InThread,
    ) -> Result<Result<Option<i64>, Created>, Fault> {
        let thread = id(place.thread);
        let owner = [
            Value::text(run.decision.tenant.as_str()),
            Value::text(run.decision.user.as_str()),
        ];
        if place.is_new {
            let mut values = vec![thread.clone()];
            values.extend(owner.clone());
            values.extend([Value::shared(&run.agent), int(run.decision.created_at)]);
            conn.execute(&self.action_texts().new_thread, values).await?;
        }
        let mut values = vec![thread.clone()];
        values.extend(owner);
        if conn.first(&self.action_texts().hold_thread, values).await?.is_none() {
            return Ok(Err(Created::NoThread));
        }
        let of_thread = vec![thread, id(run.id)];
        let going = conn.first(&self.action_texts().going, of_thread.clone()).await?;
        if let Some(going) = &going
            && !place.queue
        {
            return Ok(Err(Created::ThreadBusy(parsed(&going.text(0)?, RunId::parse)?)));
        }
        self.say(conn, place.thread, run.id, None, Line::USER, &place.message)
            .await?;
        if going.is_none() {
            return Ok(Ok(None));
        }
        let latest = conn.first(&self.action_texts().latest, of_thread).await?;
        let latest = latest.map(|row| row.int(0)).transpose()?;
        let created_at = run.decision.created_at;
        Ok(Ok(Some(latest.map_or(created_at, |latest| created_at.max(latest + 1)))))
    }

    /// Adds a line to the thread of a run, if it has one.
    pub(in super::super) async fn add_thread_line(
        &self,
        conn: &mut Conn,
        run: RunId,
        action: Option<ActionId>,
        line: Line,
        words: &Arc<str>,
    ) -> Result<(), Fault> {
        let Some(thread) = conn.first(&self.action_texts().thread_of, vec![id(run)]).await? else {
            return Ok(());
        };
        let thread = parsed(&thread.text(0)?, ThreadId::parse)?;
        self.say(conn, thread, run, action, line, words).await
    }

    async fn say(
        &self,
        conn: &mut Conn,
        thread: ThreadId,
        run: RunId,
        action: Option<ActionId>,
        line: Line,
        words: &Arc<str>,
    ) -> Result<(), Fault> {
        let named = action.map_or_else(String::new, |action| action.to_string());
        let values = vec![id(run), Value::text(line.as_str()), Value::text(&named)];
        if conn.first(&self.action_texts().said, values).await?.is_some() {
            return Ok(());
        }
        let number = conn.first(&self.action_texts().count_message, vec![id(thread)]).await?;
        let number = number.ok_or_else(|| Fault::Refused("the thread does not exist".into()))?;
        let values = vec![
            id(thread),
            int(number.int(0)?),
            id(run),
            action.map_or(Value::Text(None), id),
            Value::text(line.as_str()),
            Value::shared(words),
        ];
        conn.execute(&self.action_texts().say, values).await?;
        Ok(())
    }

    /// Creates actions: those that require approval wait, the others start.
    pub(in super::super) async fn new_actions(
        &self,
        conn: &mut Conn,
        run: RunId,
        actions: &[NewAction],
    ) -> Result<(), Fault> {
        for action in actions {
            let asks = action.approval.is_some();
            let status = match asks {
                true => ActionStatus::AwaitingConfirmation,
                false => ActionStatus::Executing,
            };
            let (approval, stands) = match action.approval {
                Some((approval, stands)) => (id(approval), i64::try_from(stands.as_micros()).ok()),
                None => (Value::Text(None), None),
            };
            let details = serde_json::to_string(&action.details)
                .unwrap_or_else(|error| unreachable!("details print as JSON: {error}"));
            let shown = hex::encode(Sha256::digest(&details));
            let values = vec![
                id(run),
                id(action.id),
                approval,
                Value::Int(stands),
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
                    .with_tool(&action.tool)
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

    /// Records the outcomes of actions; `over` means that their run has ended.
    pub(in super::super) async fn end_actions(
        &self,
        conn: &mut Conn,
        outcomes: &[ActionOutcome],
        over: bool,
    ) -> Result<(), Fault> {
        let (dropped, why) = match over {
            true => (&self.action_texts().drop_with_run, "run_ended"),
            false => (&self.action_texts().drop_request, "superseded"),
        };
        for outcome in outcomes {
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
                continue;
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
                let run = parsed(&ended.text(0)?, RunId::parse)?;
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
        let doubt = &self.action_texts().doubt;
        self.end_unrecorded(conn, doubt, vec![id(root)], FailureCode::InDoubt)
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

    pub(in super::super) async fn suspend(&self, conn: &mut Conn, suspend: &Suspend) -> Result<Suspended, Fault> {
        if !self.holds(conn, suspend.lease, suspend.run).await? {
            // This process may have suspended it, in a commit that was not acknowledged.
            let waits = conn.first(&self.action_texts().waits, vec![id(suspend.run)]).await?;
            return Ok(waits.map_or(Suspended::LeaseLost, |_| Suspended::Yes));
        }
        self.enter(conn, suspend.run, &suspend.entries).await?;
        self.update_usage(conn, &suspend.spent).await?;
        self.end_actions(conn, &suspend.outcomes, false).await?;
        self.new_actions(conn, suspend.run, &suspend.actions).await?;
        for action in &suspend.waits {
            if conn.first(&self.action_texts().asks, vec![id(action)]).await?.is_none() {
                return Ok(Suspended::Answered);
            }
        }
        if let Some(child) = suspend.child
            && conn.first(&self.action_texts().waits, vec![id(child)]).await?.is_none()
        {
            return Ok(Suspended::Answered);
        }
        conn.execute(&self.action_texts().suspend, vec![id(suspend.run)])
            .await?;
        // A cancellation of a running run wakes no run, and the lease of a waiting run is not renewed. So a cancelled
        // root is woken here. Its child runs wait under the root, which is suspended after them.
        let root = suspend.lease.run;
        if suspend.run == root
            && let cancelled = &self.action_texts().to_be_cancelled
            && conn.first(cancelled, vec![id(root)]).await?.is_some()
        {
            self.wake(conn, root).await?;
        }
        Ok(Suspended::Yes)
    }

    pub(in super::super) async fn resolve(&self, conn: &mut Conn, resolve: &Resolve) -> Result<Resolved, Fault> {
        let Some(asked) = conn.first(&self.action_texts().asked, vec![id(resolve.action)]).await? else {
            return Err(Fault::Refused("the action does not exist".into()));
        };
        let status = parsed(&asked.text(0)?, ActionStatus::parse)?;
        if status != ActionStatus::AwaitingConfirmation {
            let said = asked.opt_text(1)?;
            let said = said.map(|text| parsed(&text, Resolution::parse)).transpose()?;
            let by = asked.opt_text(2)?;
            // The reason is not compared: the first one is kept.
            let same = said == Some(resolve.resolution) && by.as_deref() == Some(&*resolve.by);
            return Ok(match same {
                true => Resolved::Again,
                false => Resolved::Late(status, said, by),
            });
        }
        if asked.bool(4)? {
            self.expire_actions(conn, resolve.root).await?;
            return Ok(Resolved::Late(ActionStatus::Expired, None, None));
        }
        if resolve.resolution.approves() && !self.is_as_asked(conn, resolve.action).await? {
            return Ok(Resolved::Changed);
        }
        let (run, tool) = (parsed(&asked.text(10)?, RunId::parse)?, asked.text(7)?);
        let grant = match resolve.grant {
            Some(new) => Some(self.grant(conn, resolve, new, &asked).await?),
            None => None,
        };
        let status = match resolve.resolution.approves() {
            true => ActionStatus::Approved,
            false => ActionStatus::Rejected,
        };
        let values = vec![
            id(resolve.action),
            Value::text(status.as_str()),
            Value::text(resolve.resolution.as_str()),
            Value::shared(&resolve.by),
            resolve.reason.as_ref().map_or(Value::Text(None), Value::shared),
            grant.unwrap_or(Value::Text(None)),
        ];
        conn.execute(&self.action_texts().resolve, values).await?;
        let mut entry = Entry::of_action(AuditKind::ApprovalResolved, resolve.action, run, &tool)
            .by(&resolve.by)
            .with("approval_id", resolve.approval.to_string())
            .with("decision", resolve.resolution.as_str());
        if let Some(reason) = &resolve.reason {
            entry = entry.with_content("reason", &self.writing.content, reason);
        }
        self.audit(entry);
        let line = Line::Of(MessageKind::Approval);
        self.add_thread_line(conn, run, Some(resolve.action), line, &resolve.words)
            .await?;
        self.wake(conn, resolve.root).await?;
        Ok(Resolved::Done)
    }

    /// Whether an approval request still matches its audit entry. Its row holds what the approver is shown.
    async fn is_as_asked(&self, conn: &mut Conn, action: ActionId) -> Result<bool, Fault> {
        let Some(found) = conn.first(&self.action_texts().entered, vec![id(action)]).await? else {
            return Ok(true);
        };
        let entered = found.text(2)?;
        let same = |text: String, name: &str| {
            field(&entered, name).is_none_or(|hash| hash == hex::encode(Sha256::digest(text)))
        };
        let details = found.opt_text(1)?.unwrap_or_default();
        Ok(same(found.text(0)?, "arguments_sha256") && same(details, "question_sha256"))
    }

    /// Makes an outermost run and the runs that wait below it ready to continue with the next worker.
    pub(in super::super) async fn wake(&self, conn: &mut Conn, root: RunId) -> Result<(), Fault> {
        conn.execute(&self.action_texts().wake, vec![id(root)]).await?;
        Ok(())
    }

    /// The id of the grant that a resolution creates: `new`, unless an identical grant exists. `asked` is the row of
    /// the approval request.
    async fn grant(&self, conn: &mut Conn, resolve: &Resolve, new: GrantId, asked: &Row) -> Result<Value, Fault> {
        let details: Details = parsed(&asked.opt_text(8)?.unwrap_or_default(), |text| {
            serde_json::from_str(text).ok()
        })?;
        let recipients = serde_json::to_string(&details.recipients.unwrap_or_default())
            .unwrap_or_else(|error| unreachable!("recipients print as JSON: {error}"));
        let (server, tool, digest) = (asked.text(6)?, asked.text(7)?, asked.text(11)?);
        let key = vec![
            Value::text(&asked.text(9)?),
            Value::text(&asked.text(5)?),
            Value::text(&server),
            Value::text(&tool),
            Value::text(&recipients),
            Value::text(&digest),
        ];
        let texts = self.action_texts();
        if let Some(there) = conn.first(&texts.live_grant, key.clone()).await? {
            return Ok(Value::text(&there.text(0)?));
        }
        let mut values = vec![id(new)];
        values.extend(key.clone());
        values.extend([id(resolve.action), Value::shared(&resolve.by)]);
        conn.execute(&texts.new_grant, values).await?;
        // Another transaction may have created the same grant first.
        if let Some(first) = conn.first(&texts.live_grant, key).await? {
            let first = first.text(0)?;
            if first != new.to_string() {
                return Ok(Value::text(&first));
            }
        }
        let entry = Entry::new(AuditKind::GrantCreated, new)
            .decision(parsed(&asked.text(10)?, RunId::parse)?)
            .action(resolve.action)
            .tool(&tool)
            .by(&resolve.by)
            .with("server", server)
            .with("tool_digest", digest)
            .with_content("recipients", &self.writing.content, &recipients);
        self.audit(entry);
        Ok(id(new))
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

    pub(in super::super) async fn settle(&self, conn: &mut Conn, settle: &Settle) -> Result<SettleDone, Fault> {
        let Some(row) = conn
            .first(&self.action_texts().in_doubt, vec![id(settle.action)])
            .await?
        else {
            return Err(Fault::Refused("the action does not exist".into()));
        };
        let status = parsed(&row.text(0)?, ActionStatus::parse)?;
        if status != ActionStatus::InDoubt {
            let again = status == settled_status(settle.happened) && row.opt_text(1)?.as_deref() == Some(&*settle.by);
            return Ok(match again {
                true => SettleDone::Again,
                false => SettleDone::NotInDoubt(status),
            });
        }
        let root = parsed(&row.text(2)?, RunStatus::parse)?;
        // The end of the root run would overwrite the settlement with the outcome in its journal.
        if !root.is_over() {
            return Ok(SettleDone::NotOver);
        }
        if root == RunStatus::Paused
            && row.opt_text(3)?.is_none()
            && let Some(calls) = row.opt_text(4)?
        {
            let calls: Vec<InDoubtCall> = parsed(&calls, |text| serde_json::from_str(text).ok())?;
            if calls.iter().any(|call| call.action_id == settle.action) {
                return Ok(SettleDone::WithRun);
            }
        }
        let settled = self.settle_action(conn, settle.action, settle.happened, &settle.by);
        if let Some((run, tool)) = settled.await? {
            let own = parsed(&run, RunId::parse)?;
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
        Ok(SettleDone::Done)
    }

    /// Removes a settled call from the in-doubt lists of its run and of the runs above it.
    async fn no_more_in_doubt(&self, conn: &mut Conn, root: RunId, settled: ActionId) -> Result<(), Fault> {
        let mut runs = Vec::new();
        let each = &mut |row: Row| {
            runs.push((row.text(0)?, row.text(1)?));
            Ok(ControlFlow::Continue(()))
        };
        conn.fetch(&self.action_texts().doubts_of, vec![id(root)], each).await?;
        for (run, calls) in runs {
            let mut calls: Vec<InDoubtCall> = parsed(&calls, |text| serde_json::from_str(text).ok())?;
            calls.retain(|call| call.action_id != settled);
            let values = vec![Value::text(&run), doubts(&calls)?];
            conn.execute(&self.action_texts().settle_run, values).await?;
        }
        Ok(())
    }

    /// Records a settlement as the outcome of an in-doubt action, in its row and in the tool-call log. Returns its run
    /// and tool, or `None` if there is no such action, as for runs from before actions existed.
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

    pub(in super::super) async fn revoke(&self, conn: &mut Conn, revoke: &Revoke) -> Result<bool, Fault> {
        let user = revoke.user.as_ref().map(|user| Value::text(user.as_str()));
        let values = vec![
            id(revoke.grant),
            Value::text(revoke.tenant.as_str()),
            user.unwrap_or(Value::Text(None)),
            Value::shared(&revoke.by),
        ];
        let Some(row) = conn.first(&self.action_texts().revoke, values.clone()).await? else {
            // The same user may have revoked it, in a commit that was not acknowledged.
            return Ok(conn.first(&self.action_texts().revoked, values).await?.is_some());
        };
        let entry = Entry::new(AuditKind::GrantRevoked, revoke.grant)
            .for_(Whose::new(revoke.tenant.as_str(), &row.text(0)?))
            .by(&revoke.by)
            .tool(&row.text(2)?)
            .with("server", row.text(1)?)
            .with_content("recipients", &self.writing.content, &row.text(3)?);
        self.audit(entry);
        Ok(true)
    }
}

/// The audit reason of an approval that was not resolved in time.
const TIMED_OUT: &str = "timed_out";

/// The status that a settlement gives to an in-doubt action.
const fn settled_status(happened: bool) -> ActionStatus {
    match happened {
        true => ActionStatus::Completed,
        false => ActionStatus::Failed,
    }
}

/// Parses a value that gavel wrote; it fails only if the row was edited outside gavel.
fn parsed<T>(text: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, Fault> {
    parse(text).ok_or_else(|| Fault::Refused(format!("a row holds a value that gavel never writes: {text:?}").into()))
}

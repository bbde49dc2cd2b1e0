//! Ops of runs and definitions, each within the transaction of its batch.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::super::actions::Line;
use super::super::audit::{AuditKind, Entry, Whose};
use super::super::batch::Batch;
use super::super::config::ContentMode;
use super::super::db::{Conn, Row, Sql, Value};
use super::super::definitions::CURRENT_NUMBERS;
use super::super::error::Fault;
use super::super::op::Op;
use super::op::{Abandoned, RunDone, RunOp};
use super::statements::{GIVEN_UP, MANY, RunStatements};
use crate::domain::action::ActionStatus;
use crate::domain::agent_run::{InDoubtCall, RunStatus};
use crate::domain::decision::Usage;
use crate::domain::ids::{ActionId, ProjectId, RunId, TenantId};
use crate::domain::thread;
use crate::domain::tool::FailureCode;
use crate::ports::definitions::{NewVersion, PutVersion};
use crate::ports::runs::{Append, Created, FinishedRun, Held, Lease, NewRun, Renewed, Spent, StoredEntry};

impl Batch<'_> {
    /// Stores the definition snapshots of all runs to be created. All writers use one order, before any other lock, so
    /// that no deadlock is possible. Returns the new snapshots.
    pub(in super::super) async fn keep_snapshots<'a>(
        &self,
        conn: &mut Conn,
        ops: impl Iterator<Item = &'a Op>,
    ) -> Result<Vec<Value>, Fault> {
        let mut snapshots = BTreeMap::new();
        for op in ops {
            if let Op::Run(op) = op
                && let RunOp::Create(run) = &**op
            {
                snapshots.insert(&run.snapshot.hash, &run.snapshot.text);
            }
        }
        let mut new = Vec::new();
        for (hash, text) in snapshots {
            let values = vec![Value::shared(hash), Value::shared(text)];
            if conn.execute(&self.texts().snapshot, values).await? == 1 {
                new.push(Value::shared(hash));
            } else if let Some(hold) = &self.texts().hold_snapshot
                && conn.first(hold, vec![Value::shared(hash)]).await?.is_none()
            {
                return Err(Fault::Unavailable("a snapshot was deleted concurrently".into()));
            }
        }
        Ok(new)
    }

    /// Deletes those of these snapshots that no run uses.
    pub(in super::super) async fn drop_unused(&self, conn: &mut Conn, snapshots: Vec<Value>) -> Result<(), Fault> {
        for snapshot in snapshots {
            conn.execute(&self.texts().prune_snapshot, vec![snapshot]).await?;
        }
        Ok(())
    }

    /// Locks every run and project that the ops depend on. All writers use one order, so that no deadlock is possible.
    /// On SQLite the transaction itself is the only lock.
    pub(in super::super) async fn lock_runs<'a>(
        &self,
        conn: &mut Conn,
        ops: impl Iterator<Item = &'a Op>,
    ) -> Result<(), Fault> {
        let (Some(lock), Some(lock_project)) = (&self.texts().lock, &self.texts().lock_project) else {
            return Ok(());
        };
        let (mut runs, mut projects) = (BTreeSet::new(), BTreeSet::new());
        for op in ops {
            if let Op::Run(op) = op {
                op.locks(&mut runs);
                projects.extend(op.project());
            }
        }
        let runs: Vec<_> = runs.into_iter().collect();
        for runs in many(&runs) {
            each(conn, lock, runs, |_| Ok(())).await?;
        }
        for (tenant, project) in projects {
            let values = vec![Value::text(tenant), Value::text(project)];
            each(conn, lock_project, values, |_| Ok(())).await?;
        }
        Ok(())
    }

    pub(in super::super) async fn write_run(&self, conn: &mut Conn, op: &RunOp) -> Result<RunDone, Fault> {
        Ok(match op {
            RunOp::Create(run) => RunDone::Created(self.create(conn, run).await?),
            RunOp::Abandon(abandoned) => {
                self.abandon_run(conn, abandoned).await?;
                RunDone::Written
            }
            RunOp::Take(run, lease) => RunDone::Taken(self.take(conn, *run, *lease).await?),
            RunOp::Append(batch) => RunDone::Held(self.append(conn, batch).await?),
            RunOp::Finish(run) => RunDone::Held(self.finish(conn, run).await?),
            RunOp::Suspend(suspend) => RunDone::Suspended(self.suspend(conn, suspend).await?),
            RunOp::Resolve(resolve) => RunDone::Resolved(self.resolve(conn, resolve).await?),
            RunOp::Settle(settle) => RunDone::Settled(self.settle(conn, settle).await?),
            RunOp::Claim(run, scope, fingerprint) => {
                let others = self.others_claim(conn, scope, fingerprint, &run.to_string()).await?;
                // A claim of this run may come from another request about the same run.
                let row = match others {
                    Some(row) => Some(row),
                    None => conn.first(&self.statements.claimed, vec![Value::shared(scope)]).await?,
                };
                let same = row
                    .map(|row| Ok::<_, Fault>(row.text(0)? == **fingerprint))
                    .transpose()?;
                RunDone::Claimed(same.unwrap_or(true))
            }
            RunOp::Expire(roots) => {
                for root in roots {
                    self.expire_actions(conn, *root).await?;
                }
                RunDone::Written
            }
            RunOp::GiveUp(roots) => {
                for root in roots {
                    self.give_up(conn, *root).await?;
                }
                RunDone::Written
            }
            RunOp::Revoke(revoke) => RunDone::Revoked(self.revoke(conn, revoke).await?),
            RunOp::Renew(leases) => RunDone::Renewed(self.renew(conn, leases).await?),
            RunOp::Release(leases) => {
                for lease in leases {
                    let values = vec![id(lease.run), int(lease.fence), self.writing.owner.clone()];
                    conn.execute(&self.texts().release, values).await?;
                }
                RunDone::Written
            }
            RunOp::Cancel(run, by) => {
                self.cancel(conn, *run, by).await?;
                RunDone::Written
            }
            RunOp::Define(version, id) => RunDone::Put(self.define(conn, version, *id).await?),
        })
    }

    fn texts(&self) -> &RunStatements {
        &self.statements.runs
    }

    async fn create(&self, conn: &mut Conn, run: &NewRun) -> Result<Created, Fault> {
        let mut queued = run.queued && run.parent.is_none();
        let mut lease = match &run.parent {
            None => (!queued).then_some(Lease { run: run.id, fence: 1 }),
            Some(parent) => {
                if !self.holds(conn, parent.lease, parent.run).await? {
                    return Ok(Created::LeaseLost);
                }
                let values = vec![id(parent.run), id(parent.action)];
                if let Some(there) = conn.first(&self.texts().called, values).await? {
                    let there = run_id(&there.text(0)?)?;
                    return Ok(match there == run.id {
                        true => Created::New(Some(parent.lease)),
                        false => Created::Replayed(there),
                    });
                }
                Some(parent.lease)
            }
        };
        if let Some((scope, fingerprint)) = &run.claim
            && let Some(claim) = self.others_claim(conn, scope, fingerprint, &run.id.to_string()).await?
        {
            return Ok(match claim.text(0)? == **fingerprint {
                true => Created::Replayed(run_id(&claim.text(1)?)?),
                false => Created::Mismatch,
            });
        }
        if let Some(paused) = run.resumes
            && let Some(refused) = self.resume(conn, paused, run.id).await?
        {
            // Nothing was created, so the key can be claimed again.
            if let Some((scope, _)) = &run.claim {
                self.free_claim(conn, scope, run.id).await?;
            }
            return Ok(refused);
        }
        let mut created_at = run.decision.created_at;
        if let Some(place) = &run.thread {
            match self.enter_thread(conn, run, place).await? {
                Ok(None) => {}
                // The run waits its turn, even if a caller waits for it.
                Ok(Some(at)) => (queued, lease, created_at) = (true, None, at),
                Err(refused) => {
                    if let Some((scope, _)) = &run.claim {
                        self.free_claim(conn, scope, run.id).await?;
                    }
                    return Ok(refused);
                }
            }
        }
        let mut decision = Vec::new();
        self.writing.open_for(&run.decision, id(run.id), &mut decision);
        self.statements.open.run(conn, decision).await?;
        self.texts().create.run(conn, self.row(run, queued, created_at)).await?;
        if let (Some(paused), Some(settled)) = (run.resumes, &run.settled) {
            for (call, happened) in &settled.calls {
                self.settle_action(conn, *call, *happened, &settled.by).await?;
                // Each resume has its own settlement: after a resume that was cancelled before it started, another may
                // settle differently.
                let mut entry = Entry::new(AuditKind::DoubtSettled, format!("{call}:{}", run.id));
                entry = entry.action(call).decision(paused).by(&settled.by);
                entry = entry.with("happened", *happened);
                self.audit(entry.with("resumed_by", run.id.to_string()));
            }
        }
        Ok(Created::New(lease))
    }

    /// The values of a new run.
    fn row(&self, run: &NewRun, queued: bool, created_at: i64) -> Vec<Value> {
        let none = Value::Text(None);
        // The caller of a child run works on it at once.
        let status = match queued {
            true => RunStatus::Queued,
            false => RunStatus::Running,
        };
        let begun = status == RunStatus::Running;
        let (holder, lease, fence) = match (&run.parent, begun) {
            (Some(_), _) => (none.clone(), Value::Int(None), 0),
            (None, true) => (self.writing.owner.clone(), self.lease_length(), 1),
            (None, false) => (none.clone(), int(0), 0),
        };
        vec![
            id(run.id),
            id(run.parent.map_or(run.id, |parent| parent.lease.run)),
            run.parent.map_or(none.clone(), |parent| id(parent.run)),
            run.parent.map_or(none.clone(), |parent| id(parent.action)),
            Value::text(run.decision.tenant.as_str()),
            Value::text(run.decision.user.as_str()),
            Value::text(run.project.as_str()),
            Value::shared(&run.agent),
            Value::Int(run.version),
            Value::shared(&run.decision.definition_hash),
            Value::shared(&run.snapshot.hash),
            Value::text(run.input.get()),
            Value::text(run.settings.get()),
            Value::text(status.as_str()),
            holder,
            lease,
            int(fence),
            // This process is the first to take it.
            int(fence),
            int(created_at),
            Value::Int(begun.then_some(created_at)),
            run.resumes.map_or(none.clone(), id),
            run.thread.as_ref().map_or(none, |place| id(place.thread)),
        ]
    }

    /// Whether the lease is held, and the run under it is still running.
    pub(in super::super) async fn holds(&self, conn: &mut Conn, lease: Lease, run: RunId) -> Result<bool, Fault> {
        let values = vec![id(lease.run), int(lease.fence), self.writing.owner.clone(), id(run)];
        Ok(conn.first(&self.texts().holds, values).await?.is_some())
    }

    /// Records in the paused run which run resumes it, or returns why that is impossible.
    async fn resume(&self, conn: &mut Conn, paused: RunId, by: RunId) -> Result<Option<Created>, Fault> {
        if conn.execute(&self.texts().resume, vec![id(paused), id(by)]).await? == 1 {
            return Ok(None);
        }
        let row = conn.first(&self.texts().resumable, vec![id(paused)]).await?;
        let Some(row) = row else {
            return Ok(Some(Created::NothingToResume));
        };
        let status = status(&row.text(0)?)?;
        Ok(Some(match row.opt_text(1)? {
            Some(other) => Created::ResumedBy(run_id(&other)?),
            None => Created::NotPaused(status),
        }))
    }

    async fn abandon_run(&self, conn: &mut Conn, abandoned: &Abandoned) -> Result<(), Fault> {
        let run = id(abandoned.run);
        let values = vec![run.clone(), self.writing.owner.clone()];
        // No row: it was not created, or a worker has taken it.
        if conn.execute(&self.texts().abandon, values).await? == 0 {
            return Ok(());
        }
        conn.execute(&self.statements.abandon, vec![run.clone(), run.clone()])
            .await?;
        if let Some(paused) = abandoned.resumes {
            conn.execute(&self.texts().unresume, vec![id(paused), run]).await?;
        }
        if let Some(scope) = &abandoned.scope {
            self.free_claim(conn, scope, abandoned.run).await?;
        }
        Ok(())
    }

    async fn free_claim(&self, conn: &mut Conn, scope: &Arc<str>, run: RunId) -> Result<(), Fault> {
        let values = vec![Value::shared(scope), id(run)];
        conn.execute(&self.statements.abandon_claim, values).await?;
        Ok(())
    }

    async fn take(&self, conn: &mut Conn, run: RunId, lease: Uuid) -> Result<Option<Lease>, Fault> {
        let lease_id = id(lease);
        let values = vec![
            id(run),
            self.writing.owner.clone(),
            lease_id.clone(),
            self.lease_length(),
        ];
        let mut taken = conn.first(&self.texts().take, values).await?;
        if taken.is_none() {
            // This process may have taken it, in a commit that was not acknowledged.
            taken = conn.first(&self.texts().taken, vec![id(run), lease_id]).await?;
        }
        let fence = taken.map(|row| row.int(0)).transpose()?;
        Ok(fence.map(|fence| Lease { run, fence }))
    }

    /// Whether the run, or a run above it, was cancelled, and this entry was not written before that. The worker may
    /// not have seen the cancellation yet.
    async fn is_cancelled_before(&self, conn: &mut Conn, run: RunId, entry: u64) -> Result<bool, Fault> {
        let values = vec![id(run), count(entry)];
        Ok(conn.first(&self.texts().cancelled_before, values).await?.is_some())
    }

    async fn append(&self, conn: &mut Conn, batch: &Append) -> Result<Held, Fault> {
        if !self.holds(conn, batch.lease, batch.run).await? {
            return Ok(Held::No);
        }
        if batch.announces()
            && let Some(first) = batch.entries.first()
            && self.is_cancelled_before(conn, batch.run, first.number).await?
        {
            return Ok(Held::ApprovalGone);
        }
        for action in &batch.asked {
            if !self.is_approved(conn, batch.lease.run, *action).await? {
                return Ok(Held::ApprovalGone);
            }
        }
        for action in &batch.actions {
            if !self.grant_is_valid(conn, action).await? {
                return Ok(Held::ApprovalGone);
            }
        }
        self.enter(conn, batch.run, &batch.entries).await?;
        self.update_usage(conn, &batch.spent).await?;
        let mut intents = Vec::new();
        for intent in &batch.intents {
            self.writing.intent(intent, &mut intents);
            let action = batch.actions.iter().find(|action| action.id == intent.id);
            self.audit_intent(intent, None, action.and_then(|action| action.grant));
        }
        self.statements.intend.run(conn, intents).await?;
        if let Some((decision, calls)) = &batch.ended {
            self.log_calls(conn, decision, calls).await?;
        }
        self.end_actions(conn, &batch.outcomes, false).await?;
        self.new_actions(conn, batch.run, &batch.actions).await?;
        for action in &batch.asked {
            self.begin_action(conn, *action).await?;
        }
        Ok(Held::Yes)
    }

    /// Updates the usage of runs while they run.
    pub(in super::super) async fn update_usage(&self, conn: &mut Conn, all: &[Spent]) -> Result<(), Fault> {
        for spent in all {
            let mut values = vec![id(spent.run), int(i64::from(spent.steps))];
            values.extend(tokens(spent.usage));
            conn.execute(&self.texts().update_usage, values).await?;
        }
        Ok(())
    }

    pub(in super::super) async fn enter(
        &self,
        conn: &mut Conn,
        run: RunId,
        entries: &[StoredEntry],
    ) -> Result<(), Fault> {
        let mut rows = Vec::with_capacity(entries.len() * 5);
        for entry in entries {
            rows.extend([
                id(run),
                count(entry.number),
                int(entry.at_us),
                int(entry.elapsed_us),
                Value::shared(&entry.body),
            ]);
        }
        self.texts().entry.run(conn, rows).await?;
        Ok(())
    }

    async fn finish(&self, conn: &mut Conn, run: &FinishedRun) -> Result<Held, Fault> {
        if !self.holds(conn, run.lease, run.run).await? {
            let values = vec![
                id(run.lease.run),
                int(run.lease.fence),
                self.writing.owner.clone(),
                id(run.run),
                Value::text(run.status.as_str()),
                int(run.completed_at),
            ];
            // This process may have finished it, in a commit that was not acknowledged.
            let finished = conn.first(&self.texts().finished, values).await?;
            return Ok(finished.map_or(Held::No, |_| Held::Yes));
        }
        self.enter(conn, run.run, &run.entries).await?;
        self.end_actions(conn, &run.outcomes, true).await?;
        conn.execute(&self.texts().finish, finished(run)?).await?;
        self.close_for(conn, &run.decision, id(run.run)).await?;
        self.close_requests(conn, run.run).await?;
        if run.run == run.lease.run {
            self.end_called(conn, run.run, run.completed_at).await?;
            self.doubt_actions(conn, run.run).await?;
        }
        if let Some(words) = &run.words {
            self.add_thread_line(conn, run.run, None, Line::ASSISTANT, words)
                .await?;
        }
        Ok(Held::Yes)
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
                let values = vec![Value::text(&run), doubts(&calls)?];
                conn.execute(&self.texts().doubt, values).await?;
            }
            conn.execute(&self.texts().close_called, vec![id(root)]).await?;
            self.doubt_started(conn, root).await?;
        }
        Ok(())
    }

    /// Marks calls of a root run and its child runs that were sent and have no result as in doubt.
    async fn doubt_started(&self, conn: &mut Conn, root: RunId) -> Result<(), Fault> {
        let calls = &self.texts().doubt_started;
        self.end_unrecorded(conn, calls, vec![id(root)], FailureCode::InDoubt)
            .await?;
        Ok(())
    }

    /// Ends a run that no process returned, based on its intents. Only workers read journals.
    async fn give_up(&self, conn: &mut Conn, root: RunId) -> Result<(), Fault> {
        let values = vec![id(root), self.writing.owner.clone()];
        // No row: a worker has taken it meanwhile, or it was given up in a commit that was not acknowledged.
        let Some(ended) = conn.first(&self.texts().give_up, values).await? else {
            return Ok(());
        };
        let started: Vec<_> = self.started_calls(conn, root).await?.into_values().flatten().collect();
        self.end_called(conn, root, ended.int(0)?).await?;
        // The root lists the calls of its child runs as well, so that the user finds them there.
        conn.execute(&self.texts().doubt, vec![id(root), doubts(&started)?])
            .await?;
        conn.execute(&self.texts().close_given_up, vec![id(root)]).await?;
        self.doubt_started(conn, root).await?;
        self.close_requests(conn, root).await?;
        self.doubt_actions(conn, root).await?;
        let (mut done, mut in_doubt) = (Vec::new(), Vec::new());
        each(conn, &self.texts().effects, vec![id(root)], |row| {
            let doubt = row.text(1)? == ActionStatus::InDoubt.as_str();
            if doubt { &mut in_doubt } else { &mut done }.push(row.text(0)?);
            Ok(())
        })
        .await?;
        let effects =
            thread::completed_effects(&done, &in_doubt).map_or_else(String::new, |effects| format!("\n\n{effects}"));
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
        let mut doubts: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (run, calls) in found {
            for (action, tool, arguments) in calls {
                let action_id = ActionId::parse(&action);
                let action_id =
                    action_id.ok_or_else(|| Fault::Refused(format!("{action:?} is not the id of a call").into()))?;
                let parameters = arguments.and_then(|json| serde_json::from_str(&json).ok());
                doubts.entry(run.clone()).or_default().push(InDoubtCall {
                    action_id,
                    tool,
                    parameters: parameters.unwrap_or_default(),
                });
            }
        }
        Ok(doubts)
    }

    async fn renew(&self, conn: &mut Conn, leases: &[Lease]) -> Result<Renewed, Fault> {
        let runs: BTreeSet<_> = leases.iter().map(|lease| lease.run).collect();
        let runs: Vec<_> = runs.into_iter().collect();
        let mut held = BTreeSet::new();
        let mut renewed = Renewed::default();
        for runs in many(&runs) {
            let mut values = vec![self.lease_length(), self.writing.owner.clone()];
            values.extend(runs.clone());
            each(conn, &self.texts().renew, values, |row| {
                held.insert((row.text(0)?, row.int(1)?));
                Ok(())
            })
            .await?;
            let mut cancelled = Vec::new();
            each(conn, &self.texts().cancelled, runs, |row| {
                cancelled.push(row.text(0)?);
                Ok(())
            })
            .await?;
            for run in cancelled {
                renewed.cancelled.push(run_id(&run)?);
            }
        }
        let lost = leases
            .iter()
            .filter(|lease| !held.contains(&(lease.run.to_string(), lease.fence)));
        renewed.lost = lost.copied().collect();
        Ok(renewed)
    }

    async fn cancel(&self, conn: &mut Conn, run: RunId, by: &str) -> Result<(), Fault> {
        // A concurrent suspension of this run, or of one above it, either sees the cancellation or is woken.
        if let Some(lock) = &self.texts().lock_root {
            conn.first(lock, vec![id(run)]).await?;
        }
        let entry = Entry::new(AuditKind::RunCancelled, run).decision(run).by(by);
        if conn.execute(&self.texts().cancel_queued, vec![id(run)]).await? == 1 {
            conn.execute(&self.texts().close_cancelled, vec![id(run)]).await?;
            // It has not started, so the run that it was to resume is unchanged.
            conn.execute(&self.texts().unresume_by, vec![id(run)]).await?;
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

    /// Deletes runs that ended this long ago, with their child runs and their lines in threads. True if it deleted any:
    /// there may be more, including the runs that these resumed.
    pub(in super::super) async fn prune_runs(&self, conn: &mut Conn, kept: Duration) -> Result<bool, Fault> {
        let kept = i64::try_from(kept.as_micros()).unwrap_or(i64::MAX / 2);
        let mut roots = Vec::new();
        each(conn, &self.texts().prunable, vec![int(kept)], |row| {
            roots.push(Value::text(&row.text(0)?));
            Ok(())
        })
        .await?;
        let Some(last) = roots.last().cloned() else {
            return Ok(false);
        };
        roots.resize(MANY, last);
        let mut snapshots = Vec::new();
        each(conn, &self.texts().prunable_snapshots, roots.clone(), |row| {
            snapshots.push(Value::text(&row.text(0)?));
            Ok(())
        })
        .await?;
        conn.execute(&self.texts().prune_entries, roots.clone()).await?;
        conn.execute(&self.texts().prune_actions, roots.clone()).await?;
        conn.execute(&self.texts().prune_messages, roots.clone()).await?;
        conn.execute(&self.texts().prune, roots).await?;
        for snapshot in snapshots {
            // The row is locked before it is read, so that the second statement sees a run created meanwhile. If a run
            // is being created with this snapshot now, the snapshot is deleted together with that run later.
            if let Some(lock) = &self.texts().lock_snapshot
                && conn.first(lock, vec![snapshot.clone()]).await?.is_none()
            {
                continue;
            }
            conn.execute(&self.texts().prune_snapshot, vec![snapshot]).await?;
        }
        Ok(true)
    }

    /// Deletes threads that have been inactive for this long and have no runs left; their lines were deleted with their
    /// runs. True if there may be more.
    pub(in super::super) async fn prune_threads(&self, conn: &mut Conn, kept: Duration) -> Result<bool, Fault> {
        let kept = i64::try_from(kept.as_micros()).unwrap_or(i64::MAX / 2);
        let mut threads = Vec::new();
        each(conn, &self.texts().prunable_threads, vec![int(kept)], |row| {
            threads.push(Value::text(&row.text(0)?));
            Ok(())
        })
        .await?;
        let more = threads.len() == MANY;
        for thread in threads {
            conn.execute(&self.texts().prune_thread, vec![thread]).await?;
        }
        Ok(more)
    }

    async fn define(&self, conn: &mut Conn, new: &NewVersion, request: Uuid) -> Result<PutVersion, Fault> {
        let key = [
            Value::text(new.tenant.as_str()),
            Value::text(new.project.as_str()),
            Value::shared(&new.agent),
        ];
        loop {
            let values = key.iter().cloned().chain([id(request)]).collect();
            let current = conn.first(&self.texts().defined, values).await?;
            let mut version = 0;
            if let Some(row) = current {
                version = row.int(0)?;
                if row.text(2)? == request.to_string() {
                    // Made by this request, in a commit that was not acknowledged; later versions may exist.
                    return Ok(PutVersion::Made(version));
                }
                if new.expected.is_none_or(|expected| expected == version) && row.text(1)? == *new.hash {
                    return Ok(PutVersion::Same(version));
                }
            }
            if new.expected.is_some_and(|expected| expected != version) {
                return Ok(PutVersion::Conflict(version));
            }
            if let Some(beside) = &new.beside
                && self.numbers(conn, &new.tenant, &new.project).await? != **beside
            {
                return Ok(PutVersion::Changed);
            }
            let mut values = key.to_vec();
            values.extend([
                int(version + 1),
                id(request),
                Value::shared(&new.hash),
                Value::shared(&new.definition),
                Value::shared(&new.author),
                int(new.created_at),
            ]);
            if conn.execute(&self.texts().define, values).await? == 1 {
                let entry = Entry::new(AuditKind::DefinitionPut, request)
                    .for_(Whose::new(new.tenant.as_str(), &new.author))
                    .with("project", new.project.as_str())
                    .with("agent", &*new.agent)
                    .with("version", version + 1)
                    .with("hash", &*new.hash);
                self.audit(entry);
                return Ok(PutVersion::Made(version + 1));
            }
            // Another request made that version meanwhile; the next round sees it.
        }
    }

    /// The current version of every agent of a project, stable while the project is locked.
    async fn numbers(
        &self,
        conn: &mut Conn,
        tenant: &TenantId,
        project: &ProjectId,
    ) -> Result<BTreeMap<Arc<str>, i64>, Fault> {
        let values = vec![Value::text(tenant.as_str()), Value::text(project.as_str())];
        let mut numbers = BTreeMap::new();
        each(conn, &CURRENT_NUMBERS.into(), values, |row| {
            numbers.insert(row.text(0)?.into(), row.int(1)?);
            Ok(())
        })
        .await?;
        Ok(numbers)
    }

    fn lease_length(&self) -> Value {
        int(i64::try_from(self.run_lease.as_micros()).unwrap_or(i64::MAX / 2))
    }
}

/// The values of a run's end.
fn finished(run: &FinishedRun) -> Result<Vec<Value>, Fault> {
    let text = |text: &Option<Arc<str>>| text.as_ref().map_or(Value::Text(None), Value::shared);
    let reason = |reason: Option<crate::domain::agent_run::StopReason>| {
        reason.map_or(Value::Text(None), |reason| Value::text(reason.as_str()))
    };
    let mut values = vec![
        id(run.run),
        Value::text(run.status.as_str()),
        int(run.completed_at),
        text(&run.summary),
        run.output
            .as_ref()
            .map_or(Value::Text(None), |output| Value::text(output.get())),
        text(&run.error_message),
        reason(run.stop_reason),
        reason(run.recovered_from),
        doubts(&run.in_doubt)?,
        int(i64::from(run.steps)),
    ];
    values.extend(tokens(run.usage));
    Ok(values)
}

/// The values of the four counts of tokens.
fn tokens(usage: Usage) -> [Value; 4] {
    let Usage {
        input_tokens,
        output_tokens,
        thought_tokens,
        cached_tokens,
    } = usage;
    [input_tokens, output_tokens, thought_tokens, cached_tokens].map(count)
}

/// In-doubt calls as stored in a row.
pub(in super::super) fn doubts(calls: &[InDoubtCall]) -> Result<Value, Fault> {
    if calls.is_empty() {
        return Ok(Value::Text(None));
    }
    let json = serde_json::to_string(calls);
    Ok(Value::text(
        &json.map_err(|error| Fault::Refused(error.to_string().into()))?,
    ))
}

/// Runs in groups of [`MANY`]; the last group is filled up with its last run.
fn many(runs: &[RunId]) -> impl Iterator<Item = Vec<Value>> {
    runs.chunks(MANY).map(|runs| {
        let mut values: Vec<_> = runs.iter().map(id).collect();
        if let Some(last) = values.last().cloned() {
            values.resize(MANY, last);
        }
        values
    })
}

/// Passes every row to `take`.
async fn each(
    conn: &mut Conn,
    sql: &Sql,
    values: Vec<Value>,
    mut take: impl FnMut(&Row) -> Result<(), sqlx::Error> + Send,
) -> Result<(), Fault> {
    conn.fetch(sql, values, &mut |row| {
        take(&row)?;
        Ok(ControlFlow::Continue(()))
    })
    .await?;
    Ok(())
}

fn run_id(text: &str) -> Result<RunId, Fault> {
    RunId::parse(text).ok_or_else(|| Fault::Refused(format!("{text:?} is not the id of a run").into()))
}

fn status(text: &str) -> Result<RunStatus, Fault> {
    RunStatus::parse(text).ok_or_else(|| Fault::Refused(format!("{text:?} is not the status of a run").into()))
}

pub(in super::super) fn id(id: impl std::fmt::Display) -> Value {
    Value::text(&id.to_string())
}

pub(in super::super) fn int(int: i64) -> Value {
    Value::Int(Some(int))
}

fn count(count: u64) -> Value {
    int(i64::try_from(count).unwrap_or(i64::MAX))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::value::RawValue;

    use super::super::super::audit::{Signer, Trail};
    use super::super::super::batch::Attempt;
    use super::super::super::connect::Target;
    use super::super::super::migrate;
    use super::super::super::op::Ticket;
    use super::super::super::rows::Writing;
    use super::super::super::statements::Statements;
    use super::*;
    use crate::domain::ids::{ConversationId, InstanceId, ProjectId, TenantId, UserId};
    use crate::ports::records::OpenDecision;
    use crate::ports::runs::Snapshot;

    fn queued_run() -> NewRun {
        let id = RunId::new();
        let json = || RawValue::from_string("{}".to_owned()).unwrap().into();
        NewRun {
            id,
            project: ProjectId::parse("p").unwrap(),
            agent: "a".into(),
            version: None,
            decision: OpenDecision {
                id: id.decision(),
                tenant: TenantId::parse("t").unwrap(),
                surface: "agent",
                user: UserId::parse("ann").unwrap(),
                conversation: ConversationId::parse("c").unwrap(),
                message: "".into(),
                definition_hash: "".into(),
                request_id: "".into(),
                created_at: 0,
            },
            parent: None,
            resumes: None,
            settled: None,
            snapshot: Snapshot {
                hash: "h".into(),
                text: "{}".into(),
            },
            input: json(),
            settings: json(),
            queued: true,
            claim: None,
            thread: None,
        }
    }

    /// DESIGN.md 7: on SQLite, ops that cannot be reconstructed wait for the disk, and others do not. An op that is
    /// repeated, because its commit was not acknowledged, returns the same answer.
    #[tokio::test]
    async fn on_sqlite_an_op_may_be_done_twice_and_waits_for_the_disk_where_it_must() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("t.db").display());
        let target = Target::parse(&url, None).unwrap();
        target.create().unwrap();
        let mut conn = target.writer().await.unwrap();
        migrate::migrate(&mut conn, Duration::ZERO).await.unwrap();
        let batch = Batch {
            statements: &Statements::new(conn.dialect()),
            writing: &Writing::new(InstanceId::new(), ContentMode::Full),
            lease: Duration::from_secs(10),
            run_lease: Duration::from_secs(10),
            runs_kept: None,
            signer: Some(&Signer::new("a key")),
            trail: Trail::default(),
        };
        let run = queued_run();
        let lease = Lease { run: run.id, fence: 1 };
        let entry = StoredEntry {
            number: 1,
            at_us: 0,
            elapsed_us: 0,
            body: "{}".into(),
        };
        let version = NewVersion {
            tenant: run.decision.tenant.clone(),
            project: run.project.clone(),
            agent: "a".into(),
            hash: "h".into(),
            definition: "{}".into(),
            author: "ann".into(),
            created_at: 0,
            expected: None,
            beside: None,
        };
        let another = NewVersion {
            hash: "another".into(),
            ..version.clone()
        };
        let first = Uuid::now_v7();
        let append = Append {
            lease,
            run: run.id,
            entries: vec![entry],
            intents: Vec::new(),
            asked: Vec::new(),
            actions: Vec::new(),
            outcomes: Vec::new(),
            ended: None,
            spent: Vec::new(),
        };
        for (op, answer, waits) in [
            (RunOp::Create(run.clone()), "Created(New(None))".to_owned(), true),
            (
                RunOp::Take(run.id, Uuid::now_v7()),
                format!("Taken(Some({lease:?}))"),
                false,
            ),
            (RunOp::Append(append), "Held(Yes)".to_owned(), false),
            (
                RunOp::Renew(vec![lease]),
                format!("Renewed({:?})", Renewed::default()),
                false,
            ),
            (RunOp::Cancel(run.id, "ann".into()), "Written".to_owned(), true),
            (RunOp::Release(vec![lease]), "Written".to_owned(), false),
            (RunOp::Define(version.clone(), first), "Put(Made(1))".to_owned(), true),
            // The same content from another request is not a repetition.
            (
                RunOp::Define(version.clone(), Uuid::now_v7()),
                "Put(Same(1))".to_owned(),
                true,
            ),
            (RunOp::Define(another, Uuid::now_v7()), "Put(Made(2))".to_owned(), true),
            // Also if another request made the next version before the repetition.
            (RunOp::Define(version, first), "Put(Made(1))".to_owned(), true),
        ] {
            let ticket = [Ticket::silent(Op::Run(Box::new(op)))];
            for _ in 0..2 {
                match batch.run(&mut conn, &ticket).await {
                    Attempt::Committed(done) => assert_eq!(format!("{done:?}"), format!("[Run({answer})]")),
                    Attempt::Failed(fault) | Attempt::Uncertain(fault) => panic!("{fault:?}"),
                }
            }
            let level = conn.first(&"PRAGMA synchronous".into(), vec![]).await.unwrap().unwrap();
            // 2 is FULL, 1 is NORMAL.
            assert_eq!(level.int(0).unwrap(), if waits { 2 } else { 1 }, "{answer}");
        }
    }
}

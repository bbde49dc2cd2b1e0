//! Turns a commit into rows. Facts of a process about its own decisions become rows of the batch's few large
//! statements. A holder's commit is written by itself, since it depends on the lease.

use super::audit::Entry;
use super::db::{Conn, Value, values};
use super::decisions::{CALL, CALLS, DECISION, DECISIONS};
use super::error::Fault;
use super::queue::Batch;
use crate::domain::ids::{ActionId, GrantId, RunId};
use crate::domain::thread::MessageRole;
use crate::domain::tool::FailureCode;
use crate::ports::commit::{Commit, Committed, Fact, Writer};
use crate::ports::records::{ClosedCall, ClosedDecision, OpenCall, OpenDecision};
use crate::ports::runs::Lease;

/// Values of rows, by statement, of all decisions that this process owns.
#[derive(Default)]
pub(super) struct Rows {
    opens: Vec<Value>,
    intents: Vec<Value>,
    closes: Vec<Value>,
    calls: Vec<Value>,
}

impl Batch<'_> {
    /// Adds the rows of a commit about decisions of this process.
    pub(super) fn add_rows(&self, commit: &Commit, rows: &mut Rows) -> Result<(), Fault> {
        if commit.writer != Writer::Process {
            return Ok(());
        }
        let mut opened = None;
        for fact in &commit.facts {
            match fact {
                Fact::Opened(decision) => {
                    rows.opens.extend(DECISION.begin(decision, self.writing));
                    opened = Some(decision);
                }
                Fact::Intended(intent) => {
                    rows.intents.extend(CALL.begin(intent, self.writing));
                    self.audit_intent(intent, opened, None);
                }
                Fact::Closed(decision) => {
                    DECISIONS.end(decision, self.writing, &mut rows.closes);
                    for call in &decision.calls {
                        CALLS.end(call, self.writing, &mut rows.calls);
                        self.audit_call(call, &decision.open);
                    }
                }
                Fact::Begun(_)
                | Fact::Action(_)
                | Fact::Outcome(_)
                | Fact::Called(..)
                | Fact::Spent(_)
                | Fact::Waits(_)
                | Fact::Ended(..)
                | Fact::Said(_)
                | Fact::Planned(..)
                | Fact::Worked(..) => return Err(Fault::Refused("a fact about a run needs its lease".into())),
            }
        }
        Ok(())
    }

    /// Writes the rows of all decisions of this process.
    pub(super) async fn write_rows(&self, conn: &mut Conn, rows: Rows) -> Result<(), Fault> {
        DECISIONS.write_begun(conn, rows.opens).await?;
        CALLS.write_begun(conn, rows.intents).await?;
        DECISIONS.write_ended(conn, rows.closes).await?;
        CALLS.write_ended(conn, rows.calls).await
    }

    /// Writes a holder's commit, unless its lease or an approval is gone.
    pub(super) async fn write_commit(
        &self,
        conn: &mut Conn,
        lease: Lease,
        run: RunId,
        commit: &Commit,
    ) -> Result<Committed, Fault> {
        let Some(held) = self.holds(conn, lease, run).await? else {
            return Ok(match self.is_written(conn, lease, run, commit).await? {
                true => Committed::Written,
                false => Committed::LeaseLost,
            });
        };
        if !self.may_begin(conn, lease.run, run, commit).await? {
            return Ok(Committed::ApprovalGone);
        }
        self.enter(conn, lease.run, run, held.last, &commit.entries).await?;
        if commit.progresses && held.counts_lost {
            // No process counts as lost.
            conn.execute("UPDATE agent_run SET takes = 0 WHERE id = $1", values![lease.run])
                .await?;
        }
        self.intend(conn, &commit.facts).await?;
        let has_ended = commit.end().is_some();
        let mut committed = Committed::Written;
        for fact in &commit.facts {
            match fact {
                // Written above, in one statement.
                Fact::Intended(_) => {}
                Fact::Opened(decision) => {
                    DECISIONS.open(conn, decision, &self.writing.owned_by(run)).await?;
                }
                Fact::Spent(spent) => self.update_usage(conn, spent).await?,
                Fact::Called(calls) => self.log_ended(conn, lease.run, calls).await?,
                Fact::Outcome(outcome) => self.end_action(conn, outcome, has_ended).await?,
                Fact::Action(action) => self.new_action(conn, run, action).await?,
                Fact::Begun(action) => self.begin_action(conn, *action).await?,
                Fact::Waits(wait) => {
                    if !self.wait_for(conn, lease, run, wait).await? {
                        committed = Committed::Answered;
                    }
                }
                Fact::Closed(decision) => self.close_for(conn, lease, run, decision).await?,
                Fact::Ended(end, acted) => self.end_run(conn, lease, run, end, *acted).await?,
                Fact::Said(words) => {
                    self.add_thread_line(conn, run, None, MessageRole::Assistant.as_str(), words)
                        .await?
                }
                Fact::Planned(session, planned) => {
                    let at = commit.end().and_then(|end| end.completed_at);
                    self.plan(conn, *session, run, planned, at).await?;
                }
                Fact::Worked(session, worked) => {
                    let end = commit.end().and_then(|end| end.completed_at);
                    let at = end.or_else(|| commit.entries.last().map(|entry| entry.at_us));
                    self.work(conn, *session, lease.run, worked, at).await?;
                }
            }
        }
        Ok(committed)
    }

    /// Whether this process has written a commit that ended its right to write, without an acknowledgement.
    async fn is_written(&self, conn: &mut Conn, lease: Lease, run: RunId, commit: &Commit) -> Result<bool, Fault> {
        match (commit.end(), commit.wait()) {
            (Some(end), _) => self.has_ended(conn, lease, run, end).await,
            (None, Some(_)) => self.is_waiting(conn, run).await,
            (None, None) => Ok(false),
        }
    }

    /// Whether all calls that the commit announces may begin: the run is not cancelled, or they clean up after it, and
    /// every approval and grant is valid.
    async fn may_begin(&self, conn: &mut Conn, root: RunId, run: RunId, commit: &Commit) -> Result<bool, Fault> {
        if commit.announces()
            && !commit.cleans_up
            && let Some(first) = commit.entries.first()
            && self.is_cancelled_before(conn, run, first.number).await?
        {
            return Ok(false);
        }
        for fact in &commit.facts {
            if let Fact::Begun(action) = fact
                && !self.is_approved(conn, root, *action).await?
            {
                return Ok(false);
            }
            if let Fact::Action(action) = fact
                && !self.grant_is_valid(conn, action).await?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the intents among these facts.
    async fn intend(&self, conn: &mut Conn, facts: &[Fact]) -> Result<(), Fault> {
        let mut rows = Vec::new();
        for fact in facts {
            if let Fact::Intended(intent) = fact {
                rows.extend(CALL.begin(intent, self.writing));
                self.audit_intent(intent, None, grant_of(facts, intent.id));
            }
        }
        Ok(CALLS.write_begun(conn, rows).await?)
    }

    /// Adds the intent of a side effect to the audit log.
    fn audit_intent(&self, intent: &OpenCall, decision: Option<&OpenDecision>, grant: Option<GrantId>) {
        if let Some(entry) = Entry::intended(intent, decision, &self.writing.content) {
            let grant = grant.map(|grant| grant.to_string());
            self.audit(entry.with_any("grant_id", grant.as_deref()));
        }
    }

    /// Adds the outcome of a call to the audit log; most calls have no side effect and no entry.
    fn audit_call(&self, call: &ClosedCall, decision: &OpenDecision) {
        if let Some(entry) = Entry::ended(call, decision) {
            self.audit(entry);
        }
    }

    /// Closes a decision that a run owns, with its calls.
    async fn close_for(
        &self,
        conn: &mut Conn,
        lease: Lease,
        run: RunId,
        decision: &ClosedDecision,
    ) -> Result<(), Fault> {
        let mut row = Vec::new();
        DECISIONS.end(decision, &self.writing.owned_by(run), &mut row);
        DECISIONS.write_ended(conn, row).await?;
        let acts = decision.calls.iter().any(|call| call.open.has_side_effect());
        let settled = self.settled_among(conn, lease.run, acts).await?;
        let calls = decision.calls.iter().filter(|call| !settled.contains(&call.open.id));
        for call in calls.clone() {
            self.audit_call(call, &decision.open);
        }
        self.log_calls(conn, calls).await
    }

    /// Writes the outcomes of calls whose decision stays open.
    async fn log_ended(&self, conn: &mut Conn, root: RunId, calls: &[ClosedCall]) -> Result<(), Fault> {
        let is_in_doubt = |call: &ClosedCall| {
            let failure = call.outcome.as_ref().err();
            failure.is_some_and(|failure| failure.code == FailureCode::InDoubt)
        };
        let settled = self.settled_among(conn, root, calls.iter().any(is_in_doubt)).await?;
        let calls = calls.iter().filter(|call| !settled.contains(&call.open.id));
        self.log_calls(conn, calls).await
    }

    /// Writes the outcomes of calls, each over its intent if there is one.
    async fn log_calls<'c>(
        &self,
        conn: &mut Conn,
        calls: impl Iterator<Item = &'c ClosedCall> + Send,
    ) -> Result<(), Fault> {
        let mut rows = Vec::new();
        for call in calls {
            CALLS.end(call, self.writing, &mut rows);
        }
        CALLS.write_ended(conn, rows).await
    }
}

/// The grant under which a call starts without an approval.
fn grant_of(facts: &[Fact], call: ActionId) -> Option<GrantId> {
    facts.iter().find_map(|fact| {
        if let Fact::Action(action) = fact
            && action.id == call
        {
            action.grant
        } else {
            None
        }
    })
}

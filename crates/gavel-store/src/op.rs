//! The ops of the writer, and the tickets of callers that wait for them.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::queue::Cleanup;
use super::rollup::Quarter;
use crate::api::exports::ExportManifest;
use crate::domain::ids::{PlanningSessionId, ProjectId, RunId, TenantId};
use crate::ports::actions::{Resolve, Revoke, Settle};
use crate::ports::claims::{Claim, Claimant};
use crate::ports::commit::{Commit, Fact, Writer};
use crate::ports::definitions::NewVersion;
use crate::ports::planning::{PlanEdit, SessionCancel};
use crate::ports::records::{Erasure, RecordError};
use crate::ports::runs::{Lease, NewRun, Reopen, ReopenedFor};
use crate::ports::sessions::Session;
use gavel_upstream::handover::{Handover, NotHandedOver};

/// One op. Repeating it does no harm and returns the same answer, since a commit may succeed without acknowledgement. A
/// `Uuid` is an id of the request, the lease or the version, which identifies such a repetition.
#[derive(Debug)]
pub(super) enum Op {
    Commit(Arc<Commit>),
    Claim(Claim, Claimant),
    Cleanup(Cleanup),
    /// Renews the lease of this process.
    RenewLease,
    /// Closes open records of dead processes.
    Sweep,
    /// Deletes expired rows.
    Prune,
    /// Takes quarters that changed, to count them.
    TakeQuarters(Uuid),
    /// Writes what was counted of a quarter that this count still has.
    PutQuarter(Uuid, Box<Quarter>),
    /// Ends the lease of this process.
    EndLease,
    BeginLogin(Session),
    /// A login was used at this time.
    NoteLogin(Arc<str>, i64),
    EndLogin(Arc<str>),
    CreateRun(Box<NewRun>),
    /// Reopens a paused run.
    ReopenRun(Box<Reopen>, Uuid),
    TakeRun(RunId, Uuid),
    RenewRuns(Vec<Lease>),
    /// Fails runs that were taken too often without being returned.
    GiveUpRuns(Vec<RunId>),
    ReleaseRuns(Vec<Lease>),
    /// The run, and the name of the caller who cancels it.
    CancelRun(RunId, Arc<str>),
    Resolve(Resolve),
    Settle(Settle),
    /// Expires due approval requests of these outermost runs.
    ExpireApprovals(Vec<RunId>),
    Revoke(Revoke),
    /// What an export of a tenant has taken, and who took it.
    EnterExport(TenantId, Arc<str>, Box<ExportManifest>),
    Erase(Box<Erasure>),
    Define(NewVersion, Uuid),
    EditPlan(Box<PlanEdit>),
    CancelSession(SessionCancel),
    /// Ends or moves on those of these sessions that are due at this time, or have waited for a confirmation since the
    /// other.
    SweepSessions(Vec<PlanningSessionId>, i64, i64),
}

/// What kind of op it is.
pub(super) struct Nature {
    /// In traces.
    pub(super) name: &'static str,
    /// Whether it must be written even if the caller gave up: true if it records something that happened.
    pub(super) must_finish: bool,
    /// Whether it must survive a power loss: acknowledged changes must.
    pub(super) survives_power_loss: bool,
}

/// What a transaction must lock for its ops; only on PostgreSQL.
#[derive(Default)]
pub(super) struct Locks<'a> {
    pub(super) runs: BTreeSet<RunId>,
    /// Runs whose outermost run must be found first.
    pub(super) below: BTreeSet<RunId>,
    pub(super) sessions: BTreeSet<PlanningSessionId>,
    /// Planning sessions whose run must be found first.
    pub(super) runs_of: BTreeSet<PlanningSessionId>,
    /// Whether a run begins to work for a planning session, or continues.
    pub(super) starts_session: bool,
    /// Projects whose definitions an op depends on.
    pub(super) projects: BTreeSet<(&'a TenantId, &'a ProjectId)>,
}

impl Op {
    pub(super) fn nature(&self) -> Nature {
        let (name, must_finish, survives_power_loss) = match self {
            Self::Commit(commit) => {
                let survives = commit.facts.iter().any(survives_power_loss);
                (name(commit), records_the_past(commit), survives)
            }
            // The work that a key is claimed for is written after the claim.
            Self::Claim(..) => ("claim", false, false),
            // Recovery's assumptions about the outcomes of intents must survive: the audit log has them.
            Self::Cleanup(Cleanup::Abandon(..)) => ("abandon", true, true),
            Self::Cleanup(Cleanup::AbandonRun(..)) => ("abandon run", true, true),
            Self::Cleanup(Cleanup::CloseLost(_)) => ("close lost", true, true),
            Self::Cleanup(Cleanup::MarkUnanswered(_)) => ("mark unanswered", true, false),
            Self::RenewLease => ("renew lease", false, false),
            Self::Sweep => ("recover", false, true),
            Self::Prune => ("prune", false, false),
            Self::TakeQuarters(_) => ("take quarters", false, false),
            Self::PutQuarter(..) => ("put quarter", false, false),
            Self::EndLease => ("end lease", false, false),
            Self::BeginLogin(_) => ("begin session", false, false),
            Self::NoteLogin(..) => ("note session", false, false),
            Self::EndLogin(_) => ("end session", false, false),
            Self::CreateRun(_) => ("create run", false, true),
            Self::ReopenRun(..) => ("reopen run", false, true),
            Self::TakeRun(..) => ("take run", false, false),
            Self::RenewRuns(_) => ("renew runs", false, false),
            Self::GiveUpRuns(_) => ("give up runs", false, true),
            Self::ReleaseRuns(_) => ("release runs", false, false),
            Self::CancelRun(..) => ("cancel run", false, true),
            Self::Resolve(_) => ("resolve approval", false, true),
            Self::Settle(_) => ("settle action", false, true),
            Self::ExpireApprovals(_) => ("expire approvals", false, true),
            Self::Revoke(_) => ("revoke grant", false, true),
            // A whole one ends only once it is entered; the rows of a broken one have left already.
            Self::EnterExport(.., taken) => ("enter export", !taken.complete, true),
            Self::Erase(_) => ("erase", false, true),
            Self::Define(..) => ("put definition", false, true),
            Self::EditPlan(_) => ("edit plan", false, true),
            Self::CancelSession(_) => ("cancel session", false, true),
            Self::SweepSessions(..) => ("sweep sessions", false, true),
        };
        Nature {
            name,
            must_finish,
            survives_power_loss,
        }
    }

    /// Whether it has a transaction to itself: it waits for all that change a log, which may wait for what others lock.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self, Self::TakeQuarters(_))
    }

    /// Whether it records the outcome of finished work. Its deadline is longer.
    pub(super) fn closes(&self) -> bool {
        self.nature().must_finish || matches!(self, Self::Commit(commit) if commit.closed().is_some())
    }

    /// What follows if it was written, or may have been, without acknowledgement.
    pub(super) fn outcome_unknown(&self) -> Option<Cleanup> {
        match self {
            Self::Commit(commit) if commit.writer == Writer::Process => {
                commit.facts.iter().find_map(|fact| match fact {
                    Fact::Opened(decision) => Some(Cleanup::Abandon(decision.id, None)),
                    // An opened decision may have had effects, so its recorded outcome is kept in any case.
                    Fact::Closed(decision) if !decision.opened => Some(Cleanup::MarkUnanswered(decision.open.id)),
                    _ => None,
                })
            }
            Self::Claim(claim, Claimant::Decision(decision)) => {
                Some(Cleanup::Abandon(decision.id, Some(Arc::clone(&claim.scope))))
            }
            // A child run belongs to the calling run, and so to the worker that takes that run.
            Self::CreateRun(run) if run.origin.parent().is_none() => {
                let claim = run.claim.as_ref();
                Some(Cleanup::AbandonRun(run.id, claim.map(|claim| Arc::clone(&claim.scope))))
            }
            // A lease expires by itself; everything else is as its caller asked.
            _ => None,
        }
    }

    /// Adds the rows that must be locked while the op executes.
    pub(super) fn locks<'a>(&'a self, locks: &mut Locks<'a>) {
        match self {
            Self::Commit(commit) => {
                let Writer::Holder { lease, .. } = commit.writer else {
                    return;
                };
                locks.runs.insert(lease.run);
                locks.sessions.extend(commit.facts.iter().filter_map(|fact| match fact {
                    Fact::Planned(session, _) | Fact::Worked(session, _) => Some(*session),
                    _ => None,
                }));
            }
            Self::CreateRun(run) => {
                locks.runs.extend(run.origin.parent().map(|parent| parent.lease.run));
                locks.sessions.extend(run.origin.session().map(|place| place.session));
                locks.starts_session |= run.origin.session().is_some();
            }
            Self::ReopenRun(run, _) => {
                locks.runs.insert(match run.place {
                    ReopenedFor::Parent(lease) => lease.run,
                    ReopenedFor::Caller { .. } => run.run,
                });
                locks.sessions.extend(run.session);
                locks.starts_session |= run.session.is_some();
            }
            Self::Cleanup(Cleanup::AbandonRun(run, _)) => locks.runs.extend([run]),
            Self::CancelRun(run, _) => locks.below.extend([run]),
            Self::Resolve(resolve) => locks.runs.extend([resolve.root]),
            Self::Settle(settle) => locks.runs.extend([settle.root]),
            Self::ExpireApprovals(roots) | Self::GiveUpRuns(roots) => locks.runs.extend(roots),
            Self::RenewRuns(leases) | Self::ReleaseRuns(leases) => {
                locks.runs.extend(leases.iter().map(|lease| lease.run));
            }
            Self::Define(version, _) => locks.projects.extend([(&version.tenant, &version.project)]),
            Self::EditPlan(edit) => locks.sessions.extend([edit.session]),
            Self::CancelSession(cancel) => {
                locks.sessions.extend([cancel.session]);
                locks.runs_of.extend([cancel.session]);
            }
            Self::SweepSessions(sessions, ..) => {
                locks.sessions.extend(sessions);
                locks.runs_of.extend(sessions);
            }
            // It never waits for a lock: if the row is locked, a worker looks for the run again later.
            Self::TakeRun(..) => {}
            Self::Claim(..) | Self::Cleanup(_) | Self::Revoke(_) | Self::EnterExport(..) | Self::Erase(_) => {}
            Self::RenewLease | Self::Sweep | Self::Prune | Self::EndLease => {}
            // It locks more than rows, and has its transaction to itself.
            Self::TakeQuarters(_) | Self::PutQuarter(..) => {}
            Self::BeginLogin(_) | Self::NoteLogin(..) | Self::EndLogin(_) => {}
        }
    }
}

/// The name of a commit in traces, by its most telling fact.
fn name(commit: &Commit) -> &'static str {
    match (commit.writer, commit.closed(), commit.facts.first()) {
        (Writer::Process, Some(_), _) => "close",
        (Writer::Process, None, Some(Fact::Opened(_))) => "open",
        (Writer::Process, None, _) => "intend",
        (Writer::Holder { .. }, Some(_), _) => "finish run",
        (Writer::Holder { .. }, None, _) if commit.wait().is_some() => "suspend run",
        (Writer::Holder { .. }, None, _) => "append run",
    }
}

/// Whether it records what has already happened, so that it must be written even if the caller gave up. A commit that
/// announces calls does not: without its acknowledgement nothing is sent. Neither does a wait.
fn records_the_past(commit: &Commit) -> bool {
    match commit.writer {
        Writer::Process => commit.closed().is_some_and(|decision| decision.opened),
        Writer::Holder { .. } => !commit.announces() && commit.wait().is_none(),
    }
}

/// Whether a fact must survive a power loss. Intents must, since their calls follow, and so must everything that was
/// acknowledged or that the audit log has. The rest of a journal's tail need not: without it the model is asked again,
/// and a call that was sent is in doubt, or is repeated where that does no harm.
fn survives_power_loss(fact: &Fact) -> bool {
    match fact {
        Fact::Intended(_)
        | Fact::Begun(_)
        | Fact::Outcome(_)
        | Fact::Waits(_)
        | Fact::Ended(..)
        | Fact::Planned(..) => true,
        Fact::Closed(decision) => decision
            .calls
            .iter()
            .any(|call| call.open.has_side_effect() && call.started_at.is_some()),
        // The plan is lost with the entries that changed it, and only with them. Versions and ends are acknowledged.
        Fact::Worked(_, worked) => worked.changed.is_some() || worked.ended.is_some(),
        Fact::Opened(_) | Fact::Action(_) | Fact::Called(..) | Fact::Spent(_) | Fact::Said(_) => false,
    }
}

/// The answer to an op: what the port returns.
pub(super) trait Answer: Any + Debug + Send {}

impl<T: Any + Debug + Send> Answer for T {}

pub(super) type Done = Box<dyn Answer>;

/// Numbers of rows that recovery closed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Recovered {
    pub(super) decisions: u64,
    pub(super) calls: u64,
}

/// An op in the queue.
pub(super) struct Ticket {
    pub(super) op: Op,
    pub(super) answer: oneshot::Sender<Result<Done, RecordError>>,
    /// Whether a COMMIT that includes it may have been sent. An op that was reported as unwritten is never committed.
    pub(super) handover: Arc<Handover>,
    /// True once a COMMIT that includes it was attempted with an unknown result.
    pub(super) uncertain: bool,
}

impl Ticket {
    /// A ticket without a waiting caller.
    pub(super) fn silent(op: Op) -> Self {
        Self {
            op,
            answer: oneshot::channel().0,
            handover: Arc::default(),
            uncertain: false,
        }
    }

    /// Marks that a COMMIT is about to be sent; false if the op must not be committed.
    pub(super) fn commit(&self) -> bool {
        self.handover.hand_over() != Err(NotHandedOver::GivenUp) || self.op.nature().must_finish
    }

    /// Whether a COMMIT that includes it was sent, with an unknown result.
    pub(super) fn is_committing(&self) -> bool {
        self.handover.is_handed_over()
    }

    /// Marks that the transaction was not committed.
    pub(super) fn not_committed(&self) {
        if !self.uncertain {
            self.handover.take_back();
        }
    }

    /// Whether it still needs to be written.
    pub(super) fn wanted(&self) -> bool {
        self.op.nature().must_finish || !self.answer.is_closed()
    }
}

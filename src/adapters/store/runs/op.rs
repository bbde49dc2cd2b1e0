//! The ops of runs, definitions and planning sessions.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use super::super::planning::op::PlanningOp;
use crate::domain::ids::{PlanningSessionId, RunId};
use crate::ports::actions::{Resolve, Resolved, Revoke, Settle, SettleDone};
use crate::ports::definitions::{NewVersion, PutVersion};
use crate::ports::planning::Moved;
use crate::ports::runs::{Created, Lease, NewRun, Renewed, Reopen, Reopened, ReopenedFor};

/// One op. As with every op, repeating it does no harm and returns the same answer.
#[derive(Debug)]
pub(in super::super) enum RunOp {
    Create(Box<NewRun>),
    /// Reopens a paused run, with an id of the request.
    Reopen(Box<Reopen>, Uuid),
    /// The creation of the run was not acknowledged, so no worker starts it: ends it, and frees its claim.
    Abandon(Abandoned),
    /// With an id of the lease, which identifies a repetition after an unacknowledged commit.
    Take(RunId, Uuid),
    Resolve(Resolve),
    Settle(Settle),
    /// Expires due approval requests of these outermost runs.
    Expire(Vec<RunId>),
    Revoke(Revoke),
    Renew(Vec<Lease>),
    /// Fails runs that were taken too often without being returned.
    GiveUp(Vec<RunId>),
    Release(Vec<Lease>),
    /// The run, and the name of the caller who cancels it.
    Cancel(RunId, Arc<str>),
    /// With an id of the version, which identifies a repetition after an unacknowledged commit.
    Define(NewVersion, Uuid),
    Planning(PlanningOp),
}

/// A run whose creation was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Abandoned {
    pub(in super::super) run: RunId,
    pub(in super::super) scope: Option<Arc<str>>,
}

/// The result of an op.
#[derive(Debug)]
pub(in super::super) enum RunDone {
    Written,
    Created(Created),
    Reopened(Reopened),
    Taken(Option<Lease>),
    Renewed(Renewed),
    Resolved(Resolved),
    Settled(SettleDone),
    Revoked(bool),
    Put(PutVersion),
    Moved(Moved),
    /// Number of sessions that a sweep changed.
    Swept(u32),
}

impl RunOp {
    /// Whether it must be written even if the caller gave up.
    pub(in super::super) fn must_finish(&self) -> bool {
        matches!(self, Self::Abandon(_))
    }

    /// Whether it must survive a power loss: acknowledged changes must.
    pub(in super::super) fn survives_power_loss(&self) -> bool {
        match self {
            Self::Create(_)
            | Self::Reopen(..)
            | Self::Define(..)
            | Self::Cancel(..)
            | Self::Abandon(_)
            | Self::Resolve(_)
            | Self::Settle(_)
            | Self::Expire(_)
            | Self::Revoke(_)
            | Self::GiveUp(_)
            | Self::Planning(_) => true,
            Self::Take(..) | Self::Renew(_) | Self::Release(_) => false,
        }
    }

    /// The op that follows if the commit was not acknowledged. A lease expires by itself. A child run belongs to the
    /// calling run, and so to the worker that takes that run.
    pub(in super::super) fn outcome_unknown(&self) -> Option<Self> {
        match self {
            Self::Create(run) if run.origin.parent().is_none() => Some(Self::Abandon(Abandoned {
                run: run.id,
                scope: run.claim.as_ref().map(|claim| Arc::clone(&claim.scope)),
            })),
            _ => None,
        }
    }

    /// The runs whose rows must be locked while the op executes.
    pub(super) fn locks(&self, into: &mut BTreeSet<RunId>) {
        match self {
            Self::Create(run) => into.extend(run.origin.parent().map(|parent| parent.lease.run)),
            Self::Reopen(run, _) => into.extend([match run.place {
                ReopenedFor::Parent(lease) => lease.run,
                ReopenedFor::Caller { .. } => run.run,
            }]),
            Self::Abandon(abandoned) => into.extend([abandoned.run]),
            // The outermost run must be found first.
            Self::Cancel(..) => {}
            // It never waits for a lock: if the row is locked, a worker looks for the run again later.
            Self::Take(..) => {}
            Self::Resolve(resolve) => into.extend([resolve.root]),
            Self::Settle(settle) => into.extend([settle.root]),
            Self::Expire(roots) | Self::GiveUp(roots) => into.extend(roots),
            Self::Renew(leases) | Self::Release(leases) => into.extend(leases.iter().map(|lease| lease.run)),
            Self::Define(..) | Self::Revoke(_) => {}
            // The runs of its sessions must be found first.
            Self::Planning(_) => {}
        }
    }

    /// The planning sessions whose rows must be locked while the op executes.
    pub(super) fn locks_sessions(&self, into: &mut BTreeSet<PlanningSessionId>) {
        match self {
            Self::Create(run) => into.extend(run.origin.session().map(|place| place.session)),
            Self::Reopen(run, _) => into.extend(run.session),
            Self::Planning(op) => op.locks(into),
            _ => {}
        }
    }

    /// Does a run begin to work for a planning session with it, or continue?
    pub(super) fn starts_session(&self) -> bool {
        match self {
            Self::Create(run) => run.origin.session().is_some(),
            Self::Reopen(run, _) => run.session.is_some(),
            _ => false,
        }
    }

    /// The planning sessions whose runs it changes.
    pub(super) fn sessions_of_runs(&self) -> &[PlanningSessionId] {
        match self {
            Self::Planning(op) => op.sessions_of_runs(),
            _ => &[],
        }
    }

    /// The run that it cancels.
    pub(super) fn cancels(&self) -> Option<RunId> {
        match self {
            Self::Cancel(run, _) => Some(*run),
            _ => None,
        }
    }

    /// The project whose definitions it depends on.
    pub(super) fn project(&self) -> Option<(&str, &str)> {
        match self {
            Self::Define(version, _) => Some((version.tenant.as_str(), version.project.as_str())),
            _ => None,
        }
    }
}

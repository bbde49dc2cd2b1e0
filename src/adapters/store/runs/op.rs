//! The ops of runs and definitions.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use crate::domain::ids::RunId;
use crate::ports::actions::{Resolve, Resolved, Revoke, Settle, SettleDone};
use crate::ports::definitions::{NewVersion, PutVersion};
use crate::ports::runs::{Append, Created, FinishedRun, Held, Lease, NewRun, Renewed, Suspend, Suspended};

/// One op. As with every op, repeating it does no harm and returns the same answer.
#[derive(Debug)]
pub(in super::super) enum RunOp {
    Create(NewRun),
    /// The creation of the run was not acknowledged, so no worker starts it: ends it, and frees its claim and the run
    /// that it resumes.
    Abandon(Abandoned),
    /// With an id of the lease, which identifies a repetition after an unacknowledged commit.
    Take(RunId, Uuid),
    Append(Append),
    Finish(FinishedRun),
    Suspend(Suspend),
    Resolve(Resolve),
    Settle(Settle),
    /// The run, the scope of the claim, and its fingerprint.
    Claim(RunId, Arc<str>, Arc<str>),
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
}

/// A run whose creation was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Abandoned {
    pub(in super::super) run: RunId,
    pub(in super::super) scope: Option<Arc<str>>,
    pub(in super::super) resumes: Option<RunId>,
}

/// The result of an op.
#[derive(Debug)]
pub(in super::super) enum RunDone {
    Written,
    Created(Created),
    Taken(Option<Lease>),
    Held(Held),
    Renewed(Renewed),
    Suspended(Suspended),
    Resolved(Resolved),
    Settled(SettleDone),
    Claimed(bool),
    Revoked(bool),
    Put(PutVersion),
}

impl RunOp {
    /// Whether it must be written even if the caller gave up. An append that announces calls need not: without its
    /// acknowledgement the worker sends nothing. Any other append records the results of calls that were sent.
    pub(in super::super) fn must_finish(&self) -> bool {
        match self {
            Self::Append(append) => !append.announces(),
            Self::Finish(_) | Self::Abandon(_) => true,
            _ => false,
        }
    }

    /// Whether it must survive a power loss. Intents and acknowledged changes must. Outcomes of actions must too, since
    /// the audit log has them. The rest of a journal's tail need not: without it the model is asked again, and a call
    /// that was sent is in doubt, or is repeated where that does no harm.
    pub(in super::super) fn survives_power_loss(&self) -> bool {
        match self {
            Self::Create(_) | Self::Finish(_) | Self::Define(..) | Self::Cancel(..) | Self::Abandon(_) => true,
            Self::Suspend(_)
            | Self::Resolve(_)
            | Self::Settle(_)
            | Self::Expire(_)
            | Self::Revoke(_)
            | Self::GiveUp(_) => true,
            Self::Append(append) => append.announces() || !append.outcomes.is_empty(),
            // The work that a key is claimed for is written after the claim.
            Self::Claim(..) | Self::Take(..) | Self::Renew(_) | Self::Release(_) => false,
        }
    }

    /// The op that follows if the commit was not acknowledged. A lease expires by itself. A child run belongs to the
    /// calling run, and so to the worker that takes that run.
    pub(in super::super) fn outcome_unknown(&self) -> Option<Self> {
        match self {
            Self::Create(run) if run.parent.is_none() => Some(Self::Abandon(Abandoned {
                run: run.id,
                scope: run.claim.as_ref().map(|(scope, _)| Arc::clone(scope)),
                resumes: run.resumes,
            })),
            _ => None,
        }
    }

    /// The runs whose rows must be locked while the op executes.
    pub(super) fn locks(&self, into: &mut BTreeSet<RunId>) {
        match self {
            Self::Create(run) => into.extend(run.parent.map(|parent| parent.lease.run).into_iter().chain(run.resumes)),
            Self::Abandon(abandoned) => into.extend([abandoned.run].into_iter().chain(abandoned.resumes)),
            // It locks the outermost run, which it must find first.
            Self::Cancel(..) => {}
            // It never waits for a lock: if the row is locked, a worker looks for the run again later.
            Self::Take(..) => {}
            Self::Append(append) => into.extend([append.lease.run]),
            Self::Finish(run) => into.extend([run.lease.run]),
            Self::Suspend(suspend) => into.extend([suspend.lease.run]),
            Self::Resolve(resolve) => into.extend([resolve.root]),
            Self::Settle(settle) => into.extend([settle.root]),
            Self::Expire(roots) | Self::GiveUp(roots) => into.extend(roots),
            Self::Renew(leases) | Self::Release(leases) => into.extend(leases.iter().map(|lease| lease.run)),
            Self::Define(..) | Self::Revoke(_) | Self::Claim(..) => {}
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

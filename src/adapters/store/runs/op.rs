//! What the writer is asked to do with runs and definitions.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use crate::domain::ids::RunId;
use crate::ports::actions::{Resolve, Resolved, Revoke, Settle, SettleDone};
use crate::ports::definitions::{NewVersion, PutVersion};
use crate::ports::runs::{Append, Created, FinishedRun, Held, Lease, NewRun, Renewed, Suspend, Suspended};

/// One thing to write. As with every op, to do it twice does no harm, and answers the same.
#[derive(Debug)]
pub(in super::super) enum RunOp {
    Create(NewRun),
    /// Nobody heard that the run was made, so nobody begins it: end it, and free its claim and the run it goes on with.
    Abandon(Abandoned),
    /// With an id of the lease, by which a take that went unheard is known again.
    Take(RunId, Uuid),
    Append(Append),
    Finish(FinishedRun),
    Suspend(Suspend),
    Resolve(Resolve),
    Settle(Settle),
    /// The run, the claim's scope and its fingerprint.
    Claim(RunId, Arc<str>, Arc<str>),
    /// The questions of these outermost runs whose time is over.
    Expire(Vec<RunId>),
    Revoke(Revoke),
    Renew(Vec<Lease>),
    /// Runs that were taken too often without being returned.
    GiveUp(Vec<RunId>),
    Release(Vec<Lease>),
    /// By whom.
    Cancel(RunId, Arc<str>),
    /// With an id of the version, by which one that went unheard is known again.
    Define(NewVersion, Uuid),
}

/// What is left of a run that nobody heard of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Abandoned {
    pub(in super::super) run: RunId,
    pub(in super::super) scope: Option<Arc<str>>,
    pub(in super::super) resumes: Option<RunId>,
}

/// What was done.
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
    /// Must it be written although nobody waits any more? An append that announces calls need not: who did not hear of it sends
    /// nothing. Another one tells what came of calls that were sent.
    pub(in super::super) fn must_finish(&self) -> bool {
        match self {
            Self::Append(append) => !append.announces(),
            Self::Finish(_) | Self::Abandon(_) => true,
            _ => false,
        }
    }

    /// Must it survive a loss of power? What was answered must, and intents. Neither must what came of actions be
    /// lost, since the audit has it. The tail of a journal without these need not survive:
    /// without it the model is asked again, and a call that was sent is in doubt, or repeated where that does no harm.
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
            // What it is claimed for is written after it.
            Self::Claim(..) | Self::Take(..) | Self::Renew(_) | Self::Release(_) => false,
        }
    }

    /// What must be done when nobody heard of it. A lease runs out by itself. A run that another one called belongs to that
    /// one, and so to whoever takes it up.
    pub(in super::super) fn unheard(&self) -> Option<Self> {
        match self {
            Self::Create(run) if run.parent.is_none() => Some(Self::Abandon(Abandoned {
                run: run.id,
                scope: run.claim.as_ref().map(|(scope, _)| Arc::clone(scope)),
                resumes: run.resumes,
            })),
            _ => None,
        }
    }

    /// The rows that must stand still while it is judged.
    pub(super) fn locks(&self, into: &mut BTreeSet<RunId>) {
        match self {
            Self::Create(run) => into.extend(run.parent.map(|parent| parent.lease.run).into_iter().chain(run.resumes)),
            Self::Abandon(abandoned) => into.extend([abandoned.run].into_iter().chain(abandoned.resumes)),
            // It locks the outermost run, which it has to find first.
            Self::Cancel(..) => {}
            // It waits for nobody: who holds the row may stand still, and the run is looked for again.
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

    /// The project whose definitions it judges by.
    pub(super) fn project(&self) -> Option<(&str, &str)> {
        match self {
            Self::Define(version, _) => Some((version.tenant.as_str(), version.project.as_str())),
            _ => None,
        }
    }
}

//! What the gate has to know to decide on a call.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono_tz::Tz;

use crate::domain::definition::Approval;
use crate::domain::ids::{TenantId, UserId};
use crate::domain::known::Known;
use crate::domain::policy::{Grant, Policy};
use crate::snapshot::DefinitionSnapshot;
use crate::strategy::plan::Scope;
use crate::toolset::Missing;

/// What is known about a run when its calls are decided.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The tenant of the acting user.
    pub tenant: TenantId,
    /// The acting user; set by gavel, never chosen by the model.
    pub user: UserId,
    /// The run's agent; `None` on the chat surface.
    pub agent: Option<Arc<str>>,
    /// The surface's name, for the rules that name it.
    pub surface: Arc<str>,
    /// The approval mode of the definition.
    pub approval: Approval,
    /// The least approval that the surface demands: neither the definition nor a tool's setting lowers it.
    pub floor: Approval,
    /// Can this run wait for an approval? A stateless request cannot.
    pub can_wait: bool,
    /// The operator's policy.
    pub policy: Arc<Policy>,
    /// Grants. Those of other users and tools have no effect.
    pub grants: Vec<Grant>,
    /// What the tool's server offers now.
    pub offered: Offered,
    /// The agents that may be called.
    pub delegates: Option<Delegates>,
    /// Tools on the allowlist that no server offers now.
    pub missing: Vec<Missing>,
    /// The values of the run's planning session, by name: `id`, `owner`, `repo`. Arguments with a `scope` have no
    /// others (case is ignored), and no answer of the policy widens them.
    pub bound: Option<Arc<BTreeMap<String, String>>>,
    /// In a planning session: the texts that a call may send out of it unasked.
    pub known: Option<Arc<Known>>,
    /// What the confirmed plan allows, if the run works on one.
    pub scope: Option<Arc<Scope>>,
    /// The user's time zone, if it is known: approvers are shown times with other offsets in this zone.
    pub zone: Option<Tz>,
    /// Now, microseconds since the epoch.
    pub now_us: i64,
}

impl Facts {
    /// A run that can wait for approvals, without an agent, grants and anything else that is known.
    #[must_use]
    pub fn new(tenant: TenantId, user: UserId, surface: &str, policy: Arc<Policy>) -> Self {
        Self {
            tenant,
            user,
            agent: None,
            surface: surface.into(),
            approval: Approval::default(),
            floor: Approval::Never,
            can_wait: true,
            policy,
            grants: Vec::new(),
            offered: Offered::Later,
            delegates: None,
            missing: Vec::new(),
            bound: None,
            known: None,
            scope: None,
            zone: None,
            now_us: 0,
        }
    }
}

/// What a tool's server offers now. A call that runs by an approval or a grant runs only as its tool was then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The server is asked right before the call is sent.
    Later,
    /// The server does not answer.
    Unknown,
    /// The digest of the tool's definition; `None` if the server offers no such tool.
    Tool(Option<Arc<str>>),
}

/// The agents that a run may call.
#[derive(Clone, Debug)]
pub struct Delegates {
    /// Their definitions.
    pub snapshot: Arc<DefinitionSnapshot>,
    /// The number of agents above the run.
    pub depth: u32,
}

/// Which attempt at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It was not started.
    First,
    /// It was started at this time, in microseconds since the epoch. Its times are checked as of then, and it cannot wait
    /// for an approval.
    Again(i64),
}

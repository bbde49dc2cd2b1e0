//! What may be in progress at once: in the process, for one tenant, and for one of its users.
//!
//! A limit for each request does not bound many small requests together. A [`Budget`] does: work takes a [`Share`]
//! before it takes memory or a place, and dropping the share returns it. A user's limit is smaller than the tenant's,
//! and a tenant's is smaller than the process's, so that no caller can take everything.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::domain::names::names;

/// The limits of a budget, all in the budget's own unit (bytes, streams, checks).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For all work of the process.
    pub process: u64,
    /// For the work of one tenant.
    pub tenant: u64,
    /// For the work of one user, or of one service that names no user.
    pub user: u64,
}

impl Limits {
    /// Does more than is used by a user, the tenant and all fit?
    ///
    /// # Errors
    /// A limit of the pool would be exceeded.
    pub fn check(self, pool: Pool, [user, tenant, process]: [u64; 3], more: u64) -> Result<(), Exceeded> {
        let levels = [
            (Scope::User, user, self.user),
            (Scope::Tenant, tenant, self.tenant),
            (Scope::Process, process, self.process),
        ];
        match levels
            .into_iter()
            .find(|(_, used, limit)| used.saturating_add(more) > *limit)
        {
            Some((scope, _, limit)) => Err(Exceeded {
                scope,
                limit,
                unit: pool.as_str(),
            }),
            None => Ok(()),
        }
    }

    /// This many times as much.
    fn times(self, factor: u64) -> Self {
        Self {
            process: self.process * factor,
            tenant: self.tenant * factor,
            user: self.user * factor,
        }
    }

    /// Limits for shared places: an eighth is reserved for other tenants, and another eighth for other users of the
    /// tenant. A single user can take three quarters. With fewer than four places nothing is reserved.
    pub fn with_reserve(process: u64) -> Self {
        let reserve = if process < 4 { 0 } else { (process / 8).max(1) };
        Self {
            process,
            tenant: process - reserve,
            user: process - 2 * reserve,
        }
    }
}

/// The level whose limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The process's.
    Process,
    /// The tenant's.
    Tenant,
    /// The user's.
    User,
}

/// A share was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{limit} {unit} at once are allowed {}", of(*.scope))]
pub struct Exceeded {
    /// The level whose limit was reached.
    pub scope: Scope,
    /// The limit, in `unit`.
    pub limit: u64,
    /// What is counted, as a plural.
    pub unit: &'static str,
}

fn of(scope: Scope) -> &'static str {
    match scope {
        Scope::Process => "in all",
        Scope::Tenant => "for a tenant",
        Scope::User => "for a user",
    }
}

/// Counts what is in progress.
#[derive(Debug)]
pub struct Budget {
    pool: Pool,
    limits: Limits,
    /// Names are stored as hashes: a share costs no allocation, and names that callers choose take no memory.
    hasher: RandomState,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    process: u64,
    /// Amounts of tenants and users by the hash of their name. Holds only those with work in progress.
    holders: HashMap<u64, u64>,
}

impl Used {
    fn of(&self, holder: u64) -> u64 {
        self.holders.get(&holder).copied().unwrap_or_default()
    }
}

impl Budget {
    /// A budget for this pool.
    pub fn new(pool: Pool, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            pool,
            limits,
            hasher: RandomState::new(),
            used: Mutex::default(),
        })
    }

    /// Takes `amount` for a user of a tenant until the share is dropped. `user` is any name of the caller that is
    /// unique in the tenant.
    ///
    /// # Errors
    /// A limit would be exceeded; nothing is taken.
    pub fn take(self: &Arc<Self>, tenant: &str, user: &str, amount: u64) -> Result<Share, Exceeded> {
        let mut share = Share {
            tenant: self.hasher.hash_one((0, tenant)),
            user: self.hasher.hash_one((1, tenant, user)),
            amount: 0,
            budget: Arc::clone(self),
        };
        share.grow(amount)?;
        Ok(share)
    }

    /// The amount in use in the process.
    pub fn used(&self) -> u64 {
        self.lock().process
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        // A panic cannot interrupt a change below halfway, so a poisoned lock is still consistent.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one piece of work has taken from a [`Budget`]. Dropping it returns the amount.
#[derive(Debug)]
#[must_use = "dropping it returns the amount"]
pub struct Share {
    budget: Arc<Budget>,
    tenant: u64,
    user: u64,
    amount: u64,
}

impl Share {
    /// Takes more.
    ///
    /// # Errors
    /// A limit would be exceeded; what was taken before is kept.
    pub fn grow(&mut self, more: u64) -> Result<(), Exceeded> {
        let mut used = self.budget.lock();
        let before = [used.of(self.user), used.of(self.tenant), used.process];
        self.budget.limits.check(self.budget.pool, before, more)?;
        used.process += more;
        *used.holders.entry(self.tenant).or_default() += more;
        *used.holders.entry(self.user).or_default() += more;
        self.amount += more;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut used = self.budget.lock();
        used.process -= self.amount;
        for holder in [self.tenant, self.user] {
            if let Some(amount) = used.holders.get_mut(&holder) {
                *amount -= self.amount;
                if *amount == 0 {
                    used.holders.remove(&holder);
                }
            }
        }
    }
}

// Memory that grows while work is in progress.

/// Smaller amounts are not counted: their number is bounded by the work in progress, and nearly all are small.
pub const FREE: usize = 64 * 1024;
/// Bytes that are taken from a budget at a time, so that small additions do not each access it.
const STEP: usize = 128 * 1024;

/// What one piece of work has taken from a budget of bytes. Dropping it returns the bytes.
#[derive(Debug)]
pub struct Held<'a> {
    budget: Cow<'a, Arc<Budget>>,
    tenant: Cow<'a, str>,
    user: Cow<'a, str>,
    /// How many copies of each byte are in memory.
    copies: usize,
    /// Bytes so far.
    bytes: usize,
    /// Bytes taken from the budget.
    taken: usize,
    share: Option<Share>,
}

impl<'a> Held<'a> {
    /// For work of this user, which holds `copies` copies of each byte in memory.
    pub fn new(
        budget: impl Into<Cow<'a, Arc<Budget>>>,
        tenant: impl Into<Cow<'a, str>>,
        user: impl Into<Cow<'a, str>>,
        copies: usize,
    ) -> Self {
        Self {
            budget: budget.into(),
            tenant: tenant.into(),
            user: user.into(),
            copies,
            bytes: 0,
            taken: 0,
            share: None,
        }
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// The budget is exceeded. What was taken is kept until it is dropped.
    pub fn add(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.grow_to(self.bytes.saturating_add(bytes))
    }

    /// Grows to at least this many bytes.
    ///
    /// # Errors
    /// As [`Held::add`].
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.bytes = self.bytes.max(bytes);
        let needed = self.bytes.saturating_mul(self.copies);
        if self.bytes <= FREE || needed <= self.taken {
            return Ok(());
        }
        let more = (needed - self.taken).next_multiple_of(STEP);
        match &mut self.share {
            Some(share) => share.grow(more as u64)?,
            None => self.share = Some(self.budget.take(&self.tenant, &self.user, more as u64)?),
        }
        self.taken += more;
        Ok(())
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns what was taken, and counts from zero again.
    pub fn take(&mut self) -> Option<Share> {
        (self.bytes, self.taken) = (0, 0);
        self.share.take()
    }
}

const MIB: u64 = 1 << 20;

names! {
    /// A pool; its name is what it counts, as a plural.
    Pool {
        /// Chats in progress.
        Chats = "requests",
        /// Runs of agents whose callers wait.
        WaitedFor = "runs that a caller waits for",
        /// Runs of agents whose callers do not wait.
        Background = "runs in the background",
        /// Planning sessions whose run plans or works, over all processes.
        SessionsAtWork = "planning sessions at work",
        /// Planning sessions that wait for a person, over all processes.
        SessionsWaiting = "planning sessions that wait for confirmation",
        /// Calls to one MCP server in progress.
        CallsToServer = "calls to one server",
        /// Open streams.
        Streams = "open streams",
        /// Exports in progress.
        Exports = "exports",
        /// Bytes of request bodies in progress.
        Bodies = "bytes of request bodies",
        /// Bytes of large responses that clients have not read yet.
        Answers = "bytes of answers to callers",
        /// Checks against schemas that run or wait.
        Checks = "long checks",
        /// What runs and chats remember.
        Journals = "bytes of journals in memory",
        /// Answers of models that are being read.
        ModelAnswers = "bytes of model answers",
        /// Answers of MCP servers that are being read.
        ServerAnswers = "bytes of answers of servers",
        /// Heads of requests, whose callers are not known yet.
        Heads = "bytes of request heads",
    }
}

impl Pool {
    /// Its limits. `whole`: what a setting gives the process; pools without a setting ignore it.
    #[must_use]
    pub fn limits(self, whole: u64) -> Limits {
        let shares = |[process, tenant, user]: [u64; 3]| Limits { process, tenant, user };
        match self {
            Self::Chats
            | Self::WaitedFor
            | Self::Background
            | Self::SessionsAtWork
            | Self::SessionsWaiting
            | Self::CallsToServer => Limits::with_reserve(whole),
            // A user with 64 open streams has ten tabs in six browsers.
            Self::Streams => shares([1024, 512, 64]),
            // One takes up to 200 MiB, and a connection of those that lists read by.
            Self::Exports => shares([4, 3, 2]),
            // Honest users do not send 16 MiB of bodies at once in many pieces.
            Self::Bodies => shares([64, 32, 16]).times(MIB),
            // Three of the largest pages for one caller, and six in total.
            Self::Answers => shares([64, 48, 32]).times(MIB),
            Self::Checks => shares([64, 8, 2]),
            // The largest run uses 32 MiB.
            Self::Journals => shares([128, 96, 64]).times(MIB),
            // The largest answer (8 MiB) takes 16 MiB.
            Self::ModelAnswers => shares([96, 64, 48]).times(MIB),
            // The largest answer (16 MiB) takes 32 MiB. Thousands of answers of the usual size fit.
            Self::ServerAnswers => shares([160, 128, 96]).times(MIB),
            // Beyond the room that each connection has. A head may have 128 KiB, which many slow connections would hold.
            Self::Heads => shares([32, 32, 32]).times(MIB),
        }
    }
}

/// The most planning sessions at once, over all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Whose run plans, or works through the plan.
    pub at_work: Limits,
    /// That wait for the confirmation of their plan. Only the start of a further session is refused.
    pub waiting: Limits,
}

/// The defaults of `planning.sessions` and `planning.sessions_per_user`.
impl Default for SessionLimits {
    fn default() -> Self {
        Self::new(20, 3)
    }
}

impl SessionLimits {
    /// Sessions that wait for each one that may be at work: a waiting one is only a row.
    const WAITING: u64 = 10;

    /// For this many sessions at work, of all users and of one.
    pub fn new(of_all: u32, of_user: u32) -> Self {
        let shares = Pool::SessionsAtWork.limits(of_all.into());
        let at_work = Limits {
            user: shares.user.min(of_user.into()),
            ..shares
        };
        Self {
            at_work,
            waiting: at_work.times(Self::WAITING),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Arc<Budget> {
        let limits = Limits {
            process: 10,
            tenant: 6,
            user: 4,
        };
        Budget::new(Pool::Bodies, limits)
    }

    #[test]
    fn each_level_has_its_own_limit() {
        let budget = budget();
        let scope = |taken: Result<Share, Exceeded>| taken.unwrap_err().scope;
        let _ann = budget.take("a", "ann", 4).unwrap();
        assert_eq!(scope(budget.take("a", "ann", 1)), Scope::User);
        let _bob = budget.take("a", "bob", 2).unwrap();
        assert_eq!(scope(budget.take("a", "cy", 1)), Scope::Tenant);
        let _other = budget.take("b", "ann", 4).unwrap();
        assert_eq!(scope(budget.take("c", "ann", 1)), Scope::Process);
    }

    #[test]
    fn a_reserve_is_kept_for_others_where_there_is_room_for_one() {
        for (process, tenant, user) in [
            (1024, 896, 768),
            (64, 56, 48),
            (4, 3, 2),
            (3, 3, 3),
            (1, 1, 1),
            (0, 0, 0),
        ] {
            let limits = Limits { process, tenant, user };
            assert_eq!(Limits::with_reserve(process), limits);
        }
    }

    #[test]
    fn a_dropped_share_is_given_back_and_leaves_nothing_behind() {
        let budget = budget();
        let mut share = budget.take("a", "ann", 1).unwrap();
        share.grow(3).unwrap();
        let refused = share.grow(1).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "4 bytes of request bodies at once are allowed for a user"
        );
        assert_eq!(budget.used(), 4);
        drop(share);
        assert_eq!(budget.used(), 0);
        assert!(budget.lock().holders.is_empty());
        assert!(budget.take("a", "ann", 4).is_ok());
    }
}

#[cfg(test)]
mod held_tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use super::{Limits, Pool};

    #[test]
    fn what_is_small_is_free_and_what_is_large_counts_until_it_is_dropped() {
        let limits = Limits {
            process: 1 << 20,
            tenant: 1 << 20,
            user: 1 << 20,
        };
        let budget = Budget::new(Pool::Answers, limits);
        let mut held = Held::new(Cow::Borrowed(&budget), "t", "u", 2);
        held.add(FREE).unwrap();
        assert_eq!(budget.used(), 0);
        held.add(1).unwrap();
        assert_eq!(budget.used(), 256 * 1024);
        held.grow_to(FREE).unwrap();
        assert_eq!(held.bytes(), FREE + 1, "it never shrinks");
        let share = held.take();
        held.add(FREE).unwrap();
        assert_eq!(budget.used(), 256 * 1024, "the next one counts from zero");
        drop(share);
        assert_eq!(budget.used(), 0);
        assert!(held.grow_to(1 << 20).is_err());
    }
}

#[cfg(test)]
mod pools_tests {
    use super::*;

    /// No caller can take a whole pool: only before a login there is no caller.
    #[test]
    fn every_pool_has_a_share_for_each_tenant_and_user() {
        for pool in Pool::ALL.iter().filter(|pool| **pool != Pool::Heads) {
            let Limits { process, tenant, user } = pool.limits(20);
            assert!(
                user <= tenant && tenant < process,
                "{}: {user} {tenant} {process}",
                pool.as_str()
            );
        }
    }

    /// The table of the documentation has exactly these pools, with these limits.
    #[test]
    fn the_documentation_has_a_row_for_each_pool() {
        let page = include_str!("../../../../docs/reference/limits.md");
        for pool in Pool::ALL {
            // The defaults of `runs.background`, `maxConcurrent` and `max_in_flight`.
            let whole = match pool {
                Pool::Background => 64,
                Pool::CallsToServer => 256,
                _ => 1024,
            };
            let sessions = SessionLimits::default();
            let Limits { process, tenant, user } = match pool {
                Pool::SessionsAtWork => sessions.at_work,
                Pool::SessionsWaiting => sessions.waiting,
                _ => pool.limits(whole),
            };
            let shown = |amount: u64| match amount % MIB {
                0 => format!("{} MiB", amount / MIB),
                _ => amount.to_string(),
            };
            let row = match pool {
                Pool::Heads => format!("| {} | {} | – | – |", pool.as_str(), shown(process)),
                _ => format!(
                    "| {} | {} | {} | {} |",
                    pool.as_str(),
                    shown(process),
                    shown(tenant),
                    shown(user)
                ),
            };
            assert!(page.contains(&row), "docs/reference/limits.md has no row {row}");
        }
    }
}

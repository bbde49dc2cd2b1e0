//! Every pool of places or bytes that callers share. A table in `docs/reference/limits.md` has a row for each.

use super::Limits;
use crate::domain::names::names;

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
    #[must_use]
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
        let page = include_str!("../../../../../docs/reference/limits.md");
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

//! The authenticated caller, and on whose behalf it may act.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::api::problem::Code;
use crate::domain::ids::{TenantId, UserId};
pub use crate::ports::keys::{KeySet, KeySource, KeysUnavailable, VerifyingKey};
use crate::surfaces::problem::Problem;

/// May put definitions of agents, which determine the tools that run without approval.
pub const OPERATOR: &str = "operator";

/// May resolve the approvals of other users of the tenant.
pub const APPROVER: &str = "approver";

/// Sees the rows of the tenant in the logs.
pub const ANALYST: &str = "analyst";

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The tenant whose records the caller reads and writes.
    pub tenant: TenantId,
    /// A service or a user.
    pub identity: Identity,
    /// Roles of its key or claim (`analyst`, `approver`, …).
    pub roles: Arc<BTreeSet<String>>,
}

/// The kind of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A service that may act for any of its users; the name of its key.
    Service(Arc<str>),
    /// A user, who may act only for themselves.
    User(UserId),
}

impl Caller {
    /// The caller's name in logs and claims. Distinguishes a user from a service of the same name.
    pub fn name(&self) -> String {
        match &self.identity {
            Identity::Service(name) => format!("service:{name}"),
            Identity::User(user) => format!("user:{user}"),
        }
    }

    /// The actor's name in the decision log: the caller, and the user for whom a service acts.
    pub fn name_for(&self, user: Option<&UserId>) -> String {
        let name = self.name();
        match (&self.identity, user) {
            (Identity::Service(_), Some(user)) => format!("{name} for user:{user}"),
            _ => name,
        }
    }

    /// The actor's display name: the user, or the service if it acts for no user.
    pub fn person(&self, user: Option<&UserId>) -> String {
        match (&self.identity, user) {
            (Identity::User(user), _) | (Identity::Service(_), Some(user)) => user.to_string(),
            (Identity::Service(name), None) => name.to_string(),
        }
    }

    /// Whose objects the caller sees: a user their own; a service those of the user it names, or all of its tenant's.
    pub fn sees<'a>(&'a self, user: Option<&'a UserId>) -> Option<&'a UserId> {
        match &self.identity {
            Identity::User(own) => Some(own),
            Identity::Service(_) => user,
        }
    }

    /// The user for whom this caller acts when it names `asked`.
    ///
    /// # Errors
    /// A user names another user.
    pub fn act_for(&self, asked: Option<UserId>) -> Result<Option<UserId>, Problem> {
        match (&self.identity, asked) {
            (Identity::Service(_), asked) => Ok(asked),
            (Identity::User(user), None) => Ok(Some(user.clone())),
            (Identity::User(user), Some(asked)) if *user == asked => Ok(Some(asked)),
            (Identity::User(_), Some(_)) => Err(Problem::new(
                Code::UserMismatch,
                "user_id or X-Gavel-User names another user than the key or the token; omit it, or name the same user.",
            )),
        }
    }
}

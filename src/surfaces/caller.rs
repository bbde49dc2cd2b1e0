//! Who is asking, as the edge found out, and on whose behalf they may act.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::domain::ids::{TenantId, UserId};
pub use crate::ports::keys::{KeySet, KeySource, KeysUnavailable, VerifyingKey};

/// May put definitions of agents, which say what tools run without asking.
pub const OPERATOR: &str = "operator";

/// May answer what other users of the tenant are asked.
pub const APPROVER: &str = "approver";

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whose records it sees and writes.
    pub tenant: TenantId,
    /// What it is.
    pub identity: Identity,
    /// Roles of its key or claim (`analyst`, `approver`, …).
    pub roles: Arc<BTreeSet<String>>,
}

/// What a caller is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A service that may act for any of its users, by the name of its key.
    Service(Arc<str>),
    /// A user, who acts for themselves alone.
    User(UserId),
}

impl Caller {
    /// The caller's name in logs and claims; tells apart a user from a service of that name.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.identity {
            Identity::Service(name) => format!("service:{name}"),
            Identity::User(user) => format!("user:{user}"),
        }
    }

    /// Who does something, as the record names them: the caller, and for whom a service speaks.
    #[must_use]
    pub fn name_for(&self, user: Option<&UserId>) -> String {
        let name = self.name();
        match (&self.identity, user) {
            (Identity::Service(_), Some(user)) => format!("{name} for user:{user}"),
            _ => name,
        }
    }

    /// The same for people: the user, or the service where it speaks for none.
    #[must_use]
    pub fn person(&self, user: Option<&UserId>) -> String {
        match (&self.identity, user) {
            (Identity::User(user), _) | (Identity::Service(_), Some(user)) => user.to_string(),
            (Identity::Service(name), None) => name.to_string(),
        }
    }

    /// The user this caller acts for when it names `asked`.
    ///
    /// # Errors
    /// [`NotThatUser`] when a user names somebody else.
    pub fn act_for(&self, asked: Option<UserId>) -> Result<Option<UserId>, NotThatUser> {
        match (&self.identity, asked) {
            (Identity::Service(_), asked) => Ok(asked),
            (Identity::User(user), None) => Ok(Some(user.clone())),
            (Identity::User(user), Some(asked)) if *user == asked => Ok(Some(asked)),
            (Identity::User(_), Some(_)) => Err(NotThatUser),
        }
    }
}

/// A user named another user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("whom the key or the token belongs to may act only for themselves")]
pub struct NotThatUser;

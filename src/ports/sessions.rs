//! Where logins to the console are kept, so that any replica knows them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::BoxFuture;
use super::records::{QueryError, RecordError};
use crate::domain::ids::{TenantId, UserId};

/// The store of logins.
pub trait SessionStore: Send + Sync {
    /// Keeps a new one.
    fn begin(&self, session: Session) -> BoxFuture<'_, Result<(), RecordError>>;

    /// The one with this id, also when its time is over.
    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Session>, QueryError>>;

    /// It was used at this time, microseconds since the epoch.
    fn seen<'a>(&'a self, id: &'a str, at_us: i64) -> BoxFuture<'a, Result<(), RecordError>>;

    /// Drops it. One that is not there stays so.
    fn end<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), RecordError>>;
}

/// A login to the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Hex SHA-256 of the token in the browser's cookie.
    pub id: Arc<str>,
    /// Whose records it sees.
    pub tenant: TenantId,
    /// What was shown.
    pub credential: Credential,
    /// Who acts; only a key may leave it open.
    pub user: Option<UserId>,
    /// Microseconds since the epoch.
    pub created_us: i64,
    /// When it was used last, to the minute.
    pub seen_us: i64,
    /// When it is over whatever happens.
    pub expires_us: i64,
}

/// What somebody logged in with. The thing itself is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// A service's key. What it may do is looked up at each request.
    Key {
        /// The service.
        name: Arc<str>,
        /// Tells it from another key of this name.
        fingerprint: Arc<str>,
    },
    /// A user's token.
    Token {
        /// Tells whose tokens counted then.
        fingerprint: Arc<str>,
        /// The roles it gave.
        roles: Arc<BTreeSet<String>>,
    },
}

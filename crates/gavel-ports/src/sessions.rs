//! The store of console logins, shared by all replicas.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;

use super::records::{QueryError, RecordError};
use crate::domain::ids::{TenantId, UserId};

/// The store of logins.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Stores a new session.
    async fn begin(&self, session: Session) -> Result<(), RecordError>;

    /// The session with this id, even if it has expired.
    async fn find(&self, id: &str) -> Result<Option<Session>, QueryError>;

    /// Records when it was last used, in microseconds since the epoch.
    async fn seen(&self, id: &str, at_us: i64) -> Result<(), RecordError>;

    /// Deletes it. Does nothing if it does not exist.
    async fn end(&self, id: &str) -> Result<(), RecordError>;
}

/// A login to the console.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Session {
    /// Hex SHA-256 of the token in the browser's cookie.
    pub id: Arc<str>,
    /// The tenant whose records it shows.
    pub tenant: TenantId,
    /// The credential that was presented.
    pub credential: Credential,
    /// The acting user; `None` is possible for a key alone.
    pub user: Option<UserId>,
    /// Microseconds since the epoch.
    pub created_us: i64,
    /// When it was used last, to the minute.
    pub seen_us: i64,
    /// When it expires in any case.
    pub expires_us: i64,
}

/// What the caller logged in with. The credential itself is not stored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "StoredCredential")]
pub enum Credential {
    /// A service's key. Its permissions are looked up at each request.
    Key {
        /// The service.
        name: Arc<str>,
        /// Distinguishes it from another key of this name.
        fingerprint: Arc<str>,
    },
    /// A user's token.
    Token {
        /// Identifies the token source that was configured at login.
        fingerprint: Arc<str>,
        /// The roles that the token granted.
        roles: Arc<BTreeSet<String>>,
    },
}

/// A credential as it is stored.
#[derive(Deserialize)]
struct StoredCredential {
    name: Arc<str>,
    fingerprint: Arc<str>,
    /// Only of a token.
    roles: Option<Arc<BTreeSet<String>>>,
}

impl From<StoredCredential> for Credential {
    fn from(stored: StoredCredential) -> Self {
        let StoredCredential {
            name,
            fingerprint,
            roles,
        } = stored;
        match roles {
            Some(roles) => Self::Token { fingerprint, roles },
            None => Self::Key { name, fingerprint },
        }
    }
}

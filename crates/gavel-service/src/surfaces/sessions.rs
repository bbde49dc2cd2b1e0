//! Console logins: created, looked up, ended.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::api::problem::Code;
use crate::domain::ids::{TenantId, UserId};
use crate::ports::clock::Clock;
use crate::ports::records::{QueryError, RecordError};
use crate::ports::sessions::SessionStore;
pub use crate::ports::sessions::{Credential, Session};
use crate::surfaces::problem::Problem;

/// Minimum interval between two updates of a session's last use.
const NOTE_US: i64 = 60 * 1_000_000;

/// The surface with everything it uses.
pub struct Sessions {
    store: Arc<dyn SessionStore>,
    clock: Arc<dyn Clock>,
    lasts: Duration,
    idle: Duration,
}

/// A login request.
#[derive(Clone, Debug)]
pub struct Login {
    /// The tenant whose records the session shows.
    pub tenant: TenantId,
    /// The credential that was presented.
    pub credential: Credential,
    /// The acting user.
    pub user: Option<UserId>,
    /// When the credential itself expires, in microseconds since the epoch.
    pub until_us: Option<i64>,
}

impl Sessions {
    /// Builds the surface with the maximum lifetime and the maximum idle time of a login.
    pub fn new(store: Arc<dyn SessionStore>, clock: Arc<dyn Clock>, lasts: Duration, idle: Duration) -> Self {
        Self {
            store,
            clock,
            lasts,
            idle,
        }
    }

    /// Wall clock, microseconds since the epoch.
    pub fn now_us(&self) -> i64 {
        self.clock.now_us()
    }

    /// Stores a login. Returns the token for the browser, and its maximum lifetime.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn begin(&self, login: Login) -> Result<(String, Duration), Problem> {
        let token = token()?;
        let now = self.clock.now_us();
        let lasts = now.saturating_add(micros(self.lasts));
        let session = Session {
            id: id(&token),
            tenant: login.tenant,
            credential: login.credential,
            user: login.user,
            created_us: now,
            seen_us: now,
            expires_us: login.until_us.map_or(lasts, |until| until.min(lasts)),
        };
        let left = Duration::from_micros(session.expires_us.saturating_sub(now).try_into().unwrap_or(0));
        self.store.begin(session).await.map_err(|error| away(&error))?;
        Ok((token, left))
    }

    /// The login of a token, unless it has expired. If `is_used`, its idle time restarts.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn find(&self, token: &str, is_used: bool) -> Result<Option<Session>, Problem> {
        if !is_token(token) {
            return Ok(None);
        }
        let found = self.store.find(&id(token)).await.map_err(|error: QueryError| {
            tracing::error!(%error, "a login to the console cannot be looked up");
            Code::RecordUnavailable
        })?;
        let now = self.clock.now_us();
        let rested = |session: &Session| now.saturating_sub(session.seen_us);
        let Some(session) = found.filter(|session| now < session.expires_us && rested(session) < micros(self.idle))
        else {
            return Ok(None);
        };
        // Updated often enough that a session in use does not become idle.
        if is_used && rested(&session) >= NOTE_US.min(micros(self.idle) / 4) {
            self.store.seen(&session.id, now).await.map_err(|error| away(&error))?;
        }
        Ok(Some(session))
    }

    /// Ends the login of a token.
    ///
    /// # Errors
    /// The store is unavailable, and the login may still be valid.
    pub async fn end(&self, token: &str) -> Result<(), Problem> {
        if !is_token(token) {
            return Ok(());
        }
        self.store.end(&id(token)).await.map_err(|error| away(&error))
    }
}

/// 256 random bits, in hex.
///
/// # Errors
/// The system provides no random bytes.
pub fn token() -> Result<String, Problem> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(%error, "the system provides no random bytes");
        Code::RecordUnavailable
    })?;
    Ok(hex::encode(bytes))
}

/// Can it be one of our tokens? Other texts need no query.
pub fn is_token(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn id(token: &str) -> Arc<str> {
    hex::encode(Sha256::digest(token)).into()
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn away(error: &RecordError) -> Problem {
    tracing::error!(%error, "a login to the console cannot be written");
    Code::RecordUnavailable.into()
}

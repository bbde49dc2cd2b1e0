//! Logins to the console: begun, known again, ended.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::domain::ids::{TenantId, UserId};
use crate::ports::clock::Clock;
use crate::ports::records::{QueryError, RecordError};
use crate::ports::sessions::SessionStore;
pub use crate::ports::sessions::{Credential, Session};

/// Between two notes that a session is in use, at most.
const NOTE_US: i64 = 60 * 1_000_000;

/// Everything the surface is made of.
pub struct Sessions {
    store: Arc<dyn SessionStore>,
    clock: Arc<dyn Clock>,
    lasts: Duration,
    idle: Duration,
}

/// Who logs in.
#[derive(Clone, Debug)]
pub struct Login {
    /// Whose records they see.
    pub tenant: TenantId,
    /// What they have shown.
    pub credential: Credential,
    /// Who acts.
    pub user: Option<UserId>,
    /// When the credential itself is over, microseconds since the epoch.
    pub until_us: Option<i64>,
}

/// Why a login cannot be kept or looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("logins cannot be kept or looked up now")]
pub struct Unavailable;

impl Sessions {
    /// Builds the surface: how long a login lasts, and how long it may rest.
    #[must_use]
    pub fn new(store: Arc<dyn SessionStore>, clock: Arc<dyn Clock>, lasts: Duration, idle: Duration) -> Self {
        Self {
            store,
            clock,
            lasts,
            idle,
        }
    }

    /// Wall clock, microseconds since the epoch.
    #[must_use]
    pub fn now_us(&self) -> i64 {
        self.clock.now_us()
    }

    /// Keeps a login. Gives the token that the browser is to show, and for how long it counts at most.
    ///
    /// # Errors
    /// The store is away.
    pub async fn begin(&self, login: Login) -> Result<(String, Duration), Unavailable> {
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

    /// The login that a token stands for, unless its time is over. Where `is_used`, it begins to rest anew.
    ///
    /// # Errors
    /// The store is away.
    pub async fn find(&self, token: &str, is_used: bool) -> Result<Option<Session>, Unavailable> {
        if !is_token(token) {
            return Ok(None);
        }
        let found = self.store.find(&id(token)).await.map_err(|error: QueryError| {
            tracing::error!(%error, "a login to the console cannot be looked up");
            Unavailable
        })?;
        let now = self.clock.now_us();
        let rested = |session: &Session| now.saturating_sub(session.seen_us);
        let Some(session) = found.filter(|session| now < session.expires_us && rested(session) < micros(self.idle))
        else {
            return Ok(None);
        };
        // Noted often enough that one in use does not seem to rest.
        if is_used && rested(&session) >= NOTE_US.min(micros(self.idle) / 4) {
            self.store.seen(&session.id, now).await.map_err(|error| away(&error))?;
        }
        Ok(Some(session))
    }

    /// Ends the login that a token stands for.
    ///
    /// # Errors
    /// The store is away, and it may still count.
    pub async fn end(&self, token: &str) -> Result<(), Unavailable> {
        if !is_token(token) {
            return Ok(());
        }
        self.store.end(&id(token)).await.map_err(|error| away(&error))
    }
}

/// 256 random bits, in hex.
///
/// # Errors
/// The system gives none.
pub fn token() -> Result<String, Unavailable> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(%error, "the system gives no random bytes");
        Unavailable
    })?;
    Ok(hex::encode(bytes))
}

/// May it be one of ours? What is no token costs no query.
#[must_use]
pub fn is_token(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn id(token: &str) -> Arc<str> {
    hex::encode(Sha256::digest(token)).into()
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn away(error: &RecordError) -> Unavailable {
    tracing::error!(%error, "a login to the console cannot be written");
    Unavailable
}

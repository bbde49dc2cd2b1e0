//! Connections, authorizations and idempotency keys: SQLite or PostgreSQL, with the same SQL text for both.

mod queries;
mod sql;

use gavel_mcp_base::{Answer, Moment, UserId};
use gavel_mcp_store::{Location, Migration, Pools, Pruning, Schema, on_readers, on_writer};
use tokio_util::sync::CancellationToken;

const SCHEMA: Schema = Schema {
    name: "google",
    lock: 7_239_418_501_267,
    migrations: &[Migration {
        version: 1,
        sqlite: include_str!("../../migrations/sqlite/0001_google.sql"),
        postgres: include_str!("../../migrations/postgres/0001_google.sql"),
    }],
};

/// The answer under an idempotency key is kept for a week.
const KEY_LIFE_MICROS: i64 = 7 * 24 * 60 * 60 * 1_000_000;

/// A user's connected Google account.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) user: UserId,
    /// Changes with each connection, so that tokens of an older one are no longer used.
    pub(crate) generation: String,
    pub(crate) refresh_token: String,
    pub(crate) scopes: String,
    pub(crate) account: Option<String>,
    pub(crate) connected_at: Moment,
    pub(crate) refused_at: Option<Moment>,
}

/// An authorization in progress.
#[derive(Debug)]
pub(crate) struct Authorization {
    pub(crate) user: UserId,
    /// A digest, so that a reader of the database cannot finish the authorization.
    pub(crate) state: String,
    pub(crate) verifier: String,
    pub(crate) redirect_uri: String,
    pub(crate) expires_at: Moment,
}

/// The caller's claim that calls with the same key are one call.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) user: UserId,
    pub(crate) tool: &'static str,
    pub(crate) key: String,
    /// The digest of the arguments, which detects a key that is reused for other arguments.
    pub(crate) digest: String,
}

/// The state of a key.
#[derive(Debug)]
pub(crate) enum Kept {
    /// The key belongs to a call with other arguments.
    Other,
    /// The call was done, with this answer.
    Answer(Answer),
    /// The call was begun, and its outcome is not recorded.
    Open(Open),
}

#[derive(Debug)]
pub(crate) struct Open {
    /// The mailbox that it used.
    pub(crate) mailbox: String,
    pub(crate) attempted_at: Moment,
}

/// A handle to the database; clones share its connections.
#[derive(Debug, Clone)]
pub(crate) struct Store(Pools);

impl Store {
    /// Opens the database, creates what is missing and migrates its tables.
    pub(crate) async fn open(location: &Location) -> anyhow::Result<Self> {
        Pools::open(location, &SCHEMA).await.map(Self)
    }

    pub(crate) async fn close(&self) {
        self.0.close().await;
    }

    /// Deletes expired authorizations and answered idempotency keys, at the start and every hour.
    pub(crate) fn keep_pruned(&self, stop: CancellationToken) -> Pruning {
        let store = self.clone();
        Pruning::start("old idempotency keys and authorizations", stop, move |now| {
            let store = store.clone();
            async move { on_writer!(store, prune(now)) }
        })
    }

    pub(crate) async fn connection(&self, user: &UserId) -> Result<Option<Connection>, sqlx::Error> {
        on_readers!(self, connection(user))
    }

    /// All users' connections, sorted by user id.
    pub(crate) async fn connections(&self) -> Result<Vec<Connection>, sqlx::Error> {
        on_readers!(self, connections())
    }

    /// Stores a connection, in place of the user's earlier one.
    pub(crate) async fn connect(&self, connection: &Connection) -> Result<(), sqlx::Error> {
        on_writer!(self, connect(connection))
    }

    /// Removes and returns a connection.
    pub(crate) async fn disconnect(&self, user: &UserId) -> Result<Option<Connection>, sqlx::Error> {
        on_writer!(self, disconnect(user))
    }

    /// Records that Google no longer accepts the connection.
    pub(crate) async fn refused(&self, connection: &Connection, now: Moment) -> Result<(), sqlx::Error> {
        on_writer!(self, refused(connection, now))
    }

    /// Stores the same token, sealed with a new key.
    pub(crate) async fn reseal(&self, connection: &Connection, sealed: &str) -> Result<(), sqlx::Error> {
        on_writer!(self, reseal(connection, sealed))
    }

    /// Stores an authorization, in place of the user's earlier one.
    pub(crate) async fn begin(&self, authorization: &Authorization) -> Result<(), sqlx::Error> {
        on_writer!(self, begin(authorization))
    }

    /// Does the authorization still wait to be finished?
    pub(crate) async fn waits(&self, user: &UserId, state: &str) -> Result<bool, sqlx::Error> {
        on_readers!(self, waits(user, state))
    }

    /// Removes and returns an authorization: it can be finished once, by the user who began it.
    pub(crate) async fn take(&self, user: &UserId, state: &str) -> Result<Option<Authorization>, sqlx::Error> {
        on_writer!(self, take(user, state))
    }

    /// Like [`Self::take`] for any user, if the authorization returns to this address.
    pub(crate) async fn take_from(
        &self,
        redirect_uri: &str,
        state: &str,
    ) -> Result<Option<Authorization>, sqlx::Error> {
        on_writer!(self, take_from(redirect_uri, state))
    }

    /// The state of a key.
    pub(crate) async fn kept(&self, claim: &Claim, now: Moment) -> Result<Option<Kept>, sqlx::Error> {
        on_readers!(self, kept(claim, now))
    }

    /// Would a call that was begun at that time still be recorded here, whatever its outcome?
    pub(crate) async fn keeps(&self, begun_at: Moment, now: Moment) -> Result<bool, sqlx::Error> {
        let since = on_readers!(self, kept_since())?;
        Ok(begun_at.0 >= since && begun_at.0 >= now.0 - KEY_LIFE_MICROS)
    }

    /// Stores a key before its first attempt. Returns false if it already exists.
    pub(crate) async fn claim(&self, claim: &Claim, mailbox: &str, now: Moment) -> Result<bool, sqlx::Error> {
        on_writer!(self, claim(claim, mailbox, now))
    }

    /// Begins a further attempt, unless another process did since `open` was read.
    pub(crate) async fn try_again(&self, claim: &Claim, open: &Open, now: Moment) -> Result<bool, sqlx::Error> {
        on_writer!(self, try_again(claim, open, now))
    }

    /// Stores the answer under the key.
    pub(crate) async fn answered(&self, claim: &Claim, answer: &Answer, now: Moment) -> Result<(), sqlx::Error> {
        on_writer!(self, answered(claim, answer, now))
    }

    /// Deletes a key whose attempt at that time did nothing, if that attempt is the latest.
    pub(crate) async fn release(&self, claim: &Claim, attempted_at: Moment) -> Result<(), sqlx::Error> {
        on_writer!(self, release(claim, attempted_at))
    }
}

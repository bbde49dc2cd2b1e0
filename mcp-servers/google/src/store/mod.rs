//! Connections, authorizations and idempotency keys: SQLite or PostgreSQL, with one SQL text for both.

mod queries;
mod sql;

use gavel_mcp_base::store::{Location, Migration, Pools, Pruning, Schema};
use gavel_mcp_base::{Answer, Moment, UserId};
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

/// A user's Google account, as it was connected.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) user: UserId,
    /// Another one with each connection, so that what was got under an older one is not used any more.
    pub(crate) generation: String,
    pub(crate) refresh_token: String,
    pub(crate) scopes: String,
    pub(crate) account: Option<String>,
    pub(crate) connected_at: Moment,
    pub(crate) refused_at: Option<Moment>,
}

/// An authorization that was begun and not finished.
#[derive(Debug)]
pub(crate) struct Authorization {
    pub(crate) user: UserId,
    /// A digest: who reads the database cannot finish it.
    pub(crate) state: String,
    pub(crate) verifier: String,
    pub(crate) redirect_uri: String,
    pub(crate) expires_at: Moment,
}

/// A caller's promise that calls with one key are one call.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) user: UserId,
    pub(crate) tool: &'static str,
    pub(crate) key: String,
    /// Stands for the arguments, so that a key used for something else is noticed.
    pub(crate) digest: String,
}

/// What stands under a key.
#[derive(Debug)]
pub(crate) enum Kept {
    /// A call with other arguments.
    Other,
    /// It was done, and answered with this.
    Answer(Answer),
    /// It was begun, and nobody wrote down what came of it.
    Open(Open),
}

#[derive(Debug)]
pub(crate) struct Open {
    /// From which mailbox.
    pub(crate) mailbox: String,
    pub(crate) attempted_at: Moment,
}

/// A handle to the database; clones share its connections.
#[derive(Debug, Clone)]
pub(crate) struct Store(Pools);

macro_rules! write {
    ($store:expr, $query:ident($($argument:expr),*)) => {
        match &$store.0 {
            Pools::Sqlite { writer, .. } => queries::sqlite::$query(writer, $($argument),*).await,
            Pools::Postgres(pool) => queries::postgres::$query(pool, $($argument),*).await,
        }
    };
}

macro_rules! read {
    ($store:expr, $query:ident($($argument:expr),*)) => {
        match &$store.0 {
            Pools::Sqlite { readers, .. } => queries::sqlite::$query(readers, $($argument),*).await,
            Pools::Postgres(pool) => queries::postgres::$query(pool, $($argument),*).await,
        }
    };
}

impl Store {
    /// Opens the database, creates what is missing and brings its tables up to date.
    pub(crate) async fn open(location: &Location) -> anyhow::Result<Self> {
        Pools::open(location, &SCHEMA).await.map(Self)
    }

    pub(crate) async fn close(&self) {
        self.0.close().await;
    }

    /// Forgets answered idempotency keys and authorizations that are past their life, at start and every hour.
    pub(crate) fn keep_pruned(&self, stop: CancellationToken) -> Pruning {
        let store = self.clone();
        Pruning::start("old idempotency keys and authorizations", stop, move |now| {
            let store = store.clone();
            async move { write!(store, prune(now)) }
        })
    }

    pub(crate) async fn connection(&self, user: &UserId) -> Result<Option<Connection>, sqlx::Error> {
        read!(self, connection(user))
    }

    /// Everybody's, in the order of their ids.
    pub(crate) async fn connections(&self) -> Result<Vec<Connection>, sqlx::Error> {
        read!(self, connections())
    }

    /// Keeps a connection, in place of the one the user had.
    pub(crate) async fn connect(&self, connection: &Connection) -> Result<(), sqlx::Error> {
        write!(self, connect(connection))
    }

    /// Removes a connection and hands it out.
    pub(crate) async fn disconnect(&self, user: &UserId) -> Result<Option<Connection>, sqlx::Error> {
        write!(self, disconnect(user))
    }

    /// Google does not honour it any more.
    pub(crate) async fn refused(&self, connection: &Connection, now: Moment) -> Result<(), sqlx::Error> {
        write!(self, refused(connection, now))
    }

    /// The same token, sealed anew.
    pub(crate) async fn reseal(&self, connection: &Connection, sealed: &str) -> Result<(), sqlx::Error> {
        write!(self, reseal(connection, sealed))
    }

    /// Keeps an authorization, in place of one that the user began before.
    pub(crate) async fn begin(&self, authorization: &Authorization) -> Result<(), sqlx::Error> {
        write!(self, begin(authorization))
    }

    /// Can it still be finished, as far as nobody has tried?
    pub(crate) async fn waits(&self, user: &UserId, state: &str) -> Result<bool, sqlx::Error> {
        read!(self, waits(user, state))
    }

    /// Takes an authorization out: it can be finished once, by the user who began it.
    pub(crate) async fn take(&self, user: &UserId, state: &str) -> Result<Option<Authorization>, sqlx::Error> {
        write!(self, take(user, state))
    }

    /// The same, whoever began it, where it leads back to this address.
    pub(crate) async fn take_from(
        &self,
        redirect_uri: &str,
        state: &str,
    ) -> Result<Option<Authorization>, sqlx::Error> {
        write!(self, take_from(redirect_uri, state))
    }

    /// What stands under a key.
    pub(crate) async fn kept(&self, claim: &Claim, now: Moment) -> Result<Option<Kept>, sqlx::Error> {
        read!(self, kept(claim, now))
    }

    /// Would a call that was begun at that time be written down here still, whatever came of it?
    pub(crate) async fn keeps(&self, begun_at: Moment, now: Moment) -> Result<bool, sqlx::Error> {
        let since = read!(self, kept_since())?;
        Ok(begun_at.0 >= since && begun_at.0 >= now.0 - KEY_LIFE_MICROS)
    }

    /// Writes a key down, before its first attempt. False where it stands there already.
    pub(crate) async fn claim(&self, claim: &Claim, mailbox: &str, now: Moment) -> Result<bool, sqlx::Error> {
        write!(self, claim(claim, mailbox, now))
    }

    /// Begins a further attempt, if nobody else did since `open` was read.
    pub(crate) async fn try_again(&self, claim: &Claim, open: &Open, now: Moment) -> Result<bool, sqlx::Error> {
        write!(self, try_again(claim, open, now))
    }

    /// Writes the answer under the key.
    pub(crate) async fn answered(&self, claim: &Claim, answer: &Answer, now: Moment) -> Result<(), sqlx::Error> {
        write!(self, answered(claim, answer, now))
    }

    /// Forgets a key under which nothing was done by the attempt that began then, if that is the latest.
    pub(crate) async fn release(&self, claim: &Claim, attempted_at: Moment) -> Result<(), sqlx::Error> {
        write!(self, release(claim, attempted_at))
    }
}

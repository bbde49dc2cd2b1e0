//! Connections, authorizations and idempotency keys: SQLite or PostgreSQL, with the same SQL text for both.

use gavel_mcp_base::{Answer, Moment, UserId};
use gavel_mcp_store::{Claim, KEY_LIFE_MICROS, Location, Migration, Pools, Pruning, Schema, on_readers, on_writer};
use sqlx::{ColumnIndex, Decode, FromRow, Row, Type};
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

/// The columns that make up a connection.
macro_rules! connection {
    () => {
        "user_id, generation, refresh_token, scopes, account, connected_at, refused_at"
    };
}

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

impl<'r, R: Row> FromRow<'r, R> for Connection
where
    &'static str: ColumnIndex<R>,
    String: Decode<'r, R::Database> + Type<R::Database>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        let refused_at: Option<i64> = row.try_get("refused_at")?;
        Ok(Self {
            user: user_id(row.try_get("user_id")?)?,
            generation: row.try_get("generation")?,
            refresh_token: row.try_get("refresh_token")?,
            scopes: row.try_get("scopes")?,
            account: row.try_get("account")?,
            connected_at: Moment(row.try_get("connected_at")?),
            refused_at: refused_at.map(Moment),
        })
    }
}

fn user_id(text: String) -> Result<UserId, sqlx::Error> {
    UserId::parse(&text).ok_or_else(|| sqlx::Error::Decode("not a user's id".into()))
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
            async move {
                on_writer!(store, |pool| {
                    let calls = sqlx::query("DELETE FROM google_calls WHERE answered_at < $1")
                        .bind(now.0 - KEY_LIFE_MICROS)
                        .execute(pool)
                        .await?;
                    let authorizations = sqlx::query("DELETE FROM google_authorizations WHERE expires_at < $1")
                        .bind(now.0)
                        .execute(pool)
                        .await?;
                    Ok(calls.rows_affected() + authorizations.rows_affected())
                })
            }
        })
    }

    pub(crate) async fn connection(&self, user: &UserId) -> Result<Option<Connection>, sqlx::Error> {
        on_readers!(self, |pool| {
            sqlx::query_as(concat!(
                "SELECT ",
                connection!(),
                " FROM google_connections WHERE user_id = $1"
            ))
            .bind(user.as_str())
            .fetch_optional(pool)
            .await
        })
    }

    /// All users' connections, sorted by user id.
    pub(crate) async fn connections(&self) -> Result<Vec<Connection>, sqlx::Error> {
        on_readers!(self, |pool| {
            sqlx::query_as(concat!(
                "SELECT ",
                connection!(),
                " FROM google_connections ORDER BY user_id"
            ))
            .fetch_all(pool)
            .await
        })
    }

    /// Stores a connection, in place of the user's earlier one.
    pub(crate) async fn connect(&self, connection: &Connection) -> Result<(), sqlx::Error> {
        on_writer!(self, |pool| {
            sqlx::query(
                "INSERT INTO google_connections
                 (user_id, generation, refresh_token, scopes, account, connected_at, refused_at)
                 VALUES ($1, $2, $3, $4, $5, $6, NULL)
                 ON CONFLICT (user_id) DO UPDATE SET
                 generation = excluded.generation, refresh_token = excluded.refresh_token, scopes = excluded.scopes,
                 account = excluded.account, connected_at = excluded.connected_at, refused_at = NULL",
            )
            .bind(connection.user.as_str())
            .bind(&connection.generation)
            .bind(&connection.refresh_token)
            .bind(&connection.scopes)
            .bind(&connection.account)
            .bind(connection.connected_at.0)
            .execute(pool)
            .await
            .map(drop)
        })
    }

    /// Removes and returns a connection.
    pub(crate) async fn disconnect(&self, user: &UserId) -> Result<Option<Connection>, sqlx::Error> {
        on_writer!(self, |pool| {
            sqlx::query_as(concat!(
                "DELETE FROM google_connections WHERE user_id = $1 RETURNING ",
                connection!()
            ))
            .bind(user.as_str())
            .fetch_optional(pool)
            .await
        })
    }

    /// Records that Google no longer accepts the connection.
    pub(crate) async fn refused(&self, connection: &Connection, now: Moment) -> Result<(), sqlx::Error> {
        on_writer!(self, |pool| {
            sqlx::query(
                "UPDATE google_connections SET refused_at = $3
                 WHERE user_id = $1 AND generation = $2 AND refused_at IS NULL",
            )
            .bind(connection.user.as_str())
            .bind(&connection.generation)
            .bind(now.0)
            .execute(pool)
            .await
            .map(drop)
        })
    }

    /// Stores the same token, sealed with a new key.
    pub(crate) async fn reseal(&self, connection: &Connection, sealed: &str) -> Result<(), sqlx::Error> {
        on_writer!(self, |pool| {
            sqlx::query(
                "UPDATE google_connections SET refresh_token = $4
                 WHERE user_id = $1 AND generation = $2 AND refresh_token = $3",
            )
            .bind(connection.user.as_str())
            .bind(&connection.generation)
            .bind(&connection.refresh_token)
            .bind(sealed)
            .execute(pool)
            .await
            .map(drop)
        })
    }

    /// Stores an authorization, in place of the user's earlier one.
    pub(crate) async fn begin(&self, authorization: &Authorization) -> Result<(), sqlx::Error> {
        on_writer!(self, |pool| {
            let mut transaction = pool.begin().await?;
            sqlx::query("DELETE FROM google_authorizations WHERE user_id = $1")
                .bind(authorization.user.as_str())
                .execute(&mut *transaction)
                .await?;
            sqlx::query(
                "INSERT INTO google_authorizations (state, user_id, verifier, redirect_uri, expires_at)
                 VALUES ($1, $2, $3, $4, $5)",
            )
            .bind(&authorization.state)
            .bind(authorization.user.as_str())
            .bind(&authorization.verifier)
            .bind(&authorization.redirect_uri)
            .bind(authorization.expires_at.0)
            .execute(&mut *transaction)
            .await?;
            transaction.commit().await
        })
    }

    /// Does the authorization still wait to be finished?
    pub(crate) async fn waits(&self, user: &UserId, state: &str) -> Result<bool, sqlx::Error> {
        on_readers!(self, |pool| {
            let found: i64 =
                sqlx::query_scalar("SELECT COUNT(*) FROM google_authorizations WHERE state = $1 AND user_id = $2")
                    .bind(state)
                    .bind(user.as_str())
                    .fetch_one(pool)
                    .await?;
            Ok(found > 0)
        })
    }

    /// Removes and returns an authorization: it can be finished once, by the user who began it, or for any user if it
    /// returns to this address.
    pub(crate) async fn take(
        &self,
        state: &str,
        user: Option<&UserId>,
        redirect_uri: Option<&str>,
    ) -> Result<Option<Authorization>, sqlx::Error> {
        on_writer!(self, |pool| {
            let taken: Option<(String, String, String, i64)> = sqlx::query_as(
                "DELETE FROM google_authorizations
                 WHERE state = $1 AND (user_id = $2 OR $2 IS NULL) AND (redirect_uri = $3 OR $3 IS NULL)
                 RETURNING user_id, verifier, redirect_uri, expires_at",
            )
            .bind(state)
            .bind(user.map(UserId::as_str))
            .bind(redirect_uri)
            .fetch_optional(pool)
            .await?;
            let Some((user, verifier, redirect_uri, expires_at)) = taken else {
                return Ok(None);
            };
            Ok(Some(Authorization {
                user: user_id(user)?,
                state: state.to_owned(),
                verifier,
                redirect_uri,
                expires_at: Moment(expires_at),
            }))
        })
    }

    /// The state of a key.
    pub(crate) async fn kept(&self, claim: &Claim, now: Moment) -> Result<Option<Kept>, sqlx::Error> {
        on_readers!(self, |pool| {
            let row: Option<(String, String, Option<String>, i64)> = sqlx::query_as(
                "SELECT arguments, mailbox, answer, attempted_at FROM google_calls
                 WHERE user_id = $1 AND tool = $2 AND idem_key = $3 AND (answered_at IS NULL OR answered_at >= $4)",
            )
            .bind(claim.user.as_str())
            .bind(claim.tool)
            .bind(&claim.key)
            .bind(now.0 - KEY_LIFE_MICROS)
            .fetch_optional(pool)
            .await?;
            let Some((digest, mailbox, answer, attempted_at)) = row else {
                return Ok(None);
            };
            if digest != claim.digest {
                return Ok(Some(Kept::Other));
            }
            let Some(answer) = answer else {
                let attempted_at = Moment(attempted_at);
                return Ok(Some(Kept::Open(Open { mailbox, attempted_at })));
            };
            let body = serde_json::from_str(&answer).map_err(|error| sqlx::Error::Decode(error.into()))?;
            Ok(Some(Kept::Answer(Answer::new(false, body))))
        })
    }

    /// Would a call that was begun at that time still be recorded here, whatever its outcome?
    pub(crate) async fn keeps(&self, begun_at: Moment, now: Moment) -> Result<bool, sqlx::Error> {
        let since: i64 = on_readers!(self, |pool| {
            sqlx::query_scalar("SELECT MIN(applied_at) FROM google_migrations")
                .fetch_one(pool)
                .await
        })?;
        Ok(begun_at.0 >= since && begun_at.0 >= now.0 - KEY_LIFE_MICROS)
    }

    /// Stores a key before its first attempt. Returns false if it already exists.
    pub(crate) async fn claim(&self, claim: &Claim, mailbox: &str, now: Moment) -> Result<bool, sqlx::Error> {
        on_writer!(self, |pool| {
            sqlx::query(
                "DELETE FROM google_calls
                 WHERE user_id = $1 AND tool = $2 AND idem_key = $3 AND answered_at < $4",
            )
            .bind(claim.user.as_str())
            .bind(claim.tool)
            .bind(&claim.key)
            .bind(now.0 - KEY_LIFE_MICROS)
            .execute(pool)
            .await?;
            let claimed = sqlx::query(
                "INSERT INTO google_calls
                 (user_id, tool, idem_key, arguments, mailbox, attempted_at)
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
            )
            .bind(claim.user.as_str())
            .bind(claim.tool)
            .bind(&claim.key)
            .bind(&claim.digest)
            .bind(mailbox)
            .bind(now.0)
            .execute(pool)
            .await?;
            Ok(claimed.rows_affected() == 1)
        })
    }

    /// Begins a further attempt, unless another process did since `open` was read.
    pub(crate) async fn try_again(&self, claim: &Claim, open: &Open, now: Moment) -> Result<bool, sqlx::Error> {
        on_writer!(self, |pool| {
            let taken = sqlx::query(
                "UPDATE google_calls SET attempted_at = $5
                 WHERE user_id = $1 AND tool = $2 AND idem_key = $3 AND answer IS NULL AND attempted_at = $4",
            )
            .bind(claim.user.as_str())
            .bind(claim.tool)
            .bind(&claim.key)
            .bind(open.attempted_at.0)
            .bind(now.0)
            .execute(pool)
            .await?;
            Ok(taken.rows_affected() == 1)
        })
    }

    /// Stores the answer under the key.
    pub(crate) async fn answered(&self, claim: &Claim, answer: &Answer, now: Moment) -> Result<(), sqlx::Error> {
        on_writer!(self, |pool| {
            sqlx::query(
                "UPDATE google_calls SET answer = $4, answered_at = $5
                 WHERE user_id = $1 AND tool = $2 AND idem_key = $3",
            )
            .bind(claim.user.as_str())
            .bind(claim.tool)
            .bind(&claim.key)
            .bind(answer.body.to_string())
            .bind(now.0)
            .execute(pool)
            .await
            .map(drop)
        })
    }

    /// Deletes a key whose attempt at that time did nothing, if that attempt is the latest.
    pub(crate) async fn release(&self, claim: &Claim, attempted_at: Moment) -> Result<(), sqlx::Error> {
        on_writer!(self, |pool| {
            sqlx::query(
                "DELETE FROM google_calls
                 WHERE user_id = $1 AND tool = $2 AND idem_key = $3 AND answer IS NULL AND attempted_at = $4",
            )
            .bind(claim.user.as_str())
            .bind(claim.tool)
            .bind(&claim.key)
            .bind(attempted_at.0)
            .execute(pool)
            .await
            .map(drop)
        })
    }
}

//! The store's functions, written once and instantiated for each database.

macro_rules! queries_on {
    ($module:ident, $database:ty, $row:ty) => {
        pub(super) mod $module {
            use gavel_mcp_base::{Answer, Moment, UserId};
            use sqlx::{FromRow, Pool, Row};

            use crate::store::{Authorization, Claim, Connection, KEY_LIFE_MICROS, Kept, Open, sql};

            type Db = $database;
            type Result<T> = std::result::Result<T, sqlx::Error>;

            impl<'r> FromRow<'r, $row> for Connection {
                fn from_row(row: &'r $row) -> Result<Self> {
                    let user: String = row.try_get("user_id")?;
                    let refused_at: Option<i64> = row.try_get("refused_at")?;
                    Ok(Self {
                        user: UserId::parse(&user).ok_or_else(|| sqlx::Error::Decode("not a user's id".into()))?,
                        generation: row.try_get("generation")?,
                        refresh_token: row.try_get("refresh_token")?,
                        scopes: row.try_get("scopes")?,
                        account: row.try_get("account")?,
                        connected_at: Moment(row.try_get("connected_at")?),
                        refused_at: refused_at.map(Moment),
                    })
                }
            }

            pub(crate) async fn connection(pool: &Pool<Db>, user: &UserId) -> Result<Option<Connection>> {
                sqlx::query_as(sql::CONNECTION)
                    .bind(user.as_str())
                    .fetch_optional(pool)
                    .await
            }

            pub(crate) async fn connections(pool: &Pool<Db>) -> Result<Vec<Connection>> {
                sqlx::query_as(sql::CONNECTIONS).fetch_all(pool).await
            }

            pub(crate) async fn connect(pool: &Pool<Db>, connection: &Connection) -> Result<()> {
                sqlx::query(sql::CONNECT)
                    .bind(connection.user.as_str())
                    .bind(&connection.generation)
                    .bind(&connection.refresh_token)
                    .bind(&connection.scopes)
                    .bind(&connection.account)
                    .bind(connection.connected_at.0)
                    .execute(pool)
                    .await
                    .map(drop)
            }

            pub(crate) async fn disconnect(pool: &Pool<Db>, user: &UserId) -> Result<Option<Connection>> {
                sqlx::query_as(sql::DISCONNECT)
                    .bind(user.as_str())
                    .fetch_optional(pool)
                    .await
            }

            pub(crate) async fn refused(pool: &Pool<Db>, connection: &Connection, now: Moment) -> Result<()> {
                sqlx::query(sql::REFUSED)
                    .bind(connection.user.as_str())
                    .bind(&connection.generation)
                    .bind(now.0)
                    .execute(pool)
                    .await
                    .map(drop)
            }

            pub(crate) async fn reseal(pool: &Pool<Db>, connection: &Connection, sealed: &str) -> Result<()> {
                sqlx::query(sql::RESEAL)
                    .bind(connection.user.as_str())
                    .bind(&connection.generation)
                    .bind(&connection.refresh_token)
                    .bind(sealed)
                    .execute(pool)
                    .await
                    .map(drop)
            }

            pub(crate) async fn begin(pool: &Pool<Db>, authorization: &Authorization) -> Result<()> {
                let mut transaction = pool.begin().await?;
                sqlx::query(sql::FORGET_AUTHORIZATIONS)
                    .bind(authorization.user.as_str())
                    .execute(&mut *transaction)
                    .await?;
                sqlx::query(sql::BEGIN)
                    .bind(&authorization.state)
                    .bind(authorization.user.as_str())
                    .bind(&authorization.verifier)
                    .bind(&authorization.redirect_uri)
                    .bind(authorization.expires_at.0)
                    .execute(&mut *transaction)
                    .await?;
                transaction.commit().await
            }

            pub(crate) async fn take(pool: &Pool<Db>, user: &UserId, state: &str) -> Result<Option<Authorization>> {
                let taken: Option<(String, String, i64)> = sqlx::query_as(sql::TAKE)
                    .bind(state)
                    .bind(user.as_str())
                    .fetch_optional(pool)
                    .await?;
                Ok(taken.map(|(verifier, redirect_uri, expires_at)| Authorization {
                    user: user.clone(),
                    state: state.to_owned(),
                    verifier,
                    redirect_uri,
                    expires_at: Moment(expires_at),
                }))
            }

            pub(crate) async fn take_from(
                pool: &Pool<Db>,
                redirect_uri: &str,
                state: &str,
            ) -> Result<Option<Authorization>> {
                let taken: Option<(String, String, i64)> = sqlx::query_as(sql::TAKE_FROM)
                    .bind(state)
                    .bind(redirect_uri)
                    .fetch_optional(pool)
                    .await?;
                let Some((user, verifier, expires_at)) = taken else {
                    return Ok(None);
                };
                Ok(Some(Authorization {
                    user: UserId::parse(&user).ok_or_else(|| sqlx::Error::Decode("not a user's id".into()))?,
                    state: state.to_owned(),
                    verifier,
                    redirect_uri: redirect_uri.to_owned(),
                    expires_at: Moment(expires_at),
                }))
            }

            pub(crate) async fn waits(pool: &Pool<Db>, user: &UserId, state: &str) -> Result<bool> {
                let found: i64 = sqlx::query_scalar(sql::WAITS)
                    .bind(state)
                    .bind(user.as_str())
                    .fetch_one(pool)
                    .await?;
                Ok(found > 0)
            }

            pub(crate) async fn kept(pool: &Pool<Db>, claim: &Claim, now: Moment) -> Result<Option<Kept>> {
                let row: Option<(String, String, Option<String>, i64)> = sqlx::query_as(sql::KEPT)
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
                    return Ok(Some(Kept::Open(Open {
                        mailbox,
                        attempted_at,
                    })));
                };
                let body = serde_json::from_str(&answer).map_err(|error| sqlx::Error::Decode(error.into()))?;
                Ok(Some(Kept::Answer(Answer::new(false, body))))
            }

            pub(crate) async fn kept_since(pool: &Pool<Db>) -> Result<i64> {
                sqlx::query_scalar(sql::KEPT_SINCE).fetch_one(pool).await
            }

            pub(crate) async fn claim(pool: &Pool<Db>, claim: &Claim, mailbox: &str, now: Moment) -> Result<bool> {
                sqlx::query(sql::FORGET_KEY)
                    .bind(claim.user.as_str())
                    .bind(claim.tool)
                    .bind(&claim.key)
                    .bind(now.0 - KEY_LIFE_MICROS)
                    .execute(pool)
                    .await?;
                let claimed = sqlx::query(sql::CLAIM)
                    .bind(claim.user.as_str())
                    .bind(claim.tool)
                    .bind(&claim.key)
                    .bind(&claim.digest)
                    .bind(mailbox)
                    .bind(now.0)
                    .execute(pool)
                    .await?;
                Ok(claimed.rows_affected() == 1)
            }

            pub(crate) async fn try_again(pool: &Pool<Db>, claim: &Claim, open: &Open, now: Moment) -> Result<bool> {
                let taken = sqlx::query(sql::TRY_AGAIN)
                    .bind(claim.user.as_str())
                    .bind(claim.tool)
                    .bind(&claim.key)
                    .bind(open.attempted_at.0)
                    .bind(now.0)
                    .execute(pool)
                    .await?;
                Ok(taken.rows_affected() == 1)
            }

            pub(crate) async fn answered(pool: &Pool<Db>, claim: &Claim, answer: &Answer, now: Moment) -> Result<()> {
                sqlx::query(sql::ANSWERED)
                    .bind(claim.user.as_str())
                    .bind(claim.tool)
                    .bind(&claim.key)
                    .bind(answer.body.to_string())
                    .bind(now.0)
                    .execute(pool)
                    .await
                    .map(drop)
            }

            pub(crate) async fn release(pool: &Pool<Db>, claim: &Claim, attempted_at: Moment) -> Result<()> {
                sqlx::query(sql::RELEASE)
                    .bind(claim.user.as_str())
                    .bind(claim.tool)
                    .bind(&claim.key)
                    .bind(attempted_at.0)
                    .execute(pool)
                    .await
                    .map(drop)
            }

            pub(crate) async fn prune(pool: &Pool<Db>, now: Moment) -> Result<u64> {
                let calls = sqlx::query(sql::PRUNE_CALLS)
                    .bind(now.0 - KEY_LIFE_MICROS)
                    .execute(pool)
                    .await?;
                let authorizations = sqlx::query(sql::PRUNE_AUTHORIZATIONS)
                    .bind(now.0)
                    .execute(pool)
                    .await?;
                Ok(calls.rows_affected() + authorizations.rows_affected())
            }
        }
    };
}

queries_on!(sqlite, sqlx::Sqlite, sqlx::sqlite::SqliteRow);
queries_on!(postgres, sqlx::Postgres, sqlx::postgres::PgRow);

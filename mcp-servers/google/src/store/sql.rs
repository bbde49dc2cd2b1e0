//! The SQL, in the subset that SQLite and PostgreSQL share.

/// The columns that make up a connection.
macro_rules! connection {
    () => {
        "user_id, generation, refresh_token, scopes, account, connected_at, refused_at"
    };
}

pub(super) const CONNECTION: &str = concat!("SELECT ", connection!(), " FROM google_connections WHERE user_id = $1");

pub(super) const CONNECTIONS: &str = concat!("SELECT ", connection!(), " FROM google_connections ORDER BY user_id");

pub(super) const CONNECT: &str = "INSERT INTO google_connections
        (user_id, generation, refresh_token, scopes, account, connected_at, refused_at)
     VALUES ($1, $2, $3, $4, $5, $6, NULL)
     ON CONFLICT (user_id) DO UPDATE SET
        generation = excluded.generation, refresh_token = excluded.refresh_token, scopes = excluded.scopes,
        account = excluded.account, connected_at = excluded.connected_at, refused_at = NULL";

pub(super) const DISCONNECT: &str = concat!(
    "DELETE FROM google_connections WHERE user_id = $1 RETURNING ",
    connection!()
);

pub(super) const REFUSED: &str = "UPDATE google_connections SET refused_at = $3
     WHERE user_id = $1 AND generation = $2 AND refused_at IS NULL";

pub(super) const RESEAL: &str = "UPDATE google_connections SET refresh_token = $4
     WHERE user_id = $1 AND generation = $2 AND refresh_token = $3";

pub(super) const FORGET_AUTHORIZATIONS: &str = "DELETE FROM google_authorizations WHERE user_id = $1";

pub(super) const BEGIN: &str = "INSERT INTO google_authorizations (state, user_id, verifier, redirect_uri, expires_at)
     VALUES ($1, $2, $3, $4, $5)";

pub(super) const WAITS: &str = "SELECT COUNT(*) FROM google_authorizations WHERE state = $1 AND user_id = $2";

pub(super) const TAKE: &str = "DELETE FROM google_authorizations WHERE state = $1 AND user_id = $2
     RETURNING verifier, redirect_uri, expires_at";

pub(super) const TAKE_FROM: &str = "DELETE FROM google_authorizations WHERE state = $1 AND redirect_uri = $2
     RETURNING user_id, verifier, expires_at";

// A key without an answer does not expire: without it the effect would happen a second time.

pub(super) const KEPT: &str = "SELECT arguments, mailbox, answer, attempted_at FROM google_calls
     WHERE user_id = $1 AND tool = $2 AND idem_key = $3 AND (answered_at IS NULL OR answered_at >= $4)";

// Calls from before this time are unknown here.
pub(super) const KEPT_SINCE: &str = "SELECT MIN(applied_at) FROM google_migrations";

pub(super) const FORGET_KEY: &str = "DELETE FROM google_calls
     WHERE user_id = $1 AND tool = $2 AND idem_key = $3 AND answered_at < $4";

pub(super) const CLAIM: &str = "INSERT INTO google_calls
        (user_id, tool, idem_key, arguments, mailbox, attempted_at)
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";

pub(super) const TRY_AGAIN: &str = "UPDATE google_calls SET attempted_at = $5
     WHERE user_id = $1 AND tool = $2 AND idem_key = $3 AND answer IS NULL AND attempted_at = $4";

pub(super) const ANSWERED: &str = "UPDATE google_calls SET answer = $4, answered_at = $5
     WHERE user_id = $1 AND tool = $2 AND idem_key = $3";

pub(super) const RELEASE: &str = "DELETE FROM google_calls
     WHERE user_id = $1 AND tool = $2 AND idem_key = $3 AND answer IS NULL AND attempted_at = $4";

pub(super) const PRUNE_CALLS: &str = "DELETE FROM google_calls WHERE answered_at < $1";

pub(super) const PRUNE_AUTHORIZATIONS: &str = "DELETE FROM google_authorizations WHERE expires_at < $1";

//! Console logins: port [`SessionStore`].

use async_trait::async_trait;

use super::Store;
use super::db::{Conn, Value, sql, values};
use super::error::Fault;
use super::op::Op;
use super::queue::Batch;
use super::table::{Column, Insert, Table};
use crate::ports::records::{QueryError, RecordError};
use crate::ports::sessions::{Credential, Session, SessionStore};
use std::sync::{Arc, LazyLock};

type Login = Column<Session>;

/// The columns of a login. Only a token has roles; a key is looked up again by its name.
#[rustfmt::skip] // A line for each.
static SESSION: Table<Session> = Table { name: "console_session", columns: &[
    Login::open("id", |session, _| (&session.id).into()).shown(),
    Login::open("tenant", |session, _| (&session.tenant).into()).shown(),
    Login::open("kind", |session, _| match &session.credential {
        Credential::Key { .. } => "key",
        Credential::Token { .. } => "token",
    }.into()),
    Login::open("credential", |session, _| match &session.credential {
        Credential::Key { name, .. } => name.into(),
        Credential::Token { .. } => session.user.as_ref().into(),
    }).shown_as("credential.name"),
    Login::open("fingerprint", |session, _| match &session.credential {
        Credential::Key { fingerprint, .. } | Credential::Token { fingerprint, .. } => fingerprint.into(),
    }).shown_as("credential.fingerprint"),
    Login::open("roles", |session, _| match &session.credential {
        Credential::Key { .. } => Value::Text(None),
        Credential::Token { roles, .. } => Value::json(roles.as_ref()),
    }).shown_as("credential.roles"),
    Login::open("user_id", |session, _| session.user.as_ref().into()).shown_as("user"),
    Login::open("created_at", |session, _| session.created_us.into()).shown_as("created_us"),
    Login::open("seen_at", |session, _| session.seen_us.into()).shown_as("seen_us"),
    Login::open("expires_at", |session, _| session.expires_us.into()).shown_as("expires_us"),
] };

#[async_trait]
impl SessionStore for Store {
    async fn begin(&self, session: Session) -> Result<(), RecordError> {
        self.write(Op::BeginLogin(session)).await
    }

    async fn find(&self, id: &str) -> Result<Option<Session>, QueryError> {
        let sql = sql!("SELECT {} FROM console_session WHERE id = $1", SESSION.selected());
        self.working.one(sql, values![id]).await
    }

    async fn seen(&self, id: &str, at_us: i64) -> Result<(), RecordError> {
        self.write(Op::NoteLogin(id.into(), at_us)).await
    }

    async fn end(&self, id: &str) -> Result<(), RecordError> {
        self.write(Op::EndLogin(id.into())).await
    }
}

impl Batch<'_> {
    pub(super) async fn begin_login(&self, conn: &mut Conn, session: &Session) -> Result<(), Fault> {
        static BEGIN: LazyLock<Insert> = LazyLock::new(|| SESSION.inserts("ON CONFLICT (id) DO NOTHING"));
        BEGIN.run(conn, SESSION.begin(session, self.writing)).await?;
        Ok(())
    }

    pub(super) async fn note_login(&self, conn: &mut Conn, id: &Arc<str>, at_us: i64) -> Result<(), Fault> {
        let note = "UPDATE console_session SET seen_at = $2 WHERE id = $1 AND seen_at < $2";
        conn.execute(note, values![id, at_us]).await?;
        Ok(())
    }

    pub(super) async fn end_login(&self, conn: &mut Conn, id: &Arc<str>) -> Result<(), Fault> {
        conn.execute("DELETE FROM console_session WHERE id = $1", values![id])
            .await?;
        Ok(())
    }
}

//! Console logins: port [`SessionStore`].

use std::ops::ControlFlow;
use std::sync::Arc;

use super::Store;
use super::batch::Batch;
use super::db::{Conn, Row, Value};
use super::error::Fault;
use super::op::{Op, SessionOp};
use super::parsed::{opt_parsed, parsed};
use crate::domain::ids::{TenantId, UserId};
use crate::ports::BoxFuture;
use crate::ports::records::{QueryError, RecordError};
use crate::ports::sessions::{Credential, Session, SessionStore};

const COLUMNS: &str = "id, tenant, kind, credential, fingerprint, roles, user_id, created_at, seen_at, expires_at";

impl SessionStore for Store {
    fn begin(&self, session: Session) -> BoxFuture<'_, Result<(), RecordError>> {
        Box::pin(self.write_session("begin session", SessionOp::Begin(session)))
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Session>, QueryError>> {
        Box::pin(async move {
            let sql = format!("SELECT {COLUMNS} FROM console_session WHERE id = $1");
            let mut found = None;
            let each = &mut |row: Row| {
                found = Some(session(&row)?);
                Ok(ControlFlow::Break(()))
            };
            self.working.rows(sql.into(), vec![Value::text(id)], each).await?;
            Ok(found)
        })
    }

    fn seen<'a>(&'a self, id: &'a str, at_us: i64) -> BoxFuture<'a, Result<(), RecordError>> {
        Box::pin(self.write_session("note session", SessionOp::Seen(id.into(), at_us)))
    }

    fn end<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), RecordError>> {
        Box::pin(self.write_session("end session", SessionOp::End(id.into())))
    }
}

impl Store {
    async fn write_session(&self, what: &'static str, op: SessionOp) -> Result<(), RecordError> {
        self.write(what, Op::Session(op)).await.map(drop)
    }
}

impl Batch<'_> {
    pub(super) async fn write_session(&self, conn: &mut Conn, op: &SessionOp) -> Result<(), Fault> {
        let (sql, values) = match op {
            SessionOp::Begin(session) => (
                format!(
                    "INSERT INTO console_session ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
                     ON CONFLICT (id) DO NOTHING"
                ),
                row(session),
            ),
            SessionOp::Seen(id, at) => (
                "UPDATE console_session SET seen_at = $2 WHERE id = $1 AND seen_at < $2".to_owned(),
                vec![Value::shared(id), Value::Int(Some(*at))],
            ),
            SessionOp::End(id) => (
                "DELETE FROM console_session WHERE id = $1".to_owned(),
                vec![Value::shared(id)],
            ),
        };
        conn.execute(&sql.into(), values).await?;
        Ok(())
    }
}

fn row(session: &Session) -> Vec<Value> {
    let user = session.user.as_ref().map(|user| Value::text(user.as_str()));
    let none = Value::Text(None);
    let (kind, credential, fingerprint, roles) = match &session.credential {
        Credential::Key { name, fingerprint } => ("key", Value::shared(name), fingerprint, none.clone()),
        Credential::Token { fingerprint, roles } => {
            let roles = serde_json::json!(roles.as_ref()).to_string();
            let user = user.clone().unwrap_or(none.clone());
            ("token", user, fingerprint, Value::text(&roles))
        }
    };
    vec![
        Value::shared(&session.id),
        Value::text(session.tenant.as_str()),
        Value::text(kind),
        credential,
        Value::shared(fingerprint),
        roles,
        user.unwrap_or(none),
        Value::Int(Some(session.created_us)),
        Value::Int(Some(session.seen_us)),
        Value::Int(Some(session.expires_us)),
    ]
}

fn session(row: &Row) -> Result<Session, sqlx::Error> {
    let fingerprint = row.text(4)?.into();
    let roles = opt_parsed(row, 5, |text| serde_json::from_str(text).ok())?;
    Ok(Session {
        id: row.text(0)?.into(),
        tenant: parsed(row, 1, |text| TenantId::parse(text).ok())?,
        credential: match roles {
            Some(roles) => Credential::Token {
                fingerprint,
                roles: Arc::new(roles),
            },
            None => Credential::Key {
                name: row.text(3)?.into(),
                fingerprint,
            },
        },
        user: opt_parsed(row, 6, |text| UserId::parse(text).ok())?,
        created_us: row.int(7)?,
        seen_us: row.int(8)?,
        expires_us: row.int(9)?,
    })
}

//! Read-only access to the audit log: in a database that is in use, in a copy, or in an export.

use std::ops::ControlFlow;

use super::super::connect::Target;
use super::super::db::{Conn, Dialect, Value};
use super::super::error::StoreError;
use super::super::migrate;
use super::columns::{PAGE, bytes, columns, read, read_text, whole};
use super::finding::Finding;
use super::head::Head;
use super::keys::{self, AuditSecrets, KeyPlace};
use super::triggers::{self, TriggerDamage};
use super::verify::Verifier;
use super::{AuditRow, Signer, compare};

/// The available keys of the chain.
#[derive(Clone)]
pub struct AuditKeys(pub(super) Vec<Signer>);

/// An audit log that can be read.
pub struct AuditLog {
    conn: Conn,
    keys: Vec<Signer>,
    columns: String,
}

/// Selects rows.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// The kind of event.
    pub kind: Option<String>,
    /// The tenant.
    pub tenant: Option<String>,
    /// The actor.
    pub actor: Option<String>,
    /// The decision, or run.
    pub decision: Option<String>,
    /// The tool call.
    pub action: Option<String>,
    /// The tool.
    pub tool: Option<String>,
    /// The earliest time, in microseconds since the epoch.
    pub since: Option<i64>,
}

impl AuditFilter {
    /// The conditions, with their values from parameter `first` on.
    fn conditions(&self, first: usize) -> (String, Vec<Value>) {
        let (mut text, mut values) = (String::new(), Vec::new());
        for (column, value) in [
            ("kind", &self.kind),
            ("tenant", &self.tenant),
            ("actor", &self.actor),
            ("decision_id", &self.decision),
            ("action_id", &self.action),
            ("tool", &self.tool),
        ] {
            if let Some(value) = value {
                text += &format!(" AND {column} = ${}", first + values.len());
                values.push(Value::text(value));
            }
        }
        if let Some(since) = self.since {
            text += &format!(" AND at >= ${}", first + values.len());
            values.push(Value::Int(Some(since)));
        }
        (text, values)
    }
}

impl AuditLog {
    /// Opens the audit log for reading. The keys are the configured ones, the one in the file next to a SQLite
    /// database, and the one in the database.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open(url: &str, keys: &AuditSecrets) -> Result<Self, StoreError> {
        let target = Target::parse(url, None)?;
        if let Some(path) = target.missing() {
            return Err(StoreError::Missing(path.display().to_string()));
        }
        let mut conn = target.reader().await?;
        let pending = migrate::status(&mut conn).await?.pending.len();
        if pending > 0 {
            return Err(StoreError::Behind(pending));
        }
        let keys = keys::all(&target, &mut conn, keys).await?;
        let columns = columns(target.dialect());
        Ok(Self { conn, keys, columns })
    }

    /// The keys that [`AuditLog::open`] would use: the configured ones, that of the file, and that of the database,
    /// where available.
    ///
    /// # Errors
    /// [`StoreError`]: there may be more keys. The keys found so far are always returned.
    pub async fn keys(url: &str, given: &AuditSecrets) -> (AuditKeys, Result<(), StoreError>) {
        let mut found = given.given();
        let read = async {
            let target = Target::parse(url, None)?;
            found.extend(keys::beside_database(&target)?);
            if let Some(path) = target.missing() {
                return Err(StoreError::Missing(path.display().to_string()));
            }
            let mut conn = target.reader().await?;
            let kept = keys::in_database(&mut conn).await;
            conn.close().await;
            found.extend(kept?);
            Ok(())
        };
        let read = read.await;
        (AuditKeys(found), read)
    }

    /// Where the key for new rows of a database is stored.
    ///
    /// # Errors
    /// [`StoreError::Url`].
    pub fn key_place(url: &str, keys: &AuditSecrets) -> Result<KeyPlace, StoreError> {
        Ok(KeyPlace::of(&Target::parse(url, None)?, keys))
    }

    /// The missing keys, each with its number of rows.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn lost_keys(&mut self) -> Result<Vec<(String, i64)>, StoreError> {
        let key = match self.conn.dialect() {
            Dialect::Postgres => "key_id".to_owned(),
            Dialect::Sqlite => bytes("key_id"),
        };
        let sql = format!("SELECT {key}, COUNT(*) FROM audit GROUP BY 1 ORDER BY 1");
        let dialect = self.conn.dialect();
        let (mut lost, keys) = (Vec::new(), &self.keys);
        self.conn
            .fetch(&sql.as_str().into(), vec![], &mut |row| {
                let key = read_text(dialect, &row, 0)?.unwrap_or_default();
                if keys.iter().all(|known| known.id() != key) {
                    lost.push((key, row.int(1)?));
                }
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        Ok(lost)
    }

    /// The head in the database; `None` if the database has lost it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn head(&mut self) -> Result<Option<Head>, StoreError> {
        let dialect = self.conn.dialect();
        let columns = match dialect {
            Dialect::Postgres => "number, hash".to_owned(),
            Dialect::Sqlite => format!("{}, {}", whole("number"), bytes("hash")),
        };
        let sql = format!("SELECT {columns} FROM audit_head WHERE id = 1");
        let Some(row) = self.conn.first(&sql.as_str().into(), vec![]).await? else {
            return Ok(None);
        };
        let hash = read_text(dialect, &row, 1)?.unwrap_or_default();
        // A value that is not a number is not a head.
        Ok((row.int(0)? >= 0).then_some(Head {
            number: row.int(0)?,
            hash,
        }))
    }

    /// Rows after number `after`, in order, at most one page.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn page(&mut self, after: i64, filter: &AuditFilter) -> Result<Vec<AuditRow>, StoreError> {
        let (conditions, more) = filter.conditions(2);
        let sql = format!(
            "SELECT {} FROM audit WHERE number > $1{conditions} ORDER BY number LIMIT {PAGE}",
            self.columns
        );
        let mut values = vec![Value::Int(Some(after))];
        values.extend(more);
        self.rows(&sql, values).await
    }

    /// The latest rows, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn latest(&mut self, most: u32, filter: &AuditFilter) -> Result<Vec<AuditRow>, StoreError> {
        let (conditions, more) = filter.conditions(2);
        let sql = format!(
            "SELECT {} FROM audit WHERE number > 0{conditions} ORDER BY number DESC LIMIT $1",
            self.columns
        );
        let mut values = vec![Value::Int(Some(i64::from(most)))];
        values.extend(more);
        self.rows(&sql, values).await
    }

    /// Verifies the chain and compares it with the other tables and the triggers. `kept` are heads that were kept
    /// elsewhere. `progress` receives the number of rows read and the total.
    ///
    /// # Errors
    /// [`StoreError`]: the audit log cannot be read. Findings are not errors.
    pub async fn verify(
        &mut self,
        kept: Vec<Head>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Verifier, StoreError> {
        // The last row is read before the head, which moves with every row. So a row beyond the head was not written by
        // gavel, and rows that are added from now on are ignored.
        let number = match self.conn.dialect() {
            Dialect::Postgres => "number".to_owned(),
            Dialect::Sqlite => whole("number"),
        };
        let last = format!("SELECT MAX({number}) FROM audit");
        let last = self.conn.first(&last.as_str().into(), vec![]).await?;
        let last = last.map_or(Ok(None), |row| row.opt_int(0))?.unwrap_or(0);
        let head = self.head().await?;
        let end = head.as_ref().map_or(last, |head| head.number.max(last));
        let mut verifier = Verifier::new(self.keys.clone(), Some(head), kept);
        let all = AuditFilter::default();
        let mut after = i64::MIN;
        loop {
            let page = self.page(after, &all).await?;
            let last = page.iter().map(|row| row.number).max();
            // A page without a higher number ends the loop.
            let grown = last.filter(|last| *last > after);
            for row in page.iter().filter(|row| row.number <= end) {
                verifier.row(row);
            }
            progress(verifier.rows(), u64::try_from(end).unwrap_or(0));
            match grown {
                Some(last) if last < end => after = last,
                _ => break,
            }
        }
        verifier.end();
        compare::all(&mut self.conn, &mut verifier).await?;
        for damage in self.triggers().await? {
            verifier.find(Finding::Trigger(damage));
        }
        Ok(verifier)
    }

    /// The triggers that keep the audit log append-only and differ from the migration.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn triggers(&mut self) -> Result<Vec<TriggerDamage>, StoreError> {
        Ok(triggers::damage(&mut self.conn).await?)
    }

    async fn rows(&mut self, sql: &str, values: Vec<Value>) -> Result<Vec<AuditRow>, StoreError> {
        let mut rows = Vec::new();
        let dialect = self.conn.dialect();
        self.conn
            .fetch(&sql.into(), values, &mut |row| {
                rows.push(read(dialect, &row)?);
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        Ok(rows)
    }

    /// Closes the connection.
    pub async fn close(self) {
        self.conn.close().await;
    }
}

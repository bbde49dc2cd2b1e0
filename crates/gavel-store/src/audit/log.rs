//! Read-only access to the audit log: in a database that is in use, in a copy, or in an export.

use std::io::BufRead;

use serde::Deserialize;

use super::super::connect::Target;
use super::super::db::{Conn, sql, values};
use super::super::error::StoreError;
use super::super::read::ReadOnly;
use super::chain::Head;
use super::keys::{self, AuditSecrets, KeyPlace};
use super::triggers::{self, TriggerDamage};
use super::verify::{Finding, Verifier};
use super::{AuditRow, PAGE, Signer, columns, compare};
use crate::api::why::{AuditProof, ProofRow};
use crate::domain::ids::{ActionId, DecisionId, TenantId};
use crate::domain::time::Timestamp;
use crate::ports::records::QueryError;
use crate::writer::Shared;

/// The available keys of the chain.
#[derive(Clone)]
pub struct AuditKeys(pub(super) Vec<Signer>);

/// An audit log that can be read.
pub struct AuditLog {
    conn: Conn,
    keys: Vec<Signer>,
}

/// Selects rows.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Columns of texts, and the text that each has.
    pub columns: Vec<(&'static str, String)>,
    /// The earliest time, in microseconds since the epoch.
    pub since: Option<i64>,
}

impl AuditLog {
    /// Opens the audit log for reading. The keys are the configured ones, the one in the file next to a SQLite
    /// database, and the one in the database.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open(url: &str, keys: &AuditSecrets) -> Result<Self, StoreError> {
        let target = Target::parse(url, None)?;
        ReadOnly::check(&target).await?;
        let (signers, read) = keys::all(&target, keys).await;
        match read {
            // The configured key is enough; a key file may be from before it was configured.
            Err(error) if keys.current.is_some() => {
                tracing::warn!(%error, "audit: another key is ignored, since audit.key is set");
            }
            read => read?,
        }
        let conn = target.reader().await?;
        Ok(Self { conn, keys: signers })
    }

    /// The keys that [`AuditLog::open`] would use: the configured ones, that of the file, and that of the database,
    /// where available.
    ///
    /// # Errors
    /// [`StoreError`]: there may be more keys. The keys found so far are always returned.
    pub async fn keys(url: &str, given: &AuditSecrets) -> (AuditKeys, Result<(), StoreError>) {
        let (keys, read) = match Target::parse(url, None) {
            Ok(target) => keys::all(&target, given).await,
            Err(error) => (given.given(), Err(error)),
        };
        (AuditKeys(keys), read)
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
        #[derive(Deserialize)]
        struct Key {
            key: Option<String>,
            rows: i64,
        }
        let sql = "SELECT @text(key_id) AS key, COUNT(*) AS rows FROM audit GROUP BY 1 ORDER BY 1";
        let keys: Vec<Key> = self.conn.all(sql, vec![]).await?;
        let keys = keys.into_iter().map(|key| (key.key.unwrap_or_default(), key.rows));
        let is_known = |key: &str| self.keys.iter().any(|known| known.id() == key);
        Ok(keys.filter(|(key, _)| !is_known(key)).collect())
    }

    /// The head in the database; `None` if the database has lost it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn head(&mut self) -> Result<Option<Head>, StoreError> {
        let sql = "SELECT @whole(number) AS number, COALESCE(@text(hash), '') AS hash FROM audit_head WHERE id = 1";
        let head: Option<Head> = self.conn.one(sql, vec![]).await?;
        // A value that is not a number is not a head.
        Ok(head.filter(|head| head.number >= 0))
    }

    /// Rows after number `after`, in order, at most one page.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn page(&mut self, after: i64, filter: &AuditFilter) -> Result<Vec<AuditRow>, StoreError> {
        self.rows(after, filter, &format!("number LIMIT {PAGE}")).await
    }

    /// The latest rows, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn latest(&mut self, most: u32, filter: &AuditFilter) -> Result<Vec<AuditRow>, StoreError> {
        self.rows(0, filter, &format!("number DESC LIMIT {most}")).await
    }

    async fn rows(&mut self, after: i64, filter: &AuditFilter, order: &str) -> Result<Vec<AuditRow>, StoreError> {
        let (mut conditions, mut values) = ("number > $1".to_owned(), values![after]);
        for (column, value) in &filter.columns {
            values.push(value.into());
            conditions += &format!(" AND {column} = ${}", values.len());
        }
        if let Some(since) = filter.since {
            values.push(since.into());
            conditions += &format!(" AND at >= ${}", values.len());
        }
        let sql = format!("SELECT {} FROM audit WHERE {conditions} ORDER BY {order}", columns());
        let sql = self.conn.dialect().text(&sql);
        Ok(self.conn.all(sql, values).await?)
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
        let last = self
            .conn
            .one::<Option<i64>>("SELECT MAX(@whole(number)) FROM audit", vec![]);
        let last = last.await?;
        let last = last.flatten().unwrap_or(0);
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
            progress(verifier.rows, u64::try_from(end).unwrap_or(0));
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

    /// Closes the connection.
    pub async fn close(self) {
        self.conn.close().await;
    }
}

/// An export: one row per line, and the head on the last line.
impl Verifier {
    /// Verifies an export with these keys. `open` starts a new read: the export is read twice, first for its head.
    ///
    /// # Errors
    /// The export cannot be read, or a line is not one of an export.
    pub fn of_export<R: BufRead>(
        keys: &AuditKeys,
        kept: Vec<Head>,
        open: impl Fn() -> std::io::Result<R>,
    ) -> std::io::Result<Self> {
        let (mut head, mut follows) = (None, None);
        let mut misplaced = None;
        each_line(open()?, |line| match line {
            Line::Head { head: found, after } => {
                misplaced = misplaced.or(head
                    .replace(found)
                    .is_some()
                    .then_some("more than one line with a head"));
                follows = after;
            }
            Line::Row(_) => {
                misplaced = misplaced.or(head.is_some().then_some("rows after its head"));
            }
        })?;
        if let Some(misplaced) = misplaced {
            let problem = format!("it has {misplaced}, so it is not a single export; verify each export separately");
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, problem));
        }
        let mut verifier = Self::new(keys.0.clone(), Some(head), kept);
        if let Some(after) = follows {
            verifier.follows(after);
        }
        each_line(open()?, |line| {
            if let Line::Row(row) = line {
                verifier.row(&row);
            }
        })?;
        verifier.end();
        Ok(verifier)
    }
}

/// A line of an export.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Line {
    Head {
        head: Head,
        /// What the first row follows, if the export is a part.
        after: Option<Head>,
    },
    Row(Box<AuditRow>),
}

fn each_line(reader: impl BufRead, mut take: impl FnMut(Line)) -> std::io::Result<()> {
    for (n, line) in (1..).zip(reader.lines()) {
        let line = line?;
        let line = serde_json::from_str(&line).map_err(|error| {
            let problem = format!("line {n} is not a line of an audit export: {error}");
            std::io::Error::new(std::io::ErrorKind::InvalidData, problem)
        })?;
        take(line);
    }
    Ok(())
}

/// The most rows that one decision shows.
const MOST_PROOF: u32 = 1000;

/// A row with the hash of the row before it.
#[derive(Deserialize)]
struct Linked {
    before: Option<String>,
    #[serde(flatten)]
    row: AuditRow,
}

/// The rows of a decision, or of one of its calls, and whether each is genuine and follows the row before it.
///
/// # Errors
/// [`QueryError`].
pub(crate) async fn proof(
    reading: &ReadOnly,
    shared: &Shared,
    tenant: &TenantId,
    decision: DecisionId,
    action: Option<ActionId>,
) -> Result<AuditProof, QueryError> {
    let (target, given) = (&shared.target, &shared.config.audit);
    let sql = sql!(
        "SELECT (SELECT before.hash FROM audit before WHERE before.number = audit.number - 1) AS before, {} FROM audit \
         WHERE decision_id = $1 AND tenant = $2 AND (CAST($3 AS TEXT) IS NULL OR action_id = $3) ORDER BY number \
         LIMIT {MOST_PROOF}",
        columns()
    );
    let rows: Vec<Linked> = reading.all(sql, values![decision, tenant, action]).await?;
    if rows.is_empty() {
        return Ok(AuditProof::default());
    }
    let keys = keys::readable(target, given, reading).await?;
    let mut verifier = Verifier::new(keys, None, Vec::new());
    for Linked { before, row } in &rows {
        if verifier.last.number.checked_add(1) != Some(row.number) {
            verifier.follows(Head {
                number: row.number.saturating_sub(1),
                hash: before.clone().unwrap_or_default(),
            });
        }
        verifier.row(row);
    }
    verifier.end();
    let shown = |Linked { row, .. }: Linked| ProofRow {
        number: row.number,
        kind: row.kind,
        at: Timestamp(row.at),
        actor: row.actor,
        tool: row.tool,
    };
    Ok(AuditProof {
        verified: Some(verifier.found == 0),
        rows: rows.into_iter().map(shown).collect(),
    })
}

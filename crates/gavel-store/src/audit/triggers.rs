//! The triggers that make the audit log append-only. An owner of the database can drop or change them. `damage` lists
//! those that differ from the migration. `restore` recreates them and adds audit entries, in one transaction.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::db::{Conn, Dialect};
use super::super::error::{Fault, StoreError};
use super::super::migrate;
use super::{AuditKind, Entry, Whose};
use crate::domain::names::names;
use crate::queue::Batch;

names! {
    /// How a trigger differs from the migration.
    TriggerState {
        /// It does not exist.
        Missing = "missing",
        /// It does something else, or is disabled.
        Changed = "changed",
    }
}

/// A trigger that differs from the migration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TriggerDamage {
    /// Its name.
    pub trigger: String,
    /// `audit` or `audit_head`.
    pub table: String,
    /// How it differs.
    pub state: TriggerState,
}

impl fmt::Display for TriggerDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "trigger {}: {} on {}; the database no longer rejects every change of an entry; gavel restores it at its next start",
            self.state, self.trigger, self.table
        )
    }
}

/// A trigger as the migration creates it.
struct Expected {
    name: &'static str,
    table: &'static str,
    /// The statement, without its end.
    statement: &'static str,
}

impl Expected {
    /// All of them, read from the migration.
    fn all(dialect: Dialect) -> Vec<Self> {
        let end = match dialect {
            Dialect::Sqlite => "END;",
            Dialect::Postgres => ";",
        };
        let text = migrate::schema(dialect);
        text.match_indices("CREATE TRIGGER ")
            .map(|(begin, _)| {
                let rest = &text[begin..];
                let statement = &rest[..rest.find(end).map_or(rest.len(), |at| at + end.len() - 1)];
                let mut words = statement.split_whitespace().skip(2);
                let name = words.next().unwrap_or_default();
                let table = words.skip_while(|word| *word != "ON").nth(1).unwrap_or_default();
                Self { name, table, statement }
            })
            .filter(|trigger| trigger.table.starts_with("audit"))
            .collect()
    }

    /// Its effect, in the form in which the database returns it ([`found`]).
    fn fingerprint(&self, dialect: Dialect) -> String {
        if dialect == Dialect::Sqlite {
            return single_line(self.statement);
        }
        // The bits of pg_trigger.tgtype.
        let bit = |word: &str| match word {
            "ROW" => 1,
            "BEFORE" => 2,
            "INSERT" => 4,
            "DELETE" => 8,
            "UPDATE" => 16,
            "TRUNCATE" => 32,
            _ => 0,
        };
        let kind: i32 = self.statement.split_whitespace().map(bit).sum();
        let function = self.statement.rsplit(' ').next().unwrap_or_default();
        let body = functions().find(|text| text.starts_with(function)).unwrap_or_default();
        let body = body.split("$$").nth(1).unwrap_or_default();
        single_line(&format!("{kind} on {} plpgsql {body}", function.trim_end_matches("()")))
    }

    /// SQL that recreates it, whether or not it exists.
    fn again(&self, dialect: Dialect) -> String {
        let on = match dialect {
            Dialect::Sqlite => String::new(),
            Dialect::Postgres => format!(" ON {}", self.table),
        };
        format!("DROP TRIGGER IF EXISTS {}{on};\n{};\n", self.name, self.statement)
    }
}

/// The functions of the triggers on PostgreSQL, each from its name to its end.
fn functions() -> impl Iterator<Item = &'static str> {
    migrate::schema(Dialect::Postgres)
        .split("CREATE FUNCTION ")
        .skip(1)
        .map(|text| {
            let end = text
                .match_indices("$$")
                .nth(1)
                .map_or(text.len(), |(at, end)| at + end.len());
            &text[..end]
        })
}

fn single_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A trigger of the audit tables.
#[derive(Deserialize)]
struct Found {
    name: String,
    #[serde(rename = "of_table")]
    table: String,
    effect: String,
}

async fn found(conn: &mut Conn) -> Result<Vec<Found>, sqlx::Error> {
    let sql = match conn.dialect() {
        Dialect::Sqlite => {
            "SELECT CAST(name AS TEXT) AS name, lower(tbl_name) AS of_table, CAST(sql AS TEXT) AS effect FROM sqlite_master \
             WHERE type = 'trigger' AND lower(tbl_name) IN ('audit', 'audit_head') ORDER BY 2, 1"
        }
        Dialect::Postgres => {
            "SELECT t.tgname::text AS name, c.relname::text AS of_table, concat_ws(' ', t.tgtype, \
                 CASE WHEN t.tgenabled IN ('O', 'A') AND t.tgqual IS NULL AND t.tgattr::text = '' AND t.tgnargs = 0 \
                      THEN 'on' ELSE 'off' END, \
                 p.proname, l.lanname, p.prosrc) AS effect \
             FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
                 JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_language l ON l.oid = p.prolang \
             WHERE n.nspname = current_schema() AND c.relname IN ('audit', 'audit_head') AND NOT t.tgisinternal \
             ORDER BY 2, 1"
        }
    };
    conn.all(sql, vec![]).await
}

/// The triggers that differ from the migration. Triggers that gavel did not create belong to the operator. Entries that
/// such a trigger drops are detected by the comparison with the tool-call log.
pub(super) async fn damage(conn: &mut Conn) -> Result<Vec<TriggerDamage>, sqlx::Error> {
    let damaged = damaged(conn).await?.into_iter();
    Ok(damaged.map(|(_, damage)| damage).collect())
}

async fn damaged(conn: &mut Conn) -> Result<Vec<(Expected, TriggerDamage)>, sqlx::Error> {
    let dialect = conn.dialect();
    let found = found(conn).await?;
    let damage = |expected: Expected| {
        let is_it = |found: &&Found| found.name == expected.name && found.table == expected.table;
        let state = match found.iter().find(is_it).map(|found| single_line(&found.effect)) {
            None => TriggerState::Missing,
            Some(effect) if effect != expected.fingerprint(dialect) => TriggerState::Changed,
            Some(_) => return None,
        };
        let damage = TriggerDamage {
            trigger: expected.name.to_owned(),
            table: expected.table.to_owned(),
            state,
        };
        Some((expected, damage))
    };
    Ok(Expected::all(dialect).into_iter().filter_map(damage).collect())
}

/// Recreates missing and changed triggers and adds an audit entry for each, in one transaction. Waits at most
/// `patience` for other writers. Returns what was restored.
///
/// # Errors
/// [`StoreError`]: nothing was restored.
pub(crate) async fn restore(
    conn: &mut Conn,
    batch: &Batch<'_>,
    patience: Duration,
) -> Result<Vec<TriggerDamage>, StoreError> {
    let found = damage(conn).await?;
    if found.is_empty() {
        return Ok(found);
    }
    migrate::lock(conn, patience).await?;
    match restore_locked(conn, batch).await {
        Ok(found) => {
            conn.script("COMMIT").await?;
            Ok(found)
        }
        Err(fault) => {
            if let Err(error) = conn.script("ROLLBACK").await {
                tracing::debug!(%error, "could not roll back the restoration of triggers");
            }
            Err(StoreError::Unavailable(fault.reason().clone()))
        }
    }
}

async fn restore_locked(conn: &mut Conn, batch: &Batch<'_>) -> Result<Vec<TriggerDamage>, Fault> {
    let dialect = conn.dialect();
    // Another process may have restored them first.
    let damaged = damaged(conn).await?;
    let mut script = String::new();
    if dialect == Dialect::Postgres {
        // In the order in which writers lock them.
        script.push_str("LOCK TABLE audit_head, audit IN ACCESS EXCLUSIVE MODE;\n");
        script.extend(functions().map(|text| format!("CREATE OR REPLACE FUNCTION {text};\n")));
    }
    batch.trail.begin();
    for (expected, damage) in &damaged {
        script.push_str(&expected.again(dialect));
        let entry = Entry::new(AuditKind::TriggerRestored, Uuid::now_v7())
            .by("gavel")
            .for_(Whose::new("", ""))
            .with("trigger", expected.name)
            .with("table", expected.table)
            .with("was", damage.state.as_str());
        batch.audit(entry);
    }
    conn.script(script).await?;
    batch.write_trail(conn).await?;
    Ok(damaged.into_iter().map(|(_, damage)| damage).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trigger_of_the_migration_is_read_whole() {
        let names = |dialect| -> Vec<_> { Expected::all(dialect).iter().map(|it| (it.table, it.name)).collect() };
        assert_eq!(
            names(Dialect::Sqlite),
            [
                ("audit", "audit_follows"),
                ("audit", "audit_moves_head"),
                ("audit", "audit_keeps"),
                ("audit", "audit_stays"),
                ("audit_head", "audit_head_advances"),
                ("audit_head", "audit_head_stays"),
                ("audit_head", "audit_head_is_one"),
            ]
        );
        assert_eq!(
            names(Dialect::Postgres),
            [
                ("audit", "audit_follows"),
                ("audit", "audit_keeps"),
                ("audit", "audit_stays"),
                ("audit_head", "audit_head_advances"),
                ("audit_head", "audit_head_stays"),
                ("audit_head", "audit_head_remains"),
            ]
        );
        for expected in Expected::all(Dialect::Sqlite) {
            assert!(expected.statement.ends_with("\nEND"), "{}", expected.statement);
        }
        for expected in Expected::all(Dialect::Postgres) {
            let does = expected.fingerprint(Dialect::Postgres);
            assert!(does.contains(" plpgsql BEGIN ") && does.ends_with(" END"), "{does}");
        }
    }
}

//! How the columns of the audit log are read: whatever a row holds, it is noticed.

use super::super::db::{Dialect, Row};
use super::AuditRow;
use super::statements::ROW;

/// Rows of a page: few enough that no page takes long or much memory.
pub(super) const PAGE: i64 = 500;

/// The columns as they are read. SQLite allows values of any type in any column. A value that gavel never writes must
/// be detected, and must not end the reading. So a non-integer is read as the lowest number, and texts are read as
/// bytes.
pub(super) fn columns(dialect: Dialect) -> String {
    let column = |name: &str| match dialect {
        Dialect::Postgres => name.to_owned(),
        Dialect::Sqlite if NUMBERS.contains(&name) => whole(name),
        Dialect::Sqlite => bytes(name),
    };
    ROW.split(", ").map(column).collect::<Vec<_>>().join(", ")
}

const NUMBERS: [&str; 3] = ["number", "format", "at"];

/// The bytes of a SQLite value, as [`read_text`] reads them.
pub(super) fn bytes(column: &str) -> String {
    // A value that is not text (such as a blob of the same bytes) is shown as a byte that no text contains.
    format!("CASE typeof({column}) WHEN 'null' THEN NULL WHEN 'text' THEN hex({column}) ELSE 'FF' END")
}

/// A SQLite number; the lowest number for any other value.
pub(super) fn whole(column: &str) -> String {
    format!(
        "CASE typeof({column}) WHEN 'integer' THEN {column} ELSE {} END",
        i64::MIN + 1
    )
}

pub(super) fn read(dialect: Dialect, row: &Row) -> Result<AuditRow, sqlx::Error> {
    let maybe = |at: usize| read_text(dialect, row, at);
    let text = |at: usize| Ok::<_, sqlx::Error>(maybe(at)?.unwrap_or_default());
    Ok(AuditRow {
        number: row.int(0)?,
        format: row.int(1)?,
        at: row.int(2)?,
        kind: text(3)?,
        subject: text(4)?,
        tenant: text(5)?,
        actor: text(6)?,
        decision_id: maybe(7)?,
        action_id: maybe(8)?,
        tool: maybe(9)?,
        detail: text(10)?,
        key_id: text(11)?,
        previous_hash: text(12)?,
        hash: text(13)?,
    })
}

/// A text of [`columns`]. A non-text value becomes a text that gavel never writes, so the row does not verify.
pub(super) fn read_text(dialect: Dialect, row: &Row, at: usize) -> Result<Option<String>, sqlx::Error> {
    let found = row.opt_text(at)?;
    Ok(match dialect {
        Dialect::Postgres => found,
        Dialect::Sqlite => found.map(|hexed| {
            let bytes = hex::decode(hexed).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        }),
    })
}

//! The columns of the audit log, and how they are read: whatever a row holds, it is noticed.

use super::super::db::Dialect;
use super::super::table::{Column, Table};
use super::AuditRow;

/// Rows of a page: few enough that no page takes long or much memory.
pub(super) const PAGE: usize = 500;

type Audit = Column<AuditRow>;

#[rustfmt::skip] // A line for each.
pub(super) static AUDIT: Table<AuditRow> = Table { name: "audit", columns: &[
    Audit::open("number", |row, _| row.number.into()).shown(),
    Audit::open("format", |row, _| row.format.into()).shown(),
    Audit::open("at", |row, _| row.at.into()).shown(),
    Audit::open("kind", |row, _| (&row.kind).into()).shown(),
    Audit::open("subject", |row, _| (&row.subject).into()).shown(),
    Audit::open("tenant", |row, _| (&row.tenant).into()).shown(),
    Audit::open("actor", |row, _| (&row.actor).into()).shown(),
    Audit::open("decision_id", |row, _| row.decision_id.as_ref().into()).shown(),
    Audit::open("action_id", |row, _| row.action_id.as_ref().into()).shown(),
    Audit::open("tool", |row, _| row.tool.as_ref().into()).shown(),
    Audit::open("detail", |row, _| (&row.detail).into()).shown(),
    Audit::open("key_id", |row, _| (&row.key_id).into()).shown(),
    Audit::open("previous_hash", |row, _| (&row.previous_hash).into()).shown(),
    Audit::open("hash", |row, _| (&row.hash).into()).shown(),
] };

/// The columns as they are read. SQLite allows values of any type in any column. A value that gavel never writes must
/// be detected, and must not end the reading. So anything but a number is read as the lowest number, and anything but a
/// text as one that gavel never writes.
pub(super) fn columns(dialect: Dialect) -> String {
    let columns = AUDIT.names().map(|name| {
        let read = match (name, dialect) {
            ("number" | "format" | "at", _) => whole(dialect, name),
            ("decision_id" | "action_id" | "tool", _) | (_, Dialect::Postgres) => text(dialect, name),
            (_, Dialect::Sqlite) => format!("COALESCE({}, '')", text(dialect, name)),
        };
        format!("{read} AS {name}")
    });
    columns.collect::<Vec<_>>().join(", ")
}

/// A text, NULL, or in place of any other value of SQLite a byte that no text contains.
pub(super) fn text(dialect: Dialect, column: &str) -> String {
    match dialect {
        Dialect::Postgres => column.to_owned(),
        Dialect::Sqlite => {
            format!("CASE typeof({column}) WHEN 'null' THEN NULL WHEN 'text' THEN {column} ELSE x'FF' END")
        }
    }
}

/// A number, or in place of any other value of SQLite the lowest.
pub(super) fn whole(dialect: Dialect, column: &str) -> String {
    match dialect {
        Dialect::Postgres => column.to_owned(),
        Dialect::Sqlite => {
            let lowest = i64::MIN + 1;
            format!("CASE typeof({column}) WHEN 'integer' THEN {column} ELSE {lowest} END")
        }
    }
}

//! Values of rows that gavel wrote, parsed.

use super::db::Row;

/// Parses a value that gavel wrote; it fails only if the row was edited outside gavel.
pub(super) fn parsed<T>(row: &Row, column: usize, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, sqlx::Error> {
    opt_parsed(row, column, parse)?.ok_or_else(|| unreadable(column))
}

pub(super) fn opt_parsed<T>(
    row: &Row,
    column: usize,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, sqlx::Error> {
    let Some(text) = row.opt_text(column)? else {
        return Ok(None);
    };
    parse(&text).map(Some).ok_or_else(|| unreadable(column))
}

fn unreadable(column: usize) -> sqlx::Error {
    sqlx::Error::Decode(format!("column {column} of a run holds a value that gavel never writes").into())
}

//! Converts between values of a row and values of the domain.

use std::ops::ControlFlow;

use super::super::db::{Conn, Row, Sql, Value};
use super::super::error::Fault;
use super::statements::MANY;
use crate::domain::agent_run::InDoubtCall;
use crate::domain::decision::Usage;
use crate::domain::ids::RunId;

/// The values of the four counts of tokens.
pub(in super::super) fn tokens(usage: Usage) -> [Value; 4] {
    let Usage {
        input_tokens,
        output_tokens,
        thought_tokens,
        cached_tokens,
    } = usage;
    [input_tokens, output_tokens, thought_tokens, cached_tokens].map(count)
}

/// In-doubt calls as stored in a row.
pub(in super::super) fn in_doubt(calls: &[InDoubtCall]) -> Result<Value, Fault> {
    if calls.is_empty() {
        return Ok(Value::Text(None));
    }
    let json = serde_json::to_string(calls);
    Ok(Value::text(
        &json.map_err(|error| Fault::Refused(error.to_string().into()))?,
    ))
}

/// Runs in groups of [`MANY`]; the last group is filled up with its last run.
pub(in super::super) fn many(runs: &[RunId]) -> impl Iterator<Item = Vec<Value>> {
    runs.chunks(MANY).map(|runs| {
        let mut values: Vec<_> = runs.iter().map(id).collect();
        if let Some(last) = values.last().cloned() {
            values.resize(MANY, last);
        }
        values
    })
}

/// Passes every row to `take`.
pub(in super::super) async fn each(
    conn: &mut Conn,
    sql: &Sql,
    values: Vec<Value>,
    mut take: impl FnMut(&Row) -> Result<(), sqlx::Error> + Send,
) -> Result<(), Fault> {
    conn.fetch(sql, values, &mut |row| {
        take(&row)?;
        Ok(ControlFlow::Continue(()))
    })
    .await?;
    Ok(())
}

/// Parses a value that gavel wrote; it fails only if the row was edited outside gavel.
pub(in super::super) fn parse<T>(text: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, Fault> {
    read(text).ok_or_else(|| Fault::Refused(format!("a row holds a value that gavel never writes: {text:?}").into()))
}

pub(in super::super) fn id(id: impl std::fmt::Display) -> Value {
    Value::text(&id.to_string())
}

pub(in super::super) fn int(int: i64) -> Value {
    Value::Int(Some(int))
}

pub(in super::super) fn count(count: u64) -> Value {
    int(i64::try_from(count).unwrap_or(i64::MAX))
}

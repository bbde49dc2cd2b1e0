//! Rows as JSON. Columns are read by their position in `fields.rs`.

use serde_json::{Value as Json, json};

use super::super::db::Row;
use crate::domain::time::rfc3339;

/// Converts a row to its public form, and adds to the bytes read so far.
pub(in super::super) type Shape<T> = fn(&Row, &mut usize) -> Result<T, sqlx::Error>;

/// A decision, with the names of the reply of `POST /v1/chat`. Values that are unknown or not stored are null.
pub(super) fn decision(row: &Row, bytes: &mut usize) -> Result<Json, sqlx::Error> {
    let (response, message) = (row.opt_text(5)?, row.opt_text(17)?);
    *bytes += length(&response) + length(&message);
    Ok(json!({
        "decision_id": row.text(1)?,
        "conversation_id": row.text(2)?,
        "decision_type": row.opt_text(3)?,
        "outcome_category": row.opt_text(4)?,
        "response": response,
        "iterations": row.opt_int(6)?,
        "model": row.opt_text(7)?,
        "requested_model": row.text(22)?,
        "service_tier": row.opt_text(23)?,
        "usage": {
            "input_tokens": row.opt_int(8)?,
            "output_tokens": row.opt_int(9)?,
            "thought_tokens": row.opt_int(10)?,
            "cached_tokens": row.opt_int(11)?,
        },
        "duration_ms": milliseconds(row.opt_int(12)?),
        "surface": row.text(13)?,
        "user_id": row.text(14)?,
        "status": row.text(15)?,
        "intent": row.opt_text(16)?,
        "message": message,
        "created_at": rfc3339(row.int(0)?),
        "definition_hash": row.text(18)?,
        "error_detail": row.opt_text(19)?,
        "request_id": row.text(20)?,
        "recovered": row.bool(21)?,
    }))
}

/// A tool call, as in `tool_calls` of a decision, with further columns of the log.
pub(super) fn tool_call(row: &Row, bytes: &mut usize) -> Result<Json, sqlx::Error> {
    let (parameters, data, words) = (row.opt_text(5)?, row.opt_text(7)?, row.opt_text(9)?);
    *bytes += length(&parameters) + length(&data) + length(&words);
    let status = row.text(6)?;
    let error = row
        .opt_text(8)?
        .map(|code| json!({ "code": code, "message": words.unwrap_or_default() }));
    Ok(json!({
        "sequence": row.int(3)?,
        "tool": row.text(4)?,
        "parameters": parsed(parameters),
        "result": {
            "success": status == "completed",
            "data": parsed(data),
            "error": error,
            "duration_ms": milliseconds(row.opt_int(10)?),
        },
        "server": row.opt_text(11)?,
        "status": status,
        "tool_digest": row.opt_text(12)?,
        "side_effect": row.bool(13)?,
        "input_hash": row.opt_text(16)?,
        "policy": row.opt_text(17)?,
        "decided_by": row.opt_text(18)?,
    }))
}

/// A tool call by itself, with its decision.
pub(super) fn tool_invocation(row: &Row, bytes: &mut usize) -> Result<Json, sqlx::Error> {
    let mut call = tool_call(row, bytes)?;
    call["tool_invocation_id"] = row.text(1)?.into();
    call["decision_id"] = row.text(2)?.into();
    call["user_id"] = row.text(14)?.into();
    call["created_at"] = rfc3339(row.int(0)?).into();
    call["started_at"] = row.opt_int(15)?.map(rfc3339).into();
    Ok(call)
}

fn length(text: &Option<String>) -> usize {
    text.as_ref().map_or(0, String::len)
}

fn milliseconds(us: Option<i64>) -> Option<i64> {
    us.map(|us| us / 1000)
}

/// The column holds JSON; other text (written outside gavel) is shown as a string.
fn parsed(json: Option<String>) -> Option<Json> {
    json.map(|text| serde_json::from_str(&text).unwrap_or(Json::String(text)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_have_microseconds_and_a_z() {
        assert_eq!(super::rfc3339(1_795_132_800_000_001), "2026-11-20T00:00:00.000001Z");
    }
}

//! The public columns of a run, and the values in them.

use serde_json::value::RawValue;

use super::super::db::Row;
use super::super::parsed::{opt_parsed, parsed};
use crate::domain::agent_run::{AgentRun, Attempt, InDoubtCall, RunStatus, StopReason};
use crate::domain::decision::{Outcome, Usage};
use crate::domain::ids::RunId;
use crate::domain::time::rfc3339;

/// The public columns of a run, in the order of [`shown`]; `created_at` and `id` come first, as in every list.
pub(in super::super) const SHOWN: &str = "created_at, id, project_id, agent_id, parent_run_id, status, summary, output, \
     error_message, steps, started_at, completed_at, definition_hash, version, attempts, recovered_from, \
     stop_reason, in_doubt, input_tokens, output_tokens, thought_tokens, cached_tokens, \
     (SELECT decision.outcome_category FROM decision_log decision WHERE decision.id = agent_run.id) AS outcome_category";

/// A row of [`SHOWN`]. Adds to the bytes read so far.
pub(in super::super) fn shown(row: &Row, bytes: &mut usize) -> Result<AgentRun, sqlx::Error> {
    let (summary, output, error_message) = (row.opt_text(6)?, row.opt_text(7)?, row.opt_text(8)?);
    *bytes += [
        &summary,
        &output,
        &error_message,
        &row.opt_text(14)?,
        &row.opt_text(17)?,
    ]
    .into_iter()
    .flatten()
    .map(String::len)
    .sum::<usize>();
    let (started_at, completed_at) = (row.opt_int(10)?, row.opt_int(11)?);
    let duration_us = started_at
        .zip(completed_at)
        .map(|(start, end)| end.saturating_sub(start));
    Ok(AgentRun {
        id: run_id(row, 1)?,
        project_id: row.text(2)?,
        agent_id: row.text(3)?,
        parent_run_id: opt_run_id(row, 4)?,
        status: parsed(row, 5, RunStatus::parse)?,
        summary,
        output: opt_parsed(row, 7, json)?,
        error_message,
        steps: row.int(9)?.try_into().unwrap_or(u32::MAX),
        created_at: rfc3339(row.int(0)?),
        started_at: started_at.map(rfc3339),
        completed_at: completed_at.map(rfc3339),
        // The duration is 0 if the clock was set back.
        duration_ms: duration_us.map(|us| us.max(0).unsigned_abs() / 1000),
        definition_hash: row.text(12)?,
        definition_version: row.opt_int(13)?,
        attempts: attempts(row, 14)?,
        recovered_from: opt_parsed(row, 15, StopReason::parse)?,
        stop_reason: opt_parsed(row, 16, StopReason::parse)?,
        in_doubt: in_doubt(row, 17)?,
        usage: usage(row, 18)?,
        outcome_category: opt_parsed(row, 22, Outcome::parse)?,
    })
}

/// The four columns from `first` on.
pub(in super::super) fn usage(row: &Row, first: usize) -> Result<Usage, sqlx::Error> {
    let count = |at| row.int(first + at).map(i64::unsigned_abs);
    Ok(Usage {
        input_tokens: count(0)?,
        output_tokens: count(1)?,
        thought_tokens: count(2)?,
        cached_tokens: count(3)?,
    })
}

pub(super) fn json(text: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(text.to_owned()).ok()
}

pub(super) fn in_doubt(row: &Row, column: usize) -> Result<Vec<InDoubtCall>, sqlx::Error> {
    let calls = opt_parsed(row, column, |text| serde_json::from_str(text).ok())?;
    Ok(calls.unwrap_or_default())
}

fn attempts(row: &Row, column: usize) -> Result<Vec<Attempt>, sqlx::Error> {
    let attempts = opt_parsed(row, column, |text| serde_json::from_str(text).ok())?;
    Ok(attempts.unwrap_or_default())
}

pub(super) fn run_id(row: &Row, column: usize) -> Result<RunId, sqlx::Error> {
    parsed(row, column, RunId::parse)
}

pub(super) fn opt_run_id(row: &Row, column: usize) -> Result<Option<RunId>, sqlx::Error> {
    opt_parsed(row, column, RunId::parse)
}

//! A run that this process has just created, known from memory: nothing of it is read back.

use crate::journal::Journal;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::prepare::Given;
use super::prepare::{task, to_message};
use super::{Agents, Unfinished};
use crate::api::runs::AgentRun;
use crate::domain::decision::Outcome;
use crate::domain::journal::Entry;
use crate::domain::time::Timestamp;
use crate::live::Live;
use crate::log;
use crate::ports::commit::RunEnd;
use crate::ports::runs::{NewRun, StoredEntry, StoredRun};

/// A run that this process creates and executes at once.
///
/// It is registered as running before its row exists, so that a cancellation finds it from its first moment.
pub struct Fresh {
    pub(super) stored: StoredRun,
    /// The entries that are written with the row.
    pub(super) journal: Journal,
    pub(super) given: Given,
    pub(super) live: Live,
    pub(super) cancel: CancellationToken,
    pub(super) registered: Unfinished,
}

impl Fresh {
    /// For a run to be created. Adds the task to the entries that are written with its row.
    #[must_use]
    pub fn of(agents: &Agents, new: &mut NewRun, given: Given) -> Self {
        let at_us = new.decision.created_at;
        // A task that cannot be rendered ends the run, once it exists.
        let words = given.bundle.get(&new.agent).and_then(|member| {
            let strategy = given.settings.strategy(&member.definition);
            task(&member.definition, &strategy, &given.settings, &given.input).ok()?
        });
        let journal: Journal = words
            .map(|words| to_message(&words, at_us, given.settings.zone))
            .into_iter()
            .collect();
        new.entries = journal.iter().map(|entry| first(entry, at_us)).collect();
        let (live, cancel) = (Live::new(new.id), CancellationToken::new());
        Self {
            stored: StoredRun::of(new),
            journal,
            given,
            registered: agents.running.begin(new.id, live.clone(), cancel.clone()),
            live,
            cancel,
        }
    }
}

/// The stored form of the first entry.
fn first(entry: &Entry, at_us: i64) -> StoredEntry {
    StoredEntry {
        number: 1,
        at_us,
        elapsed_us: 0,
        body: log::text(entry).into(),
    }
}

/// The public view of a run that has ended in the process that created it, as the store returns it. `None` if the store
/// may return other text than it was given.
pub(super) fn shown(stored: &StoredRun, end: &RunEnd, outcome: Outcome) -> Option<AgentRun> {
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    if [&end.summary, &end.error_message]
        .into_iter()
        .flatten()
        .any(|text| text.contains('\0'))
    {
        return None;
    }
    let started_at = stored.started_at?;
    Some(AgentRun {
        id: stored.id,
        project_id: stored.project.to_string(),
        agent_id: stored.agent.to_string(),
        parent_run_id: stored.origin.parent().map(|(run, _)| *run),
        status: end.status,
        summary: text(&end.summary),
        output: end.output.as_deref().map(ToOwned::to_owned),
        error_message: text(&end.error_message),
        steps: end.steps,
        created_at: Timestamp(stored.decision.created_at),
        started_at: Some(Timestamp(started_at)),
        completed_at: Some(Timestamp(end.completed_at)),
        duration_ms: Some(end.completed_at.saturating_sub(started_at).max(0).unsigned_abs() / 1000),
        definition_hash: stored.decision.definition_hash.to_string(),
        definition_version: stored.version,
        attempts: Vec::new(),
        recovered_from: end.recovered_from,
        stop_reason: end.stop_reason,
        in_doubt: end.in_doubt.clone(),
        usage: end.usage,
        outcome_category: Some(outcome),
    })
}

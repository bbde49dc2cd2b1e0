//! The recorded past of a run that a process claims: its journal, its clock, its thread.

use crate::journal::Journal;
use std::time::Duration;

use super::prepare::Parts;
use super::{Agents, Settings};
use crate::domain::ids::RunId;
use crate::domain::journal::{Entry, Speaker};
use crate::domain::thread::{MessageKind, MessageRole};
use crate::limits::Stop;
use crate::log::{self, Log};
use crate::next::Ending;
use crate::notices;
use crate::ports::BoxFuture;
use crate::ports::runs::StoredRun;
use crate::record::current;

/// At most this many messages of a thread are shown to the model.
const MOST_HISTORY: u32 = 200;
/// At most this many bytes of a thread are shown to the model.
const HISTORY_BYTES: usize = 256 * 1024;

/// Entries per read.
const PAGE: u32 = 500;

/// The journal of a run.
#[derive(Default)]
pub(super) struct History {
    pub(super) journal: Journal,
    /// The run's clock at each entry.
    elapsed: Vec<Duration>,
}

impl History {
    /// The run of the agent call in progress, and the clock at its start. After a resume the clock begins again, and a
    /// call that is continued is started once more.
    fn calling(&self) -> Option<(RunId, Duration)> {
        let resumed = self.journal.len() - current(&self.journal).len();
        let ledger = self.journal.ledger();
        let mut calls = ledger.calls().rev().filter(|call| call.is_in_progress());
        calls.find_map(|call| {
            let (at, _) = call.last_start().filter(|(at, _)| *at >= resumed)?;
            Some((call.child()?, *self.elapsed.get(at)?))
        })
    }
}

impl From<Journal> for History {
    /// Of a run that begins now.
    fn from(journal: Journal) -> Self {
        Self {
            journal,
            elapsed: Vec::new(),
        }
    }
}

impl Agents {
    /// The earlier messages of a run's thread: the latest ones that fit into the prompt.
    pub(super) async fn said_before(&self, run: RunId) -> Result<Vec<(Speaker, String)>, Stop> {
        let said = self.actions.history(run, MOST_HISTORY).await?;
        let mut room = HISTORY_BYTES;
        let lines = said
            .into_iter()
            .rev()
            .map(|message| match (message.kind, message.role) {
                (MessageKind::Message, MessageRole::User) => (Speaker::User, message.text),
                (MessageKind::Message, MessageRole::Assistant) | (MessageKind::ApprovalRequest, _) => {
                    (Speaker::Assistant, message.text)
                }
                // These quote approvers, arguments and servers.
                (MessageKind::Approval | MessageKind::Action | MessageKind::Settlement, _) => {
                    (Speaker::User, notices::on_record(&message.text))
                }
            });
        let mut lines: Vec<_> = lines
            .take_while(|(_, text)| {
                let fits = text.len() <= room;
                room = room.saturating_sub(text.len());
                fits
            })
            .collect();
        lines.reverse();
        Ok(lines)
    }

    /// The run and its history, or why the history cannot be read. Records in the log how much of it is written.
    pub(super) async fn read(&self, log: &mut Log) -> Result<(StoredRun, Result<History, String>), Stop> {
        let stored = self.runs.load(log.run).await?.ok_or(Stop::LeaseLost)?;
        let history = self.history(log.run).await?;
        if let Ok(history) = &history {
            log.written = history.journal.len();
        }
        Ok((stored, history))
    }

    /// The whole history, or why it cannot be read.
    async fn history(&self, run: RunId) -> Result<Result<History, String>, Stop> {
        let mut history = History::default();
        let mut after = 0;
        loop {
            let page = self.runs.journal(run, after, PAGE).await?;
            for stored in &page {
                match log::read(stored) {
                    Ok(entry) => history.journal.push(entry),
                    Err(error) => {
                        tracing::error!(run_id = %run, %error, "the journal of a run cannot be read");
                        return Ok(Err("its journal cannot be read".to_owned()));
                    }
                }
                let elapsed = u64::try_from(stored.elapsed_us).unwrap_or(0);
                history.elapsed.push(Duration::from_micros(elapsed));
                after = stored.number;
            }
            if page.len() < PAGE as usize {
                return Ok(Ok(history));
            }
        }
    }

    /// A run's clock at the end of its history, including the time that its active child run has used since.
    pub(super) fn clock<'a>(&'a self, history: &'a History) -> BoxFuture<'a, Result<Duration, Stop>> {
        Box::pin(async move {
            let last = history.elapsed.last().copied().unwrap_or_default();
            let Some((child, began)) = history.calling() else {
                return Ok(last);
            };
            // If the child's journal cannot be read, the child run reports that itself.
            let called = self.history(child).await?.unwrap_or_default();
            // The parent may have been claimed before, and may have counted a part of this time.
            Ok(last.max(began + self.clock(&called).await?))
        })
    }

    /// The journal, with what this process adds to it before the first step. Returns it unchanged with an ending if
    /// the run cannot begin.
    pub(super) fn continued(
        &self,
        parts: &Parts,
        stored: &StoredRun,
        mut journal: Journal,
        begins: bool,
    ) -> Result<Journal, (Journal, Ending)> {
        let taken_up_again = stored.origin.parent().is_none() && stored.takes > 1;
        let handed_over = matches!(journal.last(), Some(Entry::Halted | Entry::Suspended));
        if journal.is_empty() {
            match parts.first_entry(self.engine.clock.now_us()) {
                Ok(entry) => journal.extend(entry),
                Err(ending) => return Err((journal, ending)),
            }
        } else if is_resumed(&journal) {
            journal.extend(settled(&journal, &parts.settings));
            if !parts.strategy.has_steps() {
                journal.push(notices::resumed());
            }
        }
        if (!begins || taken_up_again) && !handed_over {
            // The previous process died, or could not continue.
            journal.push(Entry::Recovered);
        }
        Ok(journal)
    }
}

/// Is a run about to make its first step since it was resumed?
pub(super) fn is_resumed(journal: &Journal) -> bool {
    matches!(journal.last(), Some(Entry::Resumed { .. }))
}

/// The user's answers about in-doubt calls, given when the run was resumed.
fn settled(journal: &Journal, settings: &Settings) -> Vec<Entry> {
    let ledger = journal.ledger();
    let in_doubt = ledger.calls().filter(|call| call.is_in_doubt());
    in_doubt.filter_map(|call| settings.settled(call.id())).collect()
}

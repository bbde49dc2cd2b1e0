//! What is on record of a run as it is taken up: its journal and those it goes on with, its clock, its thread.

use std::time::Duration;

use super::Agents;
use super::call::unread;
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::{Entry, Speaker};
use crate::domain::thread::{MessageKind, MessageRole};
use crate::engine::log::{self, Log, Stop};
use crate::engine::notices;
use crate::ports::BoxFuture;
use crate::ports::runs::{StoredEntry, StoredRun};

/// Lines of a thread that a model is told at most (DESIGN.md section 12).
const MOST_HISTORY: u32 = 200;
/// And their bytes.
const HISTORY_BYTES: usize = 256 * 1024;

/// Entries read at once.
const PAGE: u32 = 500;

/// What has happened in a run, and in those that it goes on with.
#[derive(Default)]
pub(super) struct History {
    pub(super) journal: Vec<Entry>,
    /// Entries of the runs before.
    pub(super) inherited: usize,
    /// The run's clock at its end.
    pub(super) clock: Clock,
}

/// A run's clock as its journal tells it.
#[derive(Clone, Copy, Default)]
pub(super) struct Clock {
    /// At the last entry.
    last: Duration,
    /// The call of an agent that has no result yet: which, its run, and when it began.
    calling: Option<(ActionId, RunId, Duration)>,
}

impl Clock {
    fn read(&mut self, stored: &StoredEntry, entry: &Entry) {
        self.last = Duration::from_micros(u64::try_from(stored.elapsed_us).unwrap_or(0));
        match entry {
            Entry::Started {
                call,
                child: Some(child),
                ..
            } => self.calling = Some((*call, *child, self.last)),
            Entry::Result { call, .. } if self.calling.is_some_and(|(id, ..)| id == *call) => self.calling = None,
            _ => {}
        }
    }
}

impl History {
    pub(super) fn own(&self) -> &[Entry] {
        &self.journal[self.inherited..]
    }
}

impl Agents {
    /// What was said in the thread of a run before it: the latest lines, as far as a prompt has room for them.
    pub(super) async fn said_before(&self, run: RunId) -> Result<Vec<(Speaker, String)>, Stop> {
        let said = self.actions.history(run, MOST_HISTORY).await.map_err(unread)?;
        let mut room = HISTORY_BYTES;
        let lines = said
            .into_iter()
            .rev()
            .map(|message| match (message.kind, message.role) {
                (MessageKind::Message, MessageRole::User) => (Speaker::User, message.text),
                (MessageKind::Message, MessageRole::Assistant) | (MessageKind::ApprovalRequest, _) => {
                    (Speaker::Assistant, message.text)
                }
                // They quote approvers, arguments and servers.
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

    /// The run and what has happened in it, or why that cannot be read. The log learns how much of it is written.
    pub(super) async fn read(&self, log: &mut Log) -> Result<(StoredRun, Result<History, String>), Stop> {
        let stored = self.runs.load(log.run).await.map_err(unread)?.ok_or(Stop::LeaseLost)?;
        let history = self.history(&stored).await?;
        if let Ok(history) = &history {
            (log.inherited, log.written) = (history.inherited, history.journal.len());
        }
        Ok((stored, history))
    }

    /// The runs that it goes on with, the first one first.
    async fn earlier(&self, stored: &StoredRun) -> Result<Vec<RunId>, Stop> {
        let mut chain = Vec::new();
        let mut at = stored.resumes;
        while let Some(id) = at {
            chain.push(id);
            at = self
                .runs
                .standing(id)
                .await
                .map_err(unread)?
                .and_then(|run| run.resumes);
        }
        chain.reverse();
        Ok(chain)
    }

    /// All that has happened, in the runs before too; or why it cannot be read.
    async fn history(&self, stored: &StoredRun) -> Result<Result<History, String>, Stop> {
        let mut runs = self.earlier(stored).await?;
        runs.push(stored.id);
        let mut history = History::default();
        for run in runs {
            history.inherited = history.journal.len();
            history.clock = Clock::default();
            let read = self.entries(run, |stored, entry| {
                history.clock.read(stored, &entry);
                history.journal.push(entry);
            });
            if let Err(why) = read.await? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(history))
    }

    /// Gives every entry of a journal to `take`; or says why it cannot be read.
    async fn entries(
        &self,
        run: RunId,
        mut take: impl FnMut(&StoredEntry, Entry) + Send,
    ) -> Result<Result<(), String>, Stop> {
        let mut after = 0;
        loop {
            let page = self.runs.journal(run, after, PAGE).await.map_err(unread)?;
            for stored in &page {
                match log::read(stored) {
                    Ok(entry) => take(stored, entry),
                    Err(error) => {
                        tracing::error!(run_id = %run, %error, "the journal of a run cannot be read");
                        return Ok(Err("its journal cannot be read".to_owned()));
                    }
                }
                after = stored.number;
            }
            if page.len() < PAGE as usize {
                return Ok(Ok(()));
            }
        }
    }

    /// A run's clock, with the time that the run it was calling has spent since.
    pub(super) fn clock(&self, clock: Clock) -> BoxFuture<'_, Result<Duration, Stop>> {
        Box::pin(async move {
            let Some((_, child, began)) = clock.calling else {
                return Ok(clock.last);
            };
            let mut called = Clock::default();
            // Where that cannot be read, the called run says so itself.
            let _ = self.entries(child, |stored, entry| called.read(stored, &entry)).await?;
            // The caller may have been taken up before, and have counted a part of it.
            Ok(clock.last.max(began + self.clock(called).await?))
        })
    }
}

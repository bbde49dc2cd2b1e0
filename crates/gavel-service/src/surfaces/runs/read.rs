//! Reads runs, as far as a caller may see them.

use std::sync::Arc;

use super::Runs;
use super::watch::entries;
use crate::api::runs::AgentRun;
use crate::domain::action::Action;
use crate::domain::ids::{ProjectId, RunId, ThreadId, UserId};
use crate::domain::journal::Entry;
use crate::domain::policy::Policy;
use crate::engine::agent::Settings;
use crate::engine::calls::{CallState, Calls};
use crate::engine::log;
use crate::ports::runs::StoredRun;
use crate::surfaces::StoreFailure;
use crate::surfaces::caller::Caller;
use crate::surfaces::decisions::{ListQuery, Page};

/// The most entries that are read at once.
const PAGE: u32 = 32;

impl Runs {
    /// A run that is visible to the caller.
    ///
    /// # Errors
    /// There is no such run; the store is unavailable.
    pub async fn get(&self, caller: &Caller, user: Option<&UserId>, run: RunId) -> Result<AgentRun, StoreFailure> {
        let user = caller.sees(user);
        let found = self.agents.runs.get(&caller.tenant, user, run).await?;
        found.ok_or(StoreFailure::NotFound)
    }

    /// A run of the tenant, of any user, for an approver who may resolve its approvals.
    pub(crate) async fn of_tenant(&self, caller: &Caller, run: RunId) -> Result<AgentRun, StoreFailure> {
        let found = self.agents.runs.get(&caller.tenant, None, run).await?;
        found.ok_or(StoreFailure::NotFound)
    }

    /// A page of the runs of a project.
    ///
    /// # Errors
    /// The query is invalid; the store is unavailable.
    pub async fn list(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        project: &ProjectId,
        query: ListQuery,
    ) -> Result<Page<AgentRun>, StoreFailure> {
        let query = ListQuery {
            user: caller.sees(user).cloned(),
            ..query
        };
        Ok(self.agents.runs.list(&caller.tenant, project, &query).await?)
    }

    /// The thread of a run, and its calls according to its journal.
    pub(crate) async fn calls(&self, run: RunId) -> Result<(Option<ThreadId>, Vec<CallState>), StoreFailure> {
        let state = self.agents.runs.run_state(run).await?.ok_or(StoreFailure::NotFound)?;
        let mut calls = Calls::default();
        let mut after = 0;
        loop {
            let page = entries(&self.agents, run, after).await?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            for (_, entry) in &page {
                calls.take(entry);
            }
        }
        Ok((state.origin.thread().copied(), calls.into_states()))
    }

    /// The settings of a run.
    pub(crate) async fn settings_of(&self, run: RunId) -> Result<Settings, StoreFailure> {
        let stored = self.agents.runs.load(run).await?.ok_or(StoreFailure::NotFound)?;
        read_settings(&stored)
    }

    /// Reads a journal page by page. `take` receives each entry, with the time at which it was written, in microseconds
    /// since the epoch.
    pub(crate) async fn each_entry(&self, run: RunId, mut take: impl FnMut(i64, Entry)) -> Result<(), StoreFailure> {
        let mut after = 0;
        loop {
            let page = self.agents.runs.journal(run, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.number;
            for stored in &page {
                let entry = log::read(stored).map_err(|error| {
                    tracing::error!(run_id = %run, %error, "the journal of a run cannot be read");
                    StoreFailure::Unavailable
                })?;
                take(stored.at_us, entry);
            }
        }
    }

    /// The actions of a run and of the runs that it called, in order, without what they returned.
    pub(crate) async fn actions_of(&self, run: RunId) -> Result<Vec<Action>, StoreFailure> {
        Ok(self.agents.actions.of_run(run).await?)
    }

    /// The operator's policy.
    pub(crate) fn policy(&self) -> &Arc<Policy> {
        &self.agents.engine.policy
    }

    /// The stored run, if the caller may see it.
    pub(super) async fn stored(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        run: RunId,
    ) -> Result<StoredRun, StoreFailure> {
        self.get(caller, user, run).await?;
        self.agents.runs.load(run).await?.ok_or(StoreFailure::NotFound)
    }
}

/// The settings of a run, which restrict what it may do.
pub(super) fn read_settings(stored: &StoredRun) -> Result<Settings, StoreFailure> {
    Settings::read(&stored.settings).map_err(|error| {
        tracing::error!(run_id = %stored.id, %error, "a run cannot be used");
        StoreFailure::Unavailable
    })
}

//! What the confirmation of a plan allows: where the work may act, with which tools, and which of them ask a person anyway.

use std::collections::BTreeSet;

use super::Planning;
use super::checks::project;
use super::execute::Confirmable;
use crate::api::planning::DryRunAnswer;
use crate::api::planning::SessionScope;
use crate::domain::planning_session::SessionStatus;
use crate::engine::strategy::plan::Scope;
use crate::ports::planning::StoredSession;
use crate::surfaces::StoreFailure;
use crate::surfaces::caller::Caller;

impl Planning {
    /// What the confirmation of a session's plan allows, or would allow now. `None` if there is no plan to confirm or to
    /// work on, or if none could be worked on now.
    pub(super) async fn scope(
        &self,
        caller: &Caller,
        stored: &StoredSession,
    ) -> Result<Option<SessionScope>, StoreFailure> {
        let scope = match stored.status {
            SessionStatus::AwaitingConfirmation => self.scope_of(stored, &[]),
            SessionStatus::Executing => match self.runs.settings_of(stored.run).await?.scope {
                Some(confirmed) => confirmed.as_ref().clone(),
                None => return Ok(None),
            },
            SessionStatus::Planning
            | SessionStatus::Completed
            | SessionStatus::Failed
            | SessionStatus::DeadlineExceeded
            | SessionStatus::Cancelled => return Ok(None),
        };
        // `github.url` may name another host since.
        let Ok(repository) = self.repository(stored) else {
            return Ok(None);
        };
        let agents = self.directory.project(&caller.tenant, &project()).await?;
        let catalog = self.directory.catalog();
        let confirmable = Confirmable {
            repository: repository.clone(),
            scope: scope.clone(),
        };
        let Some(check) = self.check(caller, stored, confirmable, (&agents, &catalog)) else {
            return Ok(None);
        };
        let check = &check;
        let tools = |answer| scope.tools.iter().filter(move |tool| check.tool(tool).answer == answer);
        let ask_first: BTreeSet<_> = tools(DryRunAnswer::RequireApproval).chain(&scope.ask_for).collect();
        let may_ask = tools(DryRunAnswer::DependsOnArguments).filter(|tool| !scope.ask_for.contains(*tool));
        Ok(Some(SessionScope {
            repository: repository.to_string(),
            branches: format!("{}*", scope.branch_prefix),
            not_bound: scope
                .tools
                .iter()
                .filter(|tool| check.is_unbound(tool))
                .cloned()
                .collect(),
            may_ask: may_ask.cloned().collect(),
            ask_first: ask_first.into_iter().cloned().collect(),
            tools: scope.tools.into_iter().collect(),
            confirmed: scope.confirmed,
        }))
    }

    /// What a confirmation of the current plan allows.
    pub(super) fn scope_of(&self, stored: &StoredSession, ask_for: &[String]) -> Scope {
        Scope {
            tools: stored.plan.tasks.iter().flat_map(|task| task.tools.clone()).collect(),
            branch_prefix: self.settings.sessions.branch_prefix.clone(),
            base: stored.notes.read.as_ref().and_then(|read| read.default_branch.clone()),
            ask_for: ask_for.iter().cloned().collect(),
            ..Scope::default()
        }
    }
}

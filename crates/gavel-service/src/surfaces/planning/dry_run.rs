//! What would happen if a plan were confirmed now: for each tool of each task, what the gate would answer. Nothing is
//! begun, and no tool is called.
//!
//! The gate itself answers, for a call with the arguments that the session prescribes. Rules that look at other
//! arguments can be applied only to a call, so the answer names them.

mod check;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::check::{Check, SessionValues};
use super::checks::project;
use super::execute::Confirmable;
use super::run::bound;
use super::{ExecutePlan, FLOOR, Planning, PlanningError};
use crate::api::planning::{DryRun, DryRunCondition, DryRunServer, DryRunTask, ServerState};
use crate::domain::ids::UserId;
use crate::domain::planning_session::TASK_WORKER;
use crate::domain::policy::PLANNING;
use crate::engine::gate::Facts;
use crate::ports::conditions::Condition;
use crate::ports::planning::StoredSession;
use crate::ports::tools::Catalog;
use crate::surfaces::StoreFailure;
use crate::surfaces::caller::Caller;
use crate::surfaces::definitions::Project;

fn condition(condition: Condition) -> DryRunCondition {
    let Condition {
        of,
        state,
        detail,
        next,
    } = condition;
    DryRunCondition {
        of,
        state,
        detail: match next {
            Some(next) => format!("{detail}: {next}"),
            None => detail,
        },
    }
}

impl Planning {
    /// Checks the current version of a plan as [`Planning::execute_plan`] would, and asks the gate about its tools. Nothing
    /// is begun.
    ///
    /// # Errors
    /// As [`Planning::execute_plan`], except that a missing tool is an answer.
    pub async fn dry_run(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        execute: &ExecutePlan,
    ) -> Result<DryRun, PlanningError> {
        let stored = self.stored(caller, user, execute.session).await?;
        let granted = self.worker_tools(caller).await?;
        let confirmation = self.confirmation(caller, &stored, execute, &granted)?;
        let project = self.directory.project(&caller.tenant, &project()).await?;
        let catalog = self.directory.catalog();
        let check = self.check(caller, &stored, confirmation, (&project, &catalog));
        let check = check.ok_or(StoreFailure::NotFound)?;
        let tasks = stored.plan.tasks.into_iter().map(|task| DryRunTask {
            task_id: task.id,
            title: task.title,
            tools: task.tools.iter().map(|name| check.tool(name)).collect(),
        });
        Ok(DryRun {
            plan_version: stored.version,
            tasks: tasks.collect(),
            servers: servers(&catalog),
            conditions: self.conditions.look().await.into_iter().map(condition).collect(),
        })
    }
}

impl Planning {
    /// Asks the gate what a confirmation allows; `None` if no agent works on tasks.
    pub(super) fn check<'a>(
        &self,
        caller: &Caller,
        stored: &StoredSession,
        confirmation: Confirmable,
        (project, catalog): (&'a Project, &'a Catalog),
    ) -> Option<Check<'a>> {
        let worker = &project.agents.get(TASK_WORKER)?.definition;
        let values = SessionValues::of(&confirmation);
        let facts = Facts {
            agent: Some(TASK_WORKER.into()),
            approval: worker.approval,
            floor: FLOOR,
            bound: Some(Arc::new(bound(stored.id, &confirmation.repository))),
            scope: Some(Arc::new(confirmation.scope)),
            now_us: self.runs.now_us(),
            ..Facts::new(
                caller.tenant.clone(),
                stored.user.clone(),
                PLANNING,
                Arc::clone(self.runs.policy()),
            )
        };
        Some(Check {
            catalog,
            worker,
            // A tool that is missing is an answer.
            granted: worker.server_tools(|name| project.agents.contains_key(name)),
            facts,
            values,
        })
    }
}

/// All servers, by name.
fn servers(catalog: &Catalog) -> Vec<DryRunServer> {
    let down = catalog.down.keys().map(|name| (name, ServerState::Unavailable));
    let connecting = catalog.connecting.iter().map(|name| (name, ServerState::Connecting));
    let connected = catalog.tools.iter().map(|tool| (&tool.server, ServerState::Connected));
    let mut servers = BTreeMap::new();
    for (name, state) in down.chain(connecting).chain(connected) {
        servers.entry(name.to_string()).or_insert(state);
    }
    let servers = servers.into_iter();
    let all = servers.map(|(server, state)| DryRunServer {
        reason: catalog.down.get(server.as_str()).cloned(),
        server,
        state,
    });
    all.collect()
}

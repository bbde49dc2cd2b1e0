//! What would happen if a plan were confirmed now: for each tool of each task, what the gate would answer. Nothing is
//! begun, and no tool is called.
//!
//! The gate itself answers, for a call with the arguments that the session prescribes. Rules that look at other
//! arguments can be applied only to a call, so the answer names them.

mod check;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use self::check::{Check, SessionValues};
use super::checks::project;
use super::execute::Confirmable;
use super::run::bound;
use super::{ExecutePlan, FLOOR, Planning, PlanningError};
use crate::domain::ids::UserId;
use crate::domain::names::names;
use crate::domain::plan::TaskId;
use crate::domain::planning_session::TASK_WORKER;
use crate::domain::policy::PLANNING;
use crate::engine::gate::Facts;
use crate::ports::conditions::{Condition, Fitness, Subject};
use crate::ports::planning::StoredSession;
use crate::ports::tools::Catalog;
use crate::surfaces::StoreFailure;
use crate::surfaces::caller::Caller;
use crate::surfaces::definitions::Project;

/// What would happen if the plan were confirmed now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanDryRun)]
pub struct DryRun {
    /// The version that was checked.
    pub plan_version: u32,
    /// Its tasks, in order.
    pub tasks: Vec<DryRunTask>,
    /// The servers of tools.
    pub servers: Vec<DryRunServer>,
    /// What the bundled servers act on, as far as they are on: the container engine, GitHub's credentials with their
    /// permissions and quota, the sandbox of the shell, and the web.
    pub conditions: Vec<DryRunCondition>,
}

/// A task, with what would happen to its calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanDryRunTask)]
pub struct DryRunTask {
    /// The task.
    #[schema(value_type = String, example = "t1")]
    pub task_id: TaskId,
    /// Its title.
    pub title: String,
    /// Its tools.
    pub tools: Vec<DryRunTool>,
}

/// What would happen to the calls of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = PlanDryRunTool)]
pub struct DryRunTool {
    /// The tool.
    pub tool: String,
    /// Its server; `null` if no connected server offers it.
    #[schema(required = true)]
    pub server: Option<String>,
    /// The answer.
    pub answer: DryRunAnswer,
    /// Why.
    pub reason: String,
}

names! {
    /// What would happen to a call.
    DryRunAnswer {
        /// It would be made without asking a person.
        Allow = "allow",
        /// A person would be asked first.
        RequireApproval = "require_approval",
        /// It would be refused.
        Deny = "deny",
        /// A rule of the policy looks at the arguments of each call.
        DependsOnArguments = "depends_on_arguments",
    }
}

/// A server of tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = PlanDryRunServer)]
pub struct DryRunServer {
    /// Its name.
    pub server: String,
    /// Its state.
    pub state: ServerState,
    /// Why it is unavailable, such as the settings without which it is off.
    #[schema(required = true)]
    pub reason: Option<String>,
}

/// Whether something that tools act on is fit for work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = PlanDryRunCondition)]
pub struct DryRunCondition {
    /// What it is about.
    pub of: Subject,
    /// Whether it is fit.
    pub state: Fitness,
    /// What was seen, and what to do about an error.
    pub detail: String,
}

impl From<Condition> for DryRunCondition {
    fn from(condition: Condition) -> Self {
        let Condition {
            of,
            state,
            detail,
            next,
        } = condition;
        Self {
            of,
            state,
            detail: match next {
                Some(next) => format!("{detail}: {next}"),
                None => detail,
            },
        }
    }
}

names! {
    /// The state of a server.
    ServerState {
        /// Its tools can be called.
        Connected = "connected",
        /// It is being connected for the first time.
        Connecting = "connecting",
        /// It is off, or cannot be reached.
        Unavailable = "unavailable",
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
            conditions: self.conditions.look().await.into_iter().map(Into::into).collect(),
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

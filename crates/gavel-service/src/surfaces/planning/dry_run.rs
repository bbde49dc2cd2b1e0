//! What would happen if a plan were confirmed now: for each tool of each task, what the gate would answer. Nothing is
//! begun, and no tool is called.
//!
//! The gate itself answers, for a call with the arguments that the session prescribes. Rules that look at other
//! arguments can be applied only to a call, so the answer names them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::begin::bound;
use super::execute::Confirmable;
use super::{FLOOR, Planning};
use crate::api::planning::{
    DryRun, DryRunAnswer, DryRunCondition, DryRunServer, DryRunTask, DryRunTool, ExecuteBody, ServerState,
};
use crate::api::problem::Code;
use crate::domain::canonical;
use crate::domain::definition::{Approval, Definition};
use crate::domain::ids::{PlanningSessionId, ProjectId, UserId};
use crate::domain::journal::{PolicyDecision, Proposed};
use crate::domain::planning_session::TASK_WORKER;
use crate::domain::policy::{self, DecidedBy, Effect, PLANNING, Rule, SessionFacts};
use crate::domain::repository::Repository;
use crate::domain::tool::Tool;
use crate::domain::tool_settings::SessionValue;
use crate::domain::tool_settings::ToolSettings;
use crate::engine::Toolset;
use crate::engine::gate::{Answer, Attempt, Facts, decide};
use crate::ports::conditions::Condition;
use crate::ports::planning::StoredSession;
use crate::ports::tools::Catalog;
use crate::surfaces::caller::Caller;
use crate::surfaces::definitions::Project;
use crate::surfaces::problem::Problem;

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
        session: PlanningSessionId,
        execute: &ExecuteBody,
    ) -> Result<DryRun, Problem> {
        let stored = self.stored(caller, user, session).await?;
        let granted = self.worker_tools(caller).await?;
        let confirmation = self.confirmation(caller, &stored, execute, &granted)?;
        let project = self.directory.project(&caller.tenant, &ProjectId::default()).await?;
        let catalog = self.directory.catalog();
        let check = self.check(caller, &stored, confirmation, (&project, &catalog));
        let check = check.ok_or(Code::NotFound)?;
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

/// What the answers are made from.
pub(super) struct Check<'a> {
    catalog: &'a Catalog,
    worker: &'a Definition,
    granted: Vec<String>,
    facts: Facts,
    values: SessionValues,
}

/// What arguments with a `scope` have in this session.
struct SessionValues {
    repository: Repository,
    branch: String,
    base: String,
}

impl SessionValues {
    fn of(confirmation: &Confirmable) -> Self {
        let branch = format!("{}branch", confirmation.scope.branch_prefix);
        Self {
            repository: confirmation.repository.clone(),
            base: confirmation.scope.base.clone().unwrap_or_else(|| branch.clone()),
            branch,
        }
    }

    /// The arguments that the session prescribes for this tool.
    fn arguments(&self, tool: &Tool) -> Value {
        let value = |of: SessionValue| match of {
            SessionValue::Owner => Some(&self.repository.owner),
            SessionValue::Repo => Some(&self.repository.name),
            SessionValue::Branch => Some(&self.branch),
            SessionValue::Base => Some(&self.base),
            SessionValue::Created => None,
        };
        let mut arguments = Value::Object(Map::default());
        for (path, of) in tool.settings.scope() {
            if let Some(value) = value(*of) {
                path.set(&mut arguments, value.as_str().into());
            }
        }
        arguments
    }
}

impl Check<'_> {
    pub(crate) fn tool(&self, name: &str) -> DryRunTool {
        let mut offered = self.catalog.tools.iter().filter(|tool| tool.is_called(name));
        let (server, (answer, reason)) = match (offered.next(), offered.next()) {
            (None, _) => {
                let found = Toolset::build(self.catalog, &[name.to_owned()], &[]);
                let reason = found.missing.into_iter().next().map(|missing| missing.reason);
                (None, (DryRunAnswer::Deny, reason.unwrap_or_default()))
            }
            (Some(_), Some(_)) => {
                let reason = "several servers offer a tool of this name".to_owned();
                (None, (DryRunAnswer::Deny, reason))
            }
            (Some(tool), None) if !self.granted.iter().any(|granted| granted == name) => {
                let reason = format!("the agent {} no longer lists this tool", self.worker.name);
                (Some(tool.server.to_string()), (DryRunAnswer::Deny, reason))
            }
            (Some(tool), None) => (Some(tool.server.to_string()), self.answer(tool)),
        };
        DryRunTool {
            tool: name.to_owned(),
            server,
            answer,
            reason,
        }
    }

    /// Is it a tool with side effects that no `scope` binds to the session?
    pub(crate) fn is_unbound(&self, name: &str) -> bool {
        let mut offered = self.catalog.tools.iter().filter(|tool| tool.is_called(name));
        offered.any(|tool| tool.side_effect && !tool.is_bound)
    }

    /// What the gate would answer, as far as that does not depend on the arguments.
    fn answer(&self, tool: &Tool) -> (DryRunAnswer, String) {
        // The gate knows what the tool can do and how it is configured; any arguments fit.
        let known = Arc::new(Tool {
            side_effect: tool.side_effect,
            settings: ToolSettings {
                approval: tool.settings.approval,
                scope: tool.settings.scope.clone(),
                ..ToolSettings::default()
            },
            is_bound: tool.is_bound,
            ..Tool::named(&tool.server, &tool.name)
        });
        let arguments = self.values.arguments(tool);
        let call = Proposed::of(&known, canonical::to_raw(&arguments));
        let decision = decide(&call, &self.facts, None, Attempt::First);
        let Some(answer) = &decision.answer else {
            let reason = match &decision.outcome {
                PolicyDecision::Refuse { message, .. } => message.clone(),
                PolicyDecision::Allow { .. } | PolicyDecision::RequireApproval { .. } => String::new(),
            };
            return (DryRunAnswer::DependsOnArguments, reason);
        };
        let open = self.open_rules(tool);
        let is_open =
            |by: &DecidedBy| matches!(by, DecidedBy::Rule(name) if open.iter().any(|rule| rule.name == *name));
        let mut denials = answer.checks.iter().filter(|check| check.says == Effect::Deny);
        if let Some(denial) = denials.find(|check| !is_open(&check.by)) {
            return (DryRunAnswer::Deny, denial.reason.clone());
        }
        // A rule that could only allow the call changes nothing if it is allowed anyway.
        let is_settled = answer.effect == Effect::Allow
            && !answer.by.iter().any(is_open)
            && open.iter().all(|rule| rule.then == Effect::Allow);
        match open.as_slice() {
            [] if answer.effect == Effect::Allow && tool.asks_the_world() => (
                DryRunAnswer::DependsOnArguments,
                "it asks before it sends an address or a text that is not known out of the session".to_owned(),
            ),
            [] => self.certain(tool, answer),
            _ if is_settled => self.certain(tool, answer),
            rules => {
                let named = rules.iter().map(|rule| format!("{:?} ({})", rule.name, rule.reason));
                let reason = format!("rules look at the arguments: {}", named.collect::<Vec<_>>().join(", "));
                (DryRunAnswer::DependsOnArguments, reason)
            }
        }
    }

    /// The rules about a tool that look at the arguments of a call.
    fn open_rules(&self, tool: &Tool) -> Vec<&Rule> {
        let arguments = self.values.arguments(tool);
        let facts = policy::Facts {
            server: &tool.server,
            tool: &tool.name,
            user: self.facts.user.as_str(),
            agent: self.facts.agent.as_deref(),
            surface: &self.facts.surface,
            arguments: &arguments,
            recipients: None,
            session: SessionFacts::of(self.facts.bound.as_deref()),
        };
        let rules = self.facts.policy.rules.iter();
        rules
            .filter(|rule| rule.looks_at_arguments() && rule.is_about(&facts))
            .collect()
    }

    /// The answer of the gate, with its reason in words.
    fn certain(&self, tool: &Tool, answer: &Answer) -> (DryRunAnswer, String) {
        let by = answer.by.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match answer.effect {
            Effect::Allow if !tool.side_effect && self.facts.approval != Approval::Always => {
                (DryRunAnswer::Allow, "it changes nothing".to_owned())
            }
            Effect::Allow if let Some(reason) = values_that_ask(tool) => (DryRunAnswer::DependsOnArguments, reason),
            Effect::Allow if by.is_empty() => (DryRunAnswer::Allow, "nothing requires an approval".to_owned()),
            Effect::Allow => (DryRunAnswer::Allow, format!("allowed by: {by}")),
            Effect::RequireApproval => (DryRunAnswer::RequireApproval, answer.reason.clone()),
            Effect::Deny => (DryRunAnswer::Deny, answer.reason.clone()),
        }
    }
}

/// Which values of a tool's arguments ask a person, if some do and others need not.
fn values_that_ask(tool: &Tool) -> Option<String> {
    let created = tool
        .settings
        .scope()
        .filter(|(_, value)| *value == SessionValue::Created);
    let created = created.map(|(path, _)| format!("{path} is of something that the session has not created"));
    let effects = tool.settings.amounts_to.iter().map(|effect| {
        let values: Vec<_> = effect.values.iter().map(Value::to_string).collect();
        format!("{} is {} (as {})", effect.argument, values.join(" or "), effect.tool)
    });
    let all: Vec<_> = created.chain(effects).collect();
    (!all.is_empty()).then(|| format!("a person is asked if {}", all.join(", or if ")))
}

#[cfg(test)]
mod tests;

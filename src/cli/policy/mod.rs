//! `gavel policy`: what the policy gate decides, before a model's call reaches it.

mod check;
mod simulate;
mod test;

use std::sync::Arc;

use super::exit::{Exit, Usage};
use crate::adapters::mcp::{ServerState, ServerStatus};
use crate::app;
use crate::config::{Config, Resolved};
use crate::domain::definition::{Agents, Constitution};
use crate::domain::ids::{TenantId, UserId};
use crate::domain::policy::{AGENT, CHAT, Known, Policy, THREAD};
use crate::engine::gate::Facts;
use crate::ports::clock::{Clock, SystemClock};
use crate::ports::tools::Catalog;
use crate::surfaces;

/// The commands of `gavel policy`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Check one call: the answer, what decided it, and the result of every check
    Check(check::Args),
    /// Run the tests in the policy file
    Test(test::Args),
    /// Show what the policy would decide for past calls, and how that differs from what happened
    Simulate(simulate::Args),
}

pub(super) async fn run(command: Command, resolved: Resolved) -> anyhow::Result<Exit> {
    match command {
        Command::Check(args) => check::run(&args, &resolved.config).await,
        Command::Test(args) => test::run(&args, &resolved.config),
        Command::Simulate(args) => simulate::run(&args, &resolved.config).await,
    }
}

/// Commands about the file require one.
fn needs_file(config: &Config) -> Result<(), Usage> {
    match config.policy.file {
        Some(_) => Ok(()),
        None => Err(Usage(
            "there is no policy file; set --policy PATH, GAVEL_POLICY or policy.file".to_owned(),
        )),
    }
}

/// A sentence for each name in a rule that matches no tool of a connected server, and none of these agents.
pub(super) fn unknown_names(
    policy: &Policy,
    catalog: &Catalog,
    servers: &[ServerStatus],
    agents: &Agents,
) -> Vec<String> {
    policy.unknown_names(&Known {
        tools: catalog.tools.iter().map(|tool| (&*tool.server, &*tool.name)).collect(),
        down: servers
            .iter()
            .filter(|server| server.state != ServerState::Up)
            .map(|server| &*server.name)
            .collect(),
        agents: agents.keys().map(String::as_str).collect(),
    })
}

/// When definitions require approval, and which tools they offer to the model.
struct Modes {
    chat: Constitution,
    /// The agent that answers in threads.
    in_threads: String,
    agents: app::Loaded,
}

impl Modes {
    fn read(config: &Config) -> anyhow::Result<Self> {
        Ok(Self {
            chat: app::constitution(config)?,
            in_threads: config.runs.threads.agent.clone(),
            agents: super::agents::load(config)?,
        })
    }

    fn has(&self, agent: &str) -> bool {
        self.agents.checked.agents.contains_key(agent)
    }

    /// What the gate knows about a call, except the grants. An agent that is not among the files has the default mode.
    fn facts(
        &self,
        policy: &Arc<Policy>,
        tenant: &TenantId,
        user: &UserId,
        surface: &str,
        agent: Option<&str>,
    ) -> Facts {
        let of = agent.and_then(|agent| self.agents.checked.agents.get(agent));
        Facts {
            agent: agent.map(Arc::from),
            approval: match surface {
                CHAT => self.chat.definition.approval,
                _ => of.map(|agent| agent.definition.approval).unwrap_or_default(),
            },
            floor: surfaces::floor(surface),
            now_us: SystemClock.now_us(),
            ..Facts::new(tenant.clone(), user.clone(), surface, Arc::clone(policy))
        }
    }

    /// The tools that may be called on the surface: a name for the owner, and the allowlist; `None` if the agent
    /// is unknown.
    fn offers<'a>(&'a self, surface: &str, agent: Option<&'a str>) -> Option<(&'a str, &'a [String])> {
        if agent.is_none() && surface == CHAT {
            return Some(("the constitution", &self.chat.definition.tools));
        }
        let agent = self.agents.checked.agents.get(agent?)?;
        Some((&agent.definition.name, &agent.definition.tools))
    }
}

//! `gavel policy`: what the policy gate decides, before a model's call reaches it.

mod check;
mod simulate;
mod test;

use super::exit::{Exit, Usage};
use crate::app;
use crate::config::{Config, Resolved};
use crate::domain::definition::{Approval, Constitution};
use crate::domain::policy::{AGENT, CHAT, THREAD};

/// The commands of `gavel policy`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Check one call: the answer, what decided it, and the result of every check
    Check(check::Args),
    /// Run the tests in the policy file
    Test(test::Args),
    /// Show what the policy would decide for past calls, and how that differs from what happened
    Simulate(simulate::Args),
}

pub(super) async fn run(verb: Verb, resolved: Resolved) -> anyhow::Result<Exit> {
    match verb {
        Verb::Check(args) => check::run(&args, &resolved.config).await,
        Verb::Test(args) => test::run(&args, &resolved.config),
        Verb::Simulate(args) => simulate::run(&args, &resolved.config).await,
    }
}

/// Commands about the file require one.
fn needs_file(config: &Config) -> Result<(), Usage> {
    match config.policy {
        Some(_) => Ok(()),
        None => Err(Usage(
            "there is no policy file; set --policy PATH, GAVEL_POLICY or policy.file".to_owned(),
        )),
    }
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
            in_threads: config.runs.agent.clone(),
            agents: super::agents::load(config)?,
        })
    }

    fn has(&self, agent: &str) -> bool {
        self.agents.checked.agents.contains_key(agent)
    }

    /// An agent that is not among the files has the default.
    fn of(&self, surface: &str, agent: Option<&str>) -> Approval {
        let agent = agent.and_then(|agent| self.agents.checked.agents.get(agent));
        let approval = agent.map(|agent| agent.definition.approval).unwrap_or_default();
        match surface {
            AGENT => approval,
            // Never less strict than this, whatever the definition says.
            THREAD if approval == Approval::Never => Approval::SideEffects,
            THREAD => approval,
            _ => self.chat.definition.approval,
        }
    }

    /// The tools that may be called on the surface: a name for the owner, and the grant; `None` if the agent is
    /// unknown.
    fn offers<'a>(&'a self, surface: &str, agent: Option<&'a str>) -> Option<(&'a str, &'a [String])> {
        if agent.is_none() && surface == CHAT {
            return Some(("the constitution", &self.chat.definition.tools));
        }
        let agent = self.agents.checked.agents.get(agent?)?;
        Some((&agent.definition.name, &agent.definition.tools))
    }
}

//! `gavel policy`: what the gate says, before it says it to somebody.

mod check;
mod simulate;
mod test;

use super::exit::{Exit, Usage};
use crate::app;
use crate::config::{Config, Resolved};
use crate::domain::definition::{Approval, Constitution};
use crate::surfaces::agents::{SURFACE as AGENT, THREAD_SURFACE as THREAD};

/// The surface of `POST /v1/chat`, in policies and in the record.
const CHAT: &str = "chat";

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Ask about one call: the answer, what decided it, and what every check says
    Check(check::Args),
    /// Run the tests that stand in the policy file
    Test(test::Args),
    /// See what the policy would say of the calls in the record, as a difference to what happened
    Simulate(simulate::Args),
}

pub(super) async fn run(verb: Verb, resolved: Resolved) -> anyhow::Result<Exit> {
    match verb {
        Verb::Check(args) => check::run(&args, &resolved.config).await,
        Verb::Test(args) => test::run(&args, &resolved.config),
        Verb::Simulate(args) => simulate::run(&args, &resolved.config).await,
    }
}

/// The verbs that are about the file need one.
fn needs_file(config: &Config) -> Result<(), Usage> {
    match config.policy {
        Some(_) => Ok(()),
        None => Err(Usage(
            "no policy file is named; give --policy PATH, GAVEL_POLICY or policy.file".to_owned(),
        )),
    }
}

/// When definitions ask for leave, and what they offer to the model.
struct Modes {
    chat: Constitution,
    /// Who answers in threads.
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
            // Never less than this, whatever the definition says.
            THREAD if approval == Approval::Never => Approval::SideEffects,
            THREAD => approval,
            _ => self.chat.definition.approval,
        }
    }

    /// Whose tools a call on the surface may be of: a name for who asks, and the grant; `None` where no agent is known.
    fn offers<'a>(&'a self, surface: &str, agent: Option<&'a str>) -> Option<(&'a str, &'a [String])> {
        if agent.is_none() && surface == CHAT {
            return Some(("the constitution", &self.chat.definition.tools));
        }
        let agent = self.agents.checked.agents.get(agent?)?;
        Some((&agent.definition.name, &agent.definition.tools))
    }
}

//! `gavel agents`: the definitions of agents, and running one. All but `list`, `run` and `eval` look at files alone, unless `validate` is told to ask for tools.

mod convert;
mod eval;
mod inputs;
mod list;
mod run;
mod schema;
mod show;
mod validate;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::exit::Exit;
use super::output;
pub(super) use super::output::count;
use crate::app::{self, Loaded};
use crate::config::{Config, Flags};
use crate::domain::definition::nearest::nearest;
use crate::domain::definition::{DefinitionError, MAX_BYTES};

pub(super) use self::eval::run as eval;
pub(super) use self::list::{run as list, unavailable};
pub(super) use self::run::run as start;
pub(super) use self::validate::run_with_tools as validate_with_tools;

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Run an agent, with live progress
    Run(run::Args),
    /// Check definitions: every mistake at once, each with file, line, what was found and what is allowed
    Validate(validate::Args),
    /// List the agents of this configuration, and which cannot work now and why
    List(list::Args),
    /// Show one agent whole
    Show(show::Args),
    /// Write a definition in another form: JSON, YAML, Markdown or protobuf
    Convert(convert::Args),
    /// Run agents on their evaluation cases, and compare what comes of it
    Eval(eval::Args),
    /// Print the JSON Schema of definitions, with which editors complete and check them
    Schema(schema::Args),
}

pub(super) fn run(verb: Verb, flags: &Flags) -> anyhow::Result<Exit> {
    match verb {
        Verb::Validate(args) => validate::run(&args, flags),
        Verb::Show(args) => show::run(&args, flags),
        Verb::Convert(args) => convert::run(&args),
        Verb::Schema(args) => schema::run(&args),
        Verb::List(_) | Verb::Run(_) | Verb::Eval(_) => {
            unreachable!("these need the MCP servers, and are started with them")
        }
    }
}

/// The agents of this configuration.
fn configured(flags: &Flags) -> anyhow::Result<Loaded> {
    let resolved = Config::load(flags)?;
    for warning in &resolved.warnings {
        output::note(&format!("warning: {warning}"));
    }
    load(&resolved.config)
}

pub(super) fn load(config: &Config) -> anyhow::Result<Loaded> {
    app::agents(config).map_err(|error| {
        let folder = config.agents.as_deref().unwrap_or(std::path::Path::new("agents"));
        anyhow::anyhow!("the folder of agents {} cannot be listed: {error}", folder.display())
    })
}

/// One line an error, fit for a terminal.
pub(super) fn told(error: &DefinitionError) -> String {
    output::printable(&error.to_string()).replace('\n', " ")
}

/// What else there is, where an agent is not there.
fn others(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if known.is_empty() => "; there are none".to_owned(),
        None => format!("; there are: {}", known.join(", ")),
    }
}

/// What is in a file, `-` being standard input; no more than tells that it is too long, since a device may never end.
fn read_some(file: &Path) -> io::Result<Vec<u8>> {
    let most = MAX_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    } else {
        File::open(file)?.take(most).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

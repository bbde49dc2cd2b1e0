//! `gavel agents`: the definitions of agents, and running one. All but `list`, `run`, `eval` and `validate --tools`
//! only read files.

mod convert;
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
use crate::domain::definition::{MAX_BYTES, ReadError};
use gavel_reading::nearest;

pub(super) use self::list::{lacking, run as list, sentence};
pub(super) use self::validate::run_with_tools as validate_with_tools;

/// The commands of `gavel agents`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Run an agent, with live progress
    Run(run::Args),
    /// Check definitions: reports every error at once, each with file, line, what was found and what is allowed
    Validate(validate::Args),
    /// List the agents of this configuration, and which are unavailable and why
    List(list::Args),
    /// Show one complete agent
    Show(show::Args),
    /// Write a definition in another form: JSON, YAML, Markdown or protobuf
    Convert(convert::Args),
    /// Run agents on their evaluation cases, and compare the results
    Eval(gavel_eval::agents::Args),
    /// Print the JSON Schema of definitions, which lets editors complete and check them
    Schema(schema::Args),
}

pub(super) fn run(command: Command, flags: &Flags) -> anyhow::Result<Exit> {
    match command {
        Command::Validate(args) => validate::run(&args, flags),
        Command::Show(args) => show::run(&args, flags),
        Command::Convert(args) => convert::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::List(_) | Command::Run(_) | Command::Eval(_) => {
            unreachable!("these need the MCP servers, and `cli::run` starts them")
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
        let directory = config.agents.as_deref().unwrap_or(std::path::Path::new("agents"));
        anyhow::anyhow!("the agents directory {} cannot be listed: {error}", directory.display())
    })
}

/// An error as one line, safe for a terminal.
pub(super) fn render_error(error: &ReadError) -> String {
    output::printable(&error.to_string()).replace('\n', " ")
}

/// Suggests a near name or lists the known agents, for an unknown agent.
pub(super) fn others(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if known.is_empty() => "; there are none".to_owned(),
        None => format!("; there are: {}", known.join(", ")),
    }
}

/// Reads a file; `-` is standard input. Reads one byte more than the limit at most, since a device may never end.
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

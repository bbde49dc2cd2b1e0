//! `gavel config`: the effective settings, each with the origin of its value. Secrets are masked.

use crate::cli::exit::Exit;
use crate::cli::{list, new_key, output};
use crate::config::{Config, Effective, Flags, find, reference};

/// Options of `gavel config`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = EXAMPLES)]
pub(super) struct Args {
    /// Print the settings as JSON, one per line: {key, environment, value, origin}
    #[arg(long, conflicts_with = "reference")]
    json: bool,
    /// All settings, as a Markdown table
    #[arg(long)]
    reference: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

const EXAMPLES: &str = "\
Examples:
  gavel config                                        the effective settings and their origins
  gavel config --json | jq 'select(.origin != \"default\")'
  gavel config new-key --name shop --role analyst     a key for a service";

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create an API key for a service, and its entry for gavel.toml
    NewKey(new_key::Args),
}

pub(super) fn run(args: Args, flags: &Flags) -> anyhow::Result<Exit> {
    if let Some(Command::NewKey(args)) = &args.command {
        return new_key::run(args);
    }
    if args.reference {
        output::line(&reference())?;
        return Ok(Exit::Done);
    }
    let resolved = Config::load(flags)?;
    for warning in &resolved.warnings {
        output::note(&format!("warning: {warning}"));
    }
    if args.json {
        output::json_lines(&resolved.origins)?;
    } else {
        let rows: Vec<_> = resolved.origins.iter().map(row).collect();
        output::line(&list::table(&["setting", "value", "from"], &rows))?;
    }
    Ok(Exit::Done)
}

fn row(effective: &Effective) -> Vec<String> {
    let absent = || find(effective.key).map_or("not set", |setting| setting.absent);
    let value = effective.value.clone().unwrap_or_else(|| format!("({})", absent()));
    vec![effective.key.to_owned(), value, effective.origin.to_string()]
}

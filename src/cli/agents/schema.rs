//! `gavel agents schema`: the schema of definitions, for editors and readers.

use crate::cli::exit::Exit;
use crate::cli::output;
use crate::domain::definition::{json_schema, json_schema_of_front_matter, reference};

/// Options of `gavel agents schema`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The schema of Markdown front matter, where the system prompt may follow as the body
    #[arg(long)]
    front_matter: bool,
    /// All fields and their names, as a Markdown table
    #[arg(long, conflicts_with = "front_matter")]
    reference: bool,
}

const EXAMPLES: &str = "\
Examples:
  gavel agents schema > agent.schema.json
      then, as the first line of a YAML file:   # yaml-language-server: $schema=../agent.schema.json
      or, as the first field of a JSON file:    \"$schema\": \"../agent.schema.json\"";

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.reference {
        output::line(&reference())?;
    } else if args.front_matter {
        output::json(&json_schema_of_front_matter())?;
    } else {
        output::json(&json_schema())?;
    }
    Ok(Exit::Done)
}

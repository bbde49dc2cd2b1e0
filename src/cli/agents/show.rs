//! `gavel agents show`: one complete agent.

use serde_json::json;

use super::{configured, others, render_error};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::config::Flags;
use crate::domain::definition::{Agent, Definition, Form};

/// Options of `gavel agents show`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The agent
    name: String,
    /// Only the definition, as a Markdown file, including the schema of its output
    #[arg(long, conflicts_with = "json")]
    definition: bool,
    /// As JSON: {name, file, form, hash, definition, output_schema}
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  gavel agents show codebase_investigator
  gavel agents show codebase_investigator --json | jq .definition
  gavel agents show codebase_investigator --definition >codebase_investigator.md

--definition saves a built-in agent to a file: an agents directory replaces all built-in agents.

Exit status 2 if the agent does not exist, or its definition is invalid.";

pub(super) fn run(args: &Args, flags: &Flags) -> anyhow::Result<Exit> {
    let loaded = configured(flags)?;
    let agents = &loaded.checked.agents;
    let Some(agent) = agents.get(&args.name) else {
        for error in &loaded.checked.errors {
            output::note(&render_error(error));
        }
        let known: Vec<_> = agents.keys().map(String::as_str).collect();
        output::note(&format!(
            "error: there is no agent {:?} ({}){}",
            args.name,
            loaded.place,
            others(&args.name, &known)
        ));
        return Ok(Exit::Invalid);
    };
    if args.definition {
        let mut whole = Definition::clone(&agent.definition);
        if let Some(schema) = &agent.output_schema {
            whole.put_in_schema(schema);
        }
        output::file(&whole.write(Form::Markdown))?;
    } else if args.json {
        output::json(&json!({
            "name": args.name,
            "file": agent.file,
            "form": agent.form.as_str(),
            "hash": &*agent.definition.hash,
            "definition": agent.definition.to_json(),
            "output_schema": agent.output_schema,
        }))?;
    } else {
        output::line(&text(agent))?;
    }
    Ok(Exit::Done)
}

/// Shows the definition as Markdown, the most readable form, whatever form its file has.
fn text(agent: &Agent) -> String {
    let definition = String::from_utf8_lossy(&agent.definition.write(Form::Markdown)).into_owned();
    let mut text = format!("# {}\n# hash {}\n{definition}", agent.file, agent.definition.hash);
    if let Some(schema) = &agent.output_schema {
        text.push_str(&format!("\n# The schema of its output\n{schema:#}\n"));
    }
    text
}

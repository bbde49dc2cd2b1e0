//! `gavel agents show`: one agent whole.

use serde_json::json;

use super::{configured, told};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::config::Flags;
use crate::domain::definition::{Agent, Form, unknown_name_message};

/// Options of `gavel agents show`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The agent
    name: String,
    /// As JSON: {name, file, form, hash, definition, output_schema}
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  gavel agents show codebase_investigator
  gavel agents show codebase_investigator --json | jq .definition

Exit status 2 when there is no such agent, or its definition is wrong.";

pub(super) fn run(args: &Args, flags: &Flags) -> anyhow::Result<Exit> {
    let loaded = configured(flags)?;
    let agents = &loaded.checked.agents;
    let Some(agent) = agents.get(&args.name) else {
        for error in &loaded.checked.errors {
            output::note(&told(error));
        }
        let known: Vec<_> = agents.keys().map(String::as_str).collect();
        let known = if known.is_empty() {
            "there are none".to_owned()
        } else {
            unknown_name_message(&args.name, &known)
        };
        output::note(&format!(
            "error: no agent {:?} is right ({}): {known}",
            args.name, loaded.place
        ));
        return Ok(Exit::Wrong);
    };
    if args.json {
        output::json(&json!({
            "name": args.name,
            "file": agent.file,
            "form": agent.form.as_str(),
            "hash": &*agent.definition.hash,
            "definition": agent.definition.to_json(),
            "output_schema": agent.output_schema,
        }))?;
    } else {
        output::line(&output::printable(&text(agent)))?;
    }
    Ok(Exit::Done)
}

/// In the form that reads best, whatever form its file has.
fn text(agent: &Agent) -> String {
    let definition = String::from_utf8_lossy(&agent.definition.write(Form::Markdown)).into_owned();
    let mut text = format!("# {}\n# hash {}\n{definition}", agent.file, agent.definition.hash);
    if let Some(schema) = &agent.output_schema {
        text.push_str(&format!("\n# The schema of its output\n{schema:#}\n"));
    }
    text
}

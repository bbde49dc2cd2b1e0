//! `gavel agents`: the definitions of agents, and running one. All but `list`, `run`, `eval` and `validate --tools`
//! only read files.

mod run;
mod validate;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use gavel_reading::nearest;
use serde_json::json;

pub(super) use self::validate::run_with_tools as validate_with_tools;
use crate::app::{self, Loaded};
use crate::cli::exit::{Exit, Usage};
use crate::cli::gavel::At;
use crate::cli::list::table;
pub(super) use crate::cli::output::count;
use crate::cli::{lines, mcp, output};
use crate::config::{Config, Flags, Resolved};
use crate::domain::definition::{
    Agent, Agents, Definition, Form, ReadError, json_schema, json_schema_of_front_matter, reference,
};
use crate::ports::tools::Catalog;
use crate::surfaces::definitions::{self, Lack};

/// The commands of `gavel agents`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Run an agent, with live progress
    Run(At<run::Args>),
    /// Check definitions: reports every error at once, each with file, line, what was found and what is allowed
    Validate(validate::Args),
    /// List the agents of this configuration, and which are unavailable and why
    List(List),
    /// Show one complete agent
    Show(Show),
    /// Write a definition in another form: JSON, YAML, Markdown or protobuf
    Convert(Convert),
    /// Run agents on their evaluation cases, and compare the results
    Eval(gavel_eval::agents::Args),
    /// Print the JSON Schema of definitions, which lets editors complete and check them
    Schema(Schema),
}

pub(super) fn run(command: Command, flags: &Flags) -> anyhow::Result<Exit> {
    match command {
        Command::Validate(args) => validate::run(&args, flags),
        Command::Show(args) => show(&args, flags),
        Command::Convert(args) => convert(&args),
        Command::Schema(args) => schema(&args),
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

/// Options of `gavel agents convert`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = CONVERT_EXAMPLES)]
pub(super) struct Convert {
    /// The definition; - is standard input
    file: PathBuf,
    /// The form to write
    #[arg(long, value_parser = form())]
    to: Form,
    /// The form to read, if the file name does not show it
    #[arg(long, value_parser = form())]
    from: Option<Form>,
    /// The file to write, which must not exist yet; without it, standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long, requires = "output")]
    force: bool,
}

const CONVERT_EXAMPLES: &str = "\
Examples:
  gavel agents convert agents/reviewer.md --to yaml
  gavel agents convert agents/reviewer.md --to proto -o reviewer.binpb
  gavel agents convert - --from json --to md <reviewer.json

Every form holds the same content: converted back, a definition has its original hash. It is written in the portable \
spelling: defaults that matter to other readers are added (inputConfig, query, approval). Comments are not kept. Names \
under inputs and in schemas are sorted. The definition is checked on its own; `gavel agents validate` also \
checks the schemas and agents that it names.

Exit status 2 if the definition is invalid, or FILE already exists or has the ending of another form.";

/// A form, as named by an option.
fn form() -> impl TypedValueParser<Value = Form> {
    PossibleValuesParser::new(["json", "yaml", "md", "proto"]).map(|name| match name.as_str() {
        "json" => Form::Json,
        "yaml" => Form::Yaml,
        "md" => Form::Markdown,
        _ => Form::Proto,
    })
}

fn convert(args: &Convert) -> anyhow::Result<Exit> {
    let is_standard_input = args.file == Path::new("-");
    let Some(from) = args.from.or_else(|| Form::of_path(&args.file)) else {
        bail!(Usage(
            "the file name does not show the form; give it with --from".to_owned()
        ));
    };
    if let Some(invalid) = args.output.as_deref().and_then(|file| unfit(file, args.to)) {
        bail!(Usage(invalid));
    }
    let place = match is_standard_input {
        true => "standard input".to_owned(),
        false => args.file.display().to_string(),
    };
    let bytes = lines::some_of(&args.file).with_context(|| format!("{place} cannot be read"))?;
    let definition = Definition::read(&bytes, from, &place).map_err(|errors| {
        errors.iter().for_each(|error| output::note(&render_error(error)));
        Usage(format!("{place} is not converted: {}", count(errors.len(), "error")))
    })?;
    let written = definition.write(args.to);
    match &args.output {
        Some(file) => match write(file, &written, args.force) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                bail!(Usage(format!(
                    "{} already exists; --force overwrites it",
                    file.display()
                )));
            }
            done => done.with_context(|| format!("{} cannot be written", file.display()))?,
        },
        None if args.to == Form::Proto && output::answers_are_shown() => {
            let words = "protobuf is binary and cannot be shown on a terminal; name a file with -o";
            bail!(Usage(words.to_owned()));
        }
        None => output::file(&written)?,
    }
    Ok(Exit::Done)
}

/// Readers would misread a file whose ending names another form than its content.
fn unfit(file: &Path, form: Form) -> Option<String> {
    let ending = Form::of_path(file).filter(|ending| *ending != form)?;
    Some(format!(
        "{} would contain {}, but its ending means {}",
        file.display(),
        form.as_str(),
        ending.as_str()
    ))
}

fn write(file: &Path, bytes: &[u8], force: bool) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    if force {
        options.write(true).create(true).truncate(true);
    } else {
        options.write(true).create_new(true);
    }
    options.open(file)?.write_all(bytes)
}

/// Options of `gavel agents list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = LIST_EXAMPLES)]
pub(super) struct List {
    /// Do not query the MCP servers for the tools
    #[arg(long)]
    offline: bool,
    /// Print the agents as JSON, one per line
    #[arg(long)]
    json: bool,
}

const LIST_EXAMPLES: &str = "\
Examples:
  gavel agents list                  the directory agents, or the one that GAVEL_AGENTS names, or the built-in agents
  gavel agents list --offline        without starting the MCP servers
  gavel agents list --json | jq -r 'select(.available == false).name'

An agent is unavailable if no server offers a tool on its allowlist, or its model's provider is \
not configured. So is an agent that calls an unavailable one. The agent task_worker also \
works with some of its tools, and planner does if a server offers those that read a repository. \
Exit status 2 if a definition is invalid.";

/// Tools in the line of an agent.
const SHOWN_TOOLS: usize = 4;

/// What agents lack, by their names.
type Lacking = BTreeMap<String, Lack>;

pub(super) async fn list(args: List, resolved: Resolved) -> anyhow::Result<Exit> {
    let loaded = load(&resolved.config)?;
    let agents = &loaded.checked.agents;
    // `--offline` queries no server.
    let catalog = match args.offline {
        true => None,
        false => Some(mcp::offered(&resolved.config).await?.0),
    };
    let found_in = |catalog: &Catalog| lacking(agents, catalog, &resolved.config);
    if args.json {
        let lacking = catalog.as_deref().map(found_in);
        let document = |(name, agent): (&String, _)| document(name, agent, agents, lacking.as_ref());
        output::json_lines(agents.iter().map(document))?;
    } else {
        let lacking = catalog
            .as_deref()
            .map(|catalog| found_in(&mcp::without_reasons(catalog)));
        let mut text = list_text(&loaded.place, agents, lacking.as_ref());
        if let Some(catalog) = catalog.filter(|_| lacking.is_some_and(|lacking| !lacking.is_empty())) {
            text.push_str(&output::printable(&format!("\n\n{}", mcp::not_connected(&catalog))));
        }
        output::line(text.trim_end())?;
    }
    for error in &loaded.checked.errors {
        output::note(&render_error(error));
    }
    Ok(if loaded.checked.errors.is_empty() {
        Exit::Done
    } else {
        Exit::Invalid
    })
}

/// The same check as in the service.
pub(super) fn lacking(agents: &Agents, catalog: &Catalog, config: &Config) -> Lacking {
    let models = app::providers(&config.model);
    let lack = |name: &String| Some((name.clone(), definitions::lack(name, agents, catalog, &models)?));
    agents.keys().filter_map(lack).collect()
}

/// What the agent lacks, in a sentence.
pub(super) fn sentence(name: &str, lack: &Lack) -> String {
    match lack {
        Lack::Unavailable(reason) => format!("{name} is unavailable: {reason}"),
        Lack::SomeTools(reason) => format!("{name} works without some of its tools: {reason}"),
    }
}

fn document(name: &str, agent: &Agent, agents: &Agents, lacking: Option<&Lacking>) -> serde_json::Value {
    let definition = &agent.definition;
    let is_agent = |name: &str| agents.contains_key(name);
    let reason = lacking.map(|lacking| match lacking.get(name) {
        Some(Lack::Unavailable(reason)) => Some(reason),
        Some(Lack::SomeTools(_)) | None => None,
    });
    json!({
        "name": name,
        "display_name": definition.display_name,
        "description": definition.description,
        "form": agent.form.as_str(),
        "file": agent.file,
        "flow_type": definition.flow.as_str(),
        "tools": definition.server_tools(is_agent),
        "calls": definition.calls(is_agent),
        "hash": &*definition.hash,
        "available": reason.map(|reason| reason.is_none()),
        "unavailable_reason": reason.flatten(),
    })
}

fn list_text(place: &str, agents: &Agents, lacking: Option<&Lacking>) -> String {
    if agents.is_empty() {
        return format!("no agents ({place})");
    }
    let rows: Vec<_> = agents
        .iter()
        .map(|(name, agent)| {
            let definition = &agent.definition;
            let state = match lacking.map(|lacking| lacking.get(name)) {
                None => "not checked",
                Some(None | Some(Lack::SomeTools(_))) => "available",
                Some(Some(Lack::Unavailable(_))) => "unavailable",
            };
            vec![
                name.clone(),
                state.to_owned(),
                definition.flow.as_str().to_owned(),
                agent.form.as_str().to_owned(),
                definition.hash.chars().take(12).collect(),
                agent.file.clone(),
                shown(&definition.tools),
            ]
        })
        .collect();
    let mut text = table(&["agent", "state", "flow", "form", "hash", "file", "tools"], &rows);
    for (name, lack) in lacking.into_iter().flatten() {
        text.push_str(&output::printable(&format!("\n{}", sentence(name, lack))));
    }
    text.push_str(&format!("\n{} ({place})", count(agents.len(), "agent")));
    text
}

/// The first tools; `gavel agents list --json` has all.
fn shown(tools: &[String]) -> String {
    match tools.len().saturating_sub(SHOWN_TOOLS) {
        0 | 1 => tools.join(", "),
        more => format!("{}, and {more} more", tools[..SHOWN_TOOLS].join(", ")),
    }
}

/// Options of `gavel agents schema`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = SCHEMA_EXAMPLES)]
pub(super) struct Schema {
    /// The schema of Markdown front matter, where the system prompt may follow as the body
    #[arg(long)]
    front_matter: bool,
    /// All fields and their names, as a Markdown table
    #[arg(long, conflicts_with = "front_matter")]
    reference: bool,
}

const SCHEMA_EXAMPLES: &str = "\
Examples:
  gavel agents schema > agent.schema.json
      then, as the first line of a YAML file:   # yaml-language-server: $schema=../agent.schema.json
      or, as the first field of a JSON file:    \"$schema\": \"../agent.schema.json\"";

fn schema(args: &Schema) -> anyhow::Result<Exit> {
    if args.reference {
        output::line(&reference())?;
    } else if args.front_matter {
        output::json(&json_schema_of_front_matter())?;
    } else {
        output::json(&json_schema())?;
    }
    Ok(Exit::Done)
}

/// Options of `gavel agents show`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = SHOW_EXAMPLES)]
pub(super) struct Show {
    /// The agent
    name: String,
    /// Only the definition, as a Markdown file, including the schema of its output
    #[arg(long, conflicts_with = "json")]
    definition: bool,
    /// As JSON: {name, file, form, hash, definition, output_schema}
    #[arg(long)]
    json: bool,
}

const SHOW_EXAMPLES: &str = "\
Examples:
  gavel agents show codebase_investigator
  gavel agents show codebase_investigator --json | jq .definition
  gavel agents show codebase_investigator --definition >codebase_investigator.md

--definition saves a built-in agent to a file: an agents directory replaces all built-in agents.

Exit status 2 if the agent does not exist, or its definition is invalid.";

fn show(args: &Show, flags: &Flags) -> anyhow::Result<Exit> {
    let loaded = configured(flags)?;
    let agents = &loaded.checked.agents;
    let Some(agent) = agents.get(&args.name) else {
        let errors = loaded.checked.errors.iter();
        errors.for_each(|error| output::note(&render_error(error)));
        let known: Vec<_> = agents.keys().map(String::as_str).collect();
        let (place, others) = (&loaded.place, others(&args.name, &known));
        bail!(Usage(format!("there is no agent {:?} ({place}){others}", args.name)));
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
        output::line(&show_text(agent))?;
    }
    Ok(Exit::Done)
}

/// Shows the definition as Markdown, the most readable form, whatever form its file has.
fn show_text(agent: &Agent) -> String {
    let definition = String::from_utf8_lossy(&agent.definition.write(Form::Markdown)).into_owned();
    let mut text = format!("# {}\n# hash {}\n{definition}", agent.file, agent.definition.hash);
    if let Some(schema) = &agent.output_schema {
        text.push_str(&format!("\n# The schema of its output\n{schema:#}\n"));
    }
    text
}

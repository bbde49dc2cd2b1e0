//! `gavel agents run`: runs an agent, in this process or on a remote gavel, and follows the run to its end.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use chrono_tz::Tz;

use super::inputs::{Given, inputs};
use super::{others, read_some};
use crate::api::agents::AgentDetail;
use crate::app::Work;
use crate::cli::client::{NewRun, Refused};
use crate::cli::exit::{Exit, Usage};
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::interrupt::unless_stopped;
use crate::cli::output;
use crate::cli::runs::{self, OnInterrupt, STATUSES, Showing, follow};
use crate::config::{Config, Provider};
use crate::domain::definition::{Definition, Form, MAX_BYTES};
use crate::domain::ids::{DEFAULT_PROJECT, ProjectId};

/// Options of `gavel agents run`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{STATUSES}"))]
pub(crate) struct Args {
    /// The agent
    name: String,
    /// Its task, if it takes one text (without inputConfig: its query)
    #[arg(value_name = "TEXT", num_args = 0..)]
    text: Vec<String>,
    /// An input, read as its declared type (repeatable); a list as a,b or once per element
    #[arg(long, value_name = "NAME=VALUE")]
    input: Vec<String>,
    /// Inputs as a JSON object; - is standard input
    #[arg(long, value_name = "FILE")]
    input_json: Option<String>,
    /// Overrides the definition's time limit
    #[arg(long, value_name = "SECONDS", value_parser = runs::timeout)]
    timeout: Option<Duration>,
    /// The user's time zone, an IANA name [default: this machine's]
    #[arg(long, value_name = "NAME", value_parser = str::parse::<Tz>)]
    time_zone: Option<Tz>,
    /// The project of the agent
    #[arg(long, default_value = DEFAULT_PROJECT, value_parser = runs::project, value_name = "NAME")]
    project: ProjectId,
    /// Do not wait for the end: print the run's id. Only with --server: without it, this process executes the run
    #[arg(long, requires = "server", conflicts_with_all = ["json", "events"])]
    background: bool,
    #[command(flatten)]
    showing: Showing,
    #[command(flatten)]
    place: Where,
}

const EXAMPLES: &str = "\
Examples:
  gavel agents run reviewer \"look at the last change\"
  FILES_ROOT=. gavel agents run codebase_investigator \"where does the policy check tool calls?\"
  gavel agents run --json codebase_investigator \"what is tested?\" | jq .output
  gavel agents run report --input year=2026 --input regions=north,south --input draft=true
  gavel agents run report --input-json - <inputs.json
  gavel agents run --server http://localhost:8080 --background reviewer \"look at the last change\"

Progress goes to standard error, only the result to standard output. Ctrl-C cancels the run and \
waits for its end; a second Ctrl-C stops waiting. `gavel agents show NAME` lists the inputs that \
an agent takes.";

impl Talk for Args {
    const WORK: Work = Work::Act;

    fn place(&self) -> Where {
        self.place.clone()
    }

    async fn before(&self, config: &Config) -> anyhow::Result<()> {
        if let Provider::Demo { by_name } = config.model.provider
            && !self.showing.quiet
        {
            let why = if by_name { "" } else { "No credentials are set: " };
            output::note(&format!(
                "{why}the demo model answers. It understands no agents, only a few simple requests about tasks and \
                 `call TOOL {{JSON}}`, so its results mean nothing. Set GEMINI_API_KEY to use Gemini."
            ));
        }
        Ok(())
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let object = self.input_json.as_deref().map(read).transpose()?;
        begin(self, object.as_deref(), gavel).await
    }
}

async fn begin(args: &Args, object: Option<&str>, gavel: &Gavel) -> anyhow::Result<Exit> {
    let Some(new) = unless_stopped(asked_for(args, object, gavel)).await? else {
        return Ok(Exit::Interrupted);
    };
    let Some(run) = unless_stopped(gavel.trigger(new?)).await? else {
        output::note(&format!(
            "it is unknown whether the run has begun; if it has, `gavel runs list{}` shows it",
            args.place.repeated()
        ));
        return Ok(Exit::Interrupted);
    };
    let run = run?;
    if args.background {
        output::line(&run.to_string())?;
        if !args.showing.quiet {
            output::note(&format!("watch it: gavel runs watch{} {run}", args.place.repeated()));
        }
        return Ok(Exit::Done);
    }
    follow(gavel, &args.place, run, &args.showing, OnInterrupt::Cancels, 0).await
}

/// The run that the command line requests. No run has begun if the inputs are invalid or the agent is unavailable.
async fn asked_for(args: &Args, object: Option<&str>, gavel: &Gavel) -> anyhow::Result<NewRun> {
    if !args.text.is_empty() && args.text.iter().all(|word| word.trim().is_empty()) {
        return Err(Usage("the text is blank; give the agent a task".to_owned()).into());
    }
    let agent = agent(args, gavel).await?;
    let text = agent.definition.to_string();
    let Ok(definition) = Definition::read(text.as_bytes(), Form::Json, &args.name) else {
        bail!(
            "this gavel cannot read the definition of {}; the server may be newer",
            args.name
        );
    };
    let given = Given {
        pairs: &args.input,
        object: args.input_json.as_deref().zip(object),
        text: (!args.text.is_empty()).then(|| args.text.join(" ")),
    };
    let inputs = inputs(&definition, &given).map_err(|errors| {
        let errors = output::printable(&errors.join("\n  "));
        Usage(format!(
            "the inputs are invalid:\n  {errors}\n{} takes:{}",
            args.name,
            takes(&definition)
        ))
    })?;
    if !agent.about.available {
        let reason = agent.about.unavailable_reason.as_deref();
        let reason = reason.unwrap_or("its server does not say why");
        bail!("{} is unavailable: {}", args.name, output::printable(reason));
    }
    Ok(NewRun {
        project: args.project.clone(),
        agent: args.name.clone(),
        inputs,
        timeout: args.timeout,
        // Without a named zone on this machine, the run gets none.
        time_zone: args
            .time_zone
            .or_else(|| iana_time_zone::get_timezone().ok()?.parse().ok()),
    })
}

/// The agent, once the servers of its tools are connected.
async fn agent(args: &Args, gavel: &Gavel) -> anyhow::Result<AgentDetail> {
    let is_missing = |error: &anyhow::Error| Refused::in_error(error).is_some_and(Refused::is_not_found);
    match gavel.agent(&args.project, &args.name).await {
        Err(error) if is_missing(&error) => {}
        Ok(agent) if !agent.about.available => {
            gavel.connect_servers_of(&args.project, &args.name).await?;
            return gavel.agent(&args.project, &args.name).await;
        }
        agent => return agent,
    }
    let known = gavel
        .agents(&args.project)
        .await
        .map_err(|error| match is_missing(&error) {
            true => Usage(format!("there is no project {} with agents", args.project)).into(),
            false => error,
        })?;
    let known: Vec<_> = known.items.iter().map(|agent| agent.id.as_str()).collect();
    Err(Usage(format!(
        "the project {} has no agent {:?}{}",
        args.project,
        args.name,
        others(&args.name, &known)
    ))
    .into())
}

/// Each input on a line.
fn takes(definition: &Definition) -> String {
    let inputs = definition.inputs.iter().map(|(name, input)| {
        let required = if input.required { ", required" } else { "" };
        let line = format!("{name} ({}{required}): {}", input.kind.as_str(), input.description);
        format!("\n  {}", output::printable(&line).replace('\n', " "))
    });
    inputs.collect()
}

fn read(file: &str) -> anyhow::Result<String> {
    let invalid = |problem: String| Usage(format!("--input-json {file}: {problem}"));
    let bytes = read_some(Path::new(file)).map_err(|error| invalid(format!("cannot be read: {error}")))?;
    if bytes.len() > MAX_BYTES {
        return Err(invalid("is longer than 1 MiB".to_owned()).into());
    }
    String::from_utf8(bytes).map_err(|_| invalid("is not UTF-8 text".to_owned()).into())
}

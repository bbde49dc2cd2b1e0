//! `gavel agents run`: one run of an agent, in this process or by a gavel elsewhere, followed to its end.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use chrono_tz::Tz;

use super::inputs::{Given, inputs};
use super::{others, read_some};
use crate::cli::exit::{Exit, Usage};
use crate::cli::interrupt::unless_stopped;
use crate::cli::output;
use crate::cli::runs::{self, NewRun, OnInterrupt, STATUSES, Service, Showing, Where, follow};
use crate::config::{Provider, Resolved};
use crate::domain::definition::{Definition, Form, MAX_BYTES};
use crate::domain::ids::ProjectId;
use crate::surfaces::agents::DEFAULT_PROJECT;

/// Options of `gavel agents run`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{STATUSES}"))]
pub(in crate::cli) struct Args {
    /// The agent
    name: String,
    /// Its task, where it takes one text (without inputConfig: its query)
    #[arg(value_name = "TEXT", num_args = 0..)]
    text: Vec<String>,
    /// An input, read as its type (repeatable); a list as a,b or once for each element
    #[arg(long, value_name = "NAME=VALUE")]
    input: Vec<String>,
    /// Inputs as a JSON object; - is standard input
    #[arg(long, value_name = "FILE")]
    input_json: Option<String>,
    /// Takes the place of the definition's time limit
    #[arg(long, value_name = "SECONDS", value_parser = runs::timeout)]
    timeout: Option<Duration>,
    /// The user's time zone, an IANA name [default: this machine's]
    #[arg(long, value_name = "NAME", value_parser = str::parse::<Tz>)]
    time_zone: Option<Tz>,
    /// The project of the agent
    #[arg(long, default_value = DEFAULT_PROJECT, value_parser = runs::project, value_name = "NAME")]
    project: ProjectId,
    /// Do not wait for its end: print the run's id. Only with --server: without, this process works on the run
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
  FILES_ROOT=. gavel agents run codebase_investigator \"where are tool calls judged?\"
  gavel agents run --json codebase_investigator \"what is tested?\" | jq .output
  gavel agents run report --input year=2026 --input regions=north,south --input draft=true
  gavel agents run report --input-json - <inputs.json
  gavel agents run --server http://localhost:8080 --background reviewer \"look at the last change\"

Progress goes to standard error, the result alone to standard output. Ctrl-C cancels the run and \
waits for its end; once more, and it is left where it stands. `gavel agents show NAME` lists what \
an agent takes.";

impl Args {
    /// Is a gavel elsewhere asked?
    pub(in crate::cli) fn is_remote(&self) -> bool {
        self.place.server.is_some()
    }
}

/// `resolved` is absent where a gavel elsewhere is asked.
pub(in crate::cli) async fn run(args: Args, resolved: Option<Resolved>) -> anyhow::Result<Exit> {
    let object = args.input_json.as_deref().map(read).transpose()?;
    let provider = resolved.as_ref().map(|resolved| &resolved.config.model.provider);
    if let Some(Provider::Demo { asked }) = provider
        && !args.showing.quiet
    {
        let why = if *asked { "" } else { "No credentials are set: " };
        output::note(&format!(
            "{why}the demo model answers. It understands no agents, only a few plain requests about tasks; what it \
             says is no measure. GEMINI_API_KEY brings in Gemini."
        ));
    }
    let place = args.place.with(resolved.map(|resolved| resolved.config))?;
    let service = Service::open(place).await?;
    let done = begin(&args, object.as_deref(), &service).await;
    let leave = matches!(done, Ok(Exit::Interrupted));
    service.close(leave).await?;
    done
}

async fn begin(args: &Args, object: Option<&str>, service: &Service) -> anyhow::Result<Exit> {
    let Some(new) = unless_stopped(asked_for(args, object, service)).await? else {
        return Ok(Exit::Interrupted);
    };
    let Some(run) = unless_stopped(service.trigger(new?)).await? else {
        output::note(&format!(
            "whether the run has begun is not known; `gavel runs list{}` shows it then",
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
    follow(service, &args.place, run, &args.showing, OnInterrupt::Cancels).await
}

/// The run that the command line asks for. Nothing has run when that is wrong, or the agent cannot run now.
async fn asked_for(args: &Args, object: Option<&str>, service: &Service) -> anyhow::Result<NewRun> {
    if !args.text.is_empty() && args.text.iter().all(|word| word.trim().is_empty()) {
        return Err(Usage("the text is blank; say what the agent is to do".to_owned()).into());
    }
    let agent = match service.agent(&args.project, &args.name).await? {
        Ok(agent) => agent,
        Err(known) => {
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            return Err(Usage(format!(
                "no agent of the project {} is called {:?}{}",
                args.project,
                args.name,
                others(&args.name, &known)
            ))
            .into());
        }
    };
    let text = agent["definition"].to_string();
    let Ok(definition) = Definition::read(text.as_bytes(), Form::Json, &args.name) else {
        bail!(
            "this gavel cannot read the definition of {}; is the server a newer one?",
            args.name
        );
    };
    let given = Given {
        pairs: &args.input,
        object: args.input_json.as_deref().zip(object),
        text: (!args.text.is_empty()).then(|| args.text.join(" ")),
    };
    let inputs = inputs(&definition, &given).map_err(|mistakes| {
        let mistakes = output::printable(&mistakes.join("\n  "));
        Usage(format!(
            "the inputs are not right:\n  {mistakes}\n{} takes:{}",
            args.name,
            takes(&definition)
        ))
    })?;
    if agent["available"] == false {
        let reason = agent["unavailable_reason"]
            .as_str()
            .unwrap_or("its server does not say why");
        bail!("{} is unavailable: {}", args.name, output::printable(reason));
    }
    Ok(NewRun {
        project: args.project.clone(),
        agent: args.name.clone(),
        inputs,
        timeout: args.timeout,
        // A machine whose zone has no name says nothing of it.
        time_zone: args
            .time_zone
            .or_else(|| iana_time_zone::get_timezone().ok()?.parse().ok()),
    })
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
    let wrong = |problem: String| Usage(format!("--input-json {file}: {problem}"));
    let bytes = read_some(Path::new(file)).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if bytes.len() > MAX_BYTES {
        return Err(wrong("is longer than 1 MiB".to_owned()).into());
    }
    String::from_utf8(bytes).map_err(|_| wrong("is no text in UTF-8".to_owned()).into())
}

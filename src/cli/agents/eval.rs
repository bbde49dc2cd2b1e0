//! `gavel agents eval`: runs agents on their evaluation cases and compares the results.

mod case;
mod github;
mod session;
mod stage;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use indicatif::ProgressBar;
use serde_json::json;

use self::case::OWNER;
use self::github::GitHub;
use self::stage::{Observed, Stage, caller, limit};
use crate::app::App;
use crate::cli::eval::{Scratch, bar};
use crate::cli::exit::{Exit, Usage};
use crate::cli::interrupt::{unless_stopped, until_interrupted};
use crate::cli::{output, runs};
use crate::config::{Config, Resolved};
use crate::domain::repository::RepositoryPattern;
use crate::evaluation::agents::{AgentCases, judge, load};

/// Options of `gavel agents eval`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Only these agents
    // Not `agents`: that is the name of the global flag for the directory of definitions.
    #[arg(value_name = "AGENT")]
    only: Vec<String>,
    /// Directory of cases
    #[arg(long, default_value = "evaluation/agents", value_name = "DIR")]
    cases: PathBuf,
    /// The longest one case may take; then its run is cancelled [default: the agent's time limit plus 2 minutes, or 15
    /// minutes without a limit]
    #[arg(long, value_name = "SECONDS", value_parser = runs::timeout)]
    case_timeout: Option<Duration>,
    /// Print one JSON object per case, as soon as it is evaluated
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Each case runs its agent with the configured model. Tasks and records go into a scratch directory, and \
the files server serves the directory that the cases name. The agents of planning work in a session \
about the repository that the cases name, on a stand-in for GitHub. The result of the run is compared with \
what the case expects, and printed at once.

With an mcp.json of your own (--mcp-config) its servers are used unchanged. Cases that name a \
directory (root, repository) are rejected then, since other files would answer them.

Examples:
  gavel agents eval
  gavel agents eval codebase_investigator --json

The demo model understands no agents, so its results mean nothing.

Exit status: 0 all as expected, 1 some are not, 2 the cases are invalid. Ctrl-C ends with 130, and reports what was evaluated so far.";

/// What a case may take beyond its agent's time limit: for its servers, the grace after a limit, and the decision log.
const MARGIN: Duration = Duration::from_secs(120);
/// What a case may take if its agent has no time limit.
const UNLIMITED: Duration = Duration::from_secs(15 * 60);

/// The result of one case.
struct Evaluated {
    agent: String,
    case: String,
    invalid: Vec<String>,
    observed: Option<Observed>,
}

/// The results so far.
struct Tally {
    right: usize,
    evaluated: usize,
    of: usize,
    bar: ProgressBar,
    json: bool,
}

impl Tally {
    fn add(&mut self, one: &Evaluated) -> anyhow::Result<()> {
        self.evaluated += 1;
        self.right += usize::from(one.invalid.is_empty());
        self.bar.inc(1);
        self.bar.suspend(|| tell(one, self.json))
    }
}

pub(in crate::cli) async fn run(args: Args, resolved: Resolved) -> anyhow::Result<Exit> {
    let files = files(&args, &resolved.config)?;
    let of = files.iter().map(|file| file.cases.len()).sum();
    let mut tally = Tally {
        right: 0,
        evaluated: 0,
        of,
        bar: bar(of),
        json: args.json,
    };
    // Listens from here on, so that a signal between two cases is received as well.
    let mut stopped = Box::pin(until_interrupted());
    for file in &files {
        let scratch = Scratch::make()?;
        let github = match file.repository {
            Some(_) => Some(GitHub::start().await.context("the stand-in for GitHub")?),
            None => None,
        };
        let mut config = resolved.config.clone();
        config.planning.repositories = vec![repositories()?];
        let api = github.as_ref().map(GitHub::url);
        let config = scratch.apply_with(config, file.root.as_deref(), api.as_deref())?;
        let app = App::build_for_command(config).await?;
        let evaluated = tokio::select! {
            evaluated = evaluate(file, (&app, github.as_ref()), args.case_timeout, &mut tally) => evaluated.map(|()| false),
            stopped = &mut stopped => stopped.map(|()| true).map_err(Into::into),
        };
        if !matches!(evaluated, Ok(false)) {
            // The current run is not awaited.
            app.runs.cut_short();
        }
        // A second signal ends it at once.
        let closed = unless_stopped(app.shutdown(None)).await?;
        if evaluated? || closed.is_none() {
            tally.bar.finish_and_clear();
            let Tally {
                right, evaluated, of, ..
            } = tally;
            output::note(&format!(
                "interrupted: {evaluated} of {of} cases were evaluated, {right} of them as expected"
            ));
            return Ok(Exit::Interrupted);
        }
    }
    tally.bar.finish_and_clear();
    let Tally { right, evaluated, .. } = tally;
    if !args.json {
        output::line(&format!("{right} of {evaluated} cases are as expected"))?;
    }
    Ok(if right == evaluated { Exit::Done } else { Exit::Failed })
}

/// The requested cases, if they can be evaluated here.
fn files(args: &Args, config: &Config) -> Result<Vec<AgentCases>, Usage> {
    let mut files = load(&args.cases).map_err(|errors| Usage(errors.join("\n")))?;
    if let Some(unknown) = args
        .only
        .iter()
        .find(|name| files.iter().all(|file| file.agent != **name))
    {
        return Err(Usage(format!("{unknown} has no cases in {}", args.cases.display())));
    }
    files.retain(|file| args.only.is_empty() || args.only.contains(&file.agent));
    let directory = |file: &'_ AgentCases| file.root.clone().or_else(|| file.repository.clone());
    let mut with_root = files.iter().filter_map(|file| Some((&file.agent, directory(file)?)));
    if let (Some(mcp), Some((agent, root))) = (&config.mcp_config, with_root.next()) {
        return Err(Usage(format!(
            "the cases of {agent} use the directory {}, but the servers of {} would be used instead; omit --mcp-config \
            and GAVEL_MCP_CONFIG, or name agents without such cases",
            root.display(),
            mcp.display()
        )));
    }
    Ok(files)
}

/// The repositories of cases.
fn repositories() -> anyhow::Result<RepositoryPattern> {
    RepositoryPattern::parse(&format!("{OWNER}/*")).map_err(anyhow::Error::msg)
}

/// Runs all cases of one agent, one after another, in a service of their own.
async fn evaluate(
    file: &AgentCases,
    (app, github): (&App, Option<&GitHub>),
    given: Option<Duration>,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let most = match given {
        Some(most) => most,
        None => limit(app, &file.agent).await?.map_or(UNLIMITED, |limit| limit + MARGIN),
    };
    let stage = Stage {
        app,
        caller: caller()?,
        github,
        most,
    };
    for of in &file.cases {
        tally.bar.set_message(format!("{} {}", file.agent, of.id));
        let (invalid, observed) = match case::run(&stage, file, of).await {
            Ok(observed) => (judge(&of.expect, &observed.result), Some(observed)),
            Err(error) => (vec![format!("{error:#}")], None),
        };
        tally.add(&Evaluated {
            agent: file.agent.clone(),
            case: of.id.clone(),
            invalid,
            observed,
        })?;
    }
    Ok(())
}

fn tell(evaluated: &Evaluated, json: bool) -> anyhow::Result<()> {
    let (result, run) = match &evaluated.observed {
        Some(Observed { result, run }) => (Some(result), run.as_ref()),
        None => (None, None),
    };
    if json {
        // A session shows all of its work in its output.
        let session = result
            .filter(|_| run.is_none())
            .and_then(|result| result.output.as_ref());
        let run = run.map(serde_json::to_value).transpose()?;
        let line = json!({
            "agent": evaluated.agent, "case": evaluated.case, "as_expected": evaluated.invalid.is_empty(), "wrong": evaluated.invalid,
            "run": run, "session": session,
        });
        return output::line(&line.to_string());
    }
    let mark = if evaluated.invalid.is_empty() { "ok  " } else { "FAIL" };
    let about = match (result, run) {
        (_, Some(run)) => {
            let seconds = run.duration_ms.unwrap_or_default() as f64 / 1e3;
            format!("  {} steps, {} tokens, {seconds:.1} s", run.steps, run.usage.total())
        }
        (Some(result), None) => format!("  {} steps", result.steps),
        (None, None) => String::new(),
    };
    output::line(&format!("{mark} {} {}{about}", evaluated.agent, evaluated.case))?;
    for invalid in &evaluated.invalid {
        output::line(&format!("       {invalid}"))?;
    }
    Ok(())
}

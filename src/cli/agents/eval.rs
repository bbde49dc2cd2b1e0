//! `gavel agents eval`: runs agents on their evaluation cases and compares the results.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use chrono_tz::Tz;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::app::App;
use crate::cli::eval::{Scratch, Tasks, bar};
use crate::cli::exit::{Exit, Usage};
use crate::cli::interrupt::{unless_stopped, until_interrupted};
use crate::cli::{output, runs};
use crate::config::{Config, Resolved};
use crate::domain::agent_run::AgentRun;
use crate::domain::ids::{DEFAULT_PROJECT, ProjectId, RunId, TenantId, UserId};
use crate::evaluation::Seed;
use crate::evaluation::agents::{AgentCase, AgentCases, judge, load};
use crate::ports::tools::Tools;
use crate::surfaces::agents::Trigger;
use crate::surfaces::caller::{Caller, Identity};
use crate::surfaces::request::RequestMeta;
use crate::surfaces::runs::Begun;

/// Options of `gavel agents eval`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Only these agents
    #[arg(value_name = "AGENT")]
    agents: Vec<String>,
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
Each case runs its agent with the configured model, in a scratch directory: tasks and records go there, \
and the files server serves the directory that the cases name. The result of the run is compared with \
what the case expects, and printed at once.

With an mcp.json of your own (--mcp-config) its servers are used unchanged. Cases that name a \
directory (root) are rejected then, since other files would answer them.

Examples:
  gavel agents eval
  gavel agents eval codebase_investigator --json

The demo model understands no agents, so its results mean nothing. Exit status: 0 all as expected, 1 some \
are not, 2 the cases are invalid. Ctrl-C ends with 130, and reports what was evaluated so far.";

/// What a case may take beyond its agent's time limit: for its servers, the grace after a limit, and the decision log.
const MARGIN: Duration = Duration::from_secs(120);
/// What a case may take if its agent has no time limit.
const UNLIMITED: Duration = Duration::from_secs(15 * 60);
/// How long a cancelled run may take to end.
const CANCELLED: Duration = Duration::from_secs(10);
/// How long the task server may take to start.
const SERVERS: Duration = Duration::from_secs(15);

/// The result of one case.
struct Evaluated {
    agent: String,
    case: String,
    invalid: Vec<String>,
    run: Option<AgentRun>,
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
        let config = scratch.apply_with_files(resolved.config.clone(), file.root.as_deref())?;
        let app = App::build_for_command(config).await?;
        let evaluated = tokio::select! {
            evaluated = evaluate(file, &app, args.case_timeout, &mut tally) => evaluated.map(|()| false),
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
        .agents
        .iter()
        .find(|name| files.iter().all(|file| file.agent != **name))
    {
        return Err(Usage(format!("{unknown} has no cases in {}", args.cases.display())));
    }
    files.retain(|file| args.agents.is_empty() || args.agents.contains(&file.agent));
    let mut with_root = files.iter().filter_map(|file| Some((&file.agent, file.root.as_ref()?)));
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

/// Runs all cases of one agent, one after another, in a service of their own.
async fn evaluate(file: &AgentCases, app: &App, given: Option<Duration>, tally: &mut Tally) -> anyhow::Result<()> {
    let most = match given {
        Some(most) => most,
        None => limit(app, &file.agent).await?.map_or(UNLIMITED, |limit| limit + MARGIN),
    };
    for case in &file.cases {
        tally.bar.set_message(format!("{} {}", file.agent, case.id));
        let (invalid, run) = match one(app, &file.agent, case, most).await {
            Ok((run, calls)) => (judge(&case.expect, &run, &calls), Some(run)),
            Err(error) => (vec![format!("{error:#}")], None),
        };
        tally.add(&Evaluated {
            agent: file.agent.clone(),
            case: case.id.clone(),
            invalid,
            run,
        })?;
    }
    Ok(())
}

/// The agent's time limit. If the agent does not exist, its cases report that.
async fn limit(app: &App, agent: &str) -> anyhow::Result<Option<Duration>> {
    let project = ProjectId::parse(DEFAULT_PROJECT).context("the project")?;
    let project = app.directory.project(&caller()?.tenant, &project).await?;
    Ok(project
        .agents
        .get(agent)
        .and_then(|agent| agent.definition.limits.max_time))
}

fn caller() -> anyhow::Result<Caller> {
    Ok(Caller {
        tenant: TenantId::parse("default").context("the tenant")?,
        identity: Identity::Service(Arc::from("eval")),
        roles: Arc::default(),
    })
}

/// The run of a case, and the tools that it called successfully. A run that does not end in time is cancelled.
async fn one(app: &App, agent: &str, case: &AgentCase, most: Duration) -> anyhow::Result<(AgentRun, Vec<String>)> {
    let until = tokio::time::Instant::now() + most;
    let caller = caller()?;
    let begun = tokio::time::timeout_at(until, begin(app, &caller, agent, case)).await;
    let seconds = most.as_secs();
    let Ok(begun) = begun else {
        bail!("the run had not begun after {seconds} s");
    };
    let mut begun = begun?;
    let id = begun.run;
    let Ok(run) = tokio::time::timeout_at(until, app.runs.wait(&caller, &mut begun)).await else {
        app.runs.cancel(&caller, None, id, None).await?;
        // One case at a time, even if one fails: the next case waits for this run to end.
        let ended = tokio::time::timeout(CANCELLED, app.runs.wait(&caller, &mut begun)).await;
        bail!(
            "the run had not ended after {seconds} s, and {}",
            if ended.is_ok() {
                "was cancelled"
            } else {
                "did not end when it was cancelled"
            }
        );
    };
    let run = run?;
    let decision = app.decisions.get(&caller, None, run.id.decision()).await?;
    Ok((run, called(decision.unwrap_or_default())))
}

/// Creates the user's tasks, then begins the run.
async fn begin(app: &App, caller: &Caller, agent: &str, case: &AgentCase) -> anyhow::Result<Begun> {
    let user = UserId::parse(format!("eval-{}", case.id)).context("the case's id")?;
    if !case.tasks.is_empty() {
        let seeds: Vec<_> = case.tasks.iter().map(|words| seed(words)).collect();
        app.mcp.ready(&["add_task".to_owned()], Instant::now() + SERVERS).await;
        if let Err(error) = Tasks::new(Arc::clone(&app.mcp)).seed(&user, &seeds).await {
            bail!("the case's tasks could not be created: {error}");
        }
    }
    let trigger = Trigger {
        project: ProjectId::parse(DEFAULT_PROJECT).context("the project")?,
        agent: agent.to_owned(),
        inputs: case.input.clone().into(),
        timeout: None,
        time_zone: Some(Tz::UTC),
        background: false,
        meta: RequestMeta {
            request_id: Arc::from(format!("eval-{}", RunId::new())),
            traceparent: None,
            idempotency: None,
            shed: None,
        },
    };
    Ok(app.agents.trigger(caller, user, trigger).await?)
}

fn seed(words: &str) -> Seed {
    Seed {
        description: words.to_owned(),
        ..Seed::default()
    }
}

fn called(decision: Value) -> Vec<String> {
    let calls = decision["tool_calls"].as_array().cloned().unwrap_or_default();
    let good = calls.iter().filter(|call| call["result"]["success"] == true);
    let names: BTreeSet<_> = good
        .filter_map(|call| Some(call["tool"].as_str()?.to_owned()))
        .collect();
    names.into_iter().collect()
}

fn tell(evaluated: &Evaluated, json: bool) -> anyhow::Result<()> {
    if json {
        let run = evaluated.run.as_ref().map(serde_json::to_value).transpose()?;
        let line = json!({
            "agent": evaluated.agent, "case": evaluated.case, "as_expected": evaluated.invalid.is_empty(), "wrong": evaluated.invalid,
            "run": run,
        });
        return output::line(&line.to_string());
    }
    let mark = if evaluated.invalid.is_empty() { "ok  " } else { "FAIL" };
    let about = evaluated.run.as_ref().map_or_else(String::new, |run| {
        let seconds = run.duration_ms.unwrap_or_default() as f64 / 1e3;
        format!("  {} steps, {} tokens, {seconds:.1} s", run.steps, run.usage.total())
    });
    output::line(&format!("{mark} {} {}{about}", evaluated.agent, evaluated.case))?;
    for invalid in &evaluated.invalid {
        output::line(&format!("       {invalid}"))?;
    }
    Ok(())
}

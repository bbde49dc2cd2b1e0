//! `gavel agents eval`: how well agents do their work, by the cases that come with them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::app::App;
use crate::cli::eval::{Scratch, Tasks};
use crate::cli::exit::{Exit, Usage};
use crate::cli::interrupt::unless_stopped;
use crate::cli::output;
use crate::config::{Config, Resolved};
use crate::domain::agent_run::AgentRun;
use crate::domain::ids::{ProjectId, RunId, TenantId, UserId};
use crate::evaluation::Seed;
use crate::evaluation::agents::{AgentCase, AgentCases, judge, load};
use crate::ports::tools::Tools;
use crate::surfaces::agents::{DEFAULT_PROJECT, Trigger};
use crate::surfaces::caller::{Caller, Identity};
use crate::surfaces::chat::RequestMeta;

/// Options of `gavel agents eval`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Only these agents
    #[arg(value_name = "AGENT")]
    agents: Vec<String>,
    /// Folder of cases
    #[arg(long, default_value = "evaluation/agents", value_name = "DIR")]
    cases: PathBuf,
    /// Print one JSON object a case
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Each case runs its agent with the configured model, on a scratch folder: tasks and records go there, and the files server
serves the folder that the cases name. What came of the run is compared with what the case expects.

Examples:
  gavel agents eval
  gavel agents eval codebase_investigator --json

The demo model understands no agents, so it is no measure. Exit status: 0 all as expected, 1 some are not, 2 the cases are
wrong.";

/// How long the task server may take to come up.
const SERVERS: Duration = Duration::from_secs(15);

/// How one case came out.
struct Judged {
    agent: String,
    case: String,
    wrong: Vec<String>,
    run: Option<AgentRun>,
}

pub(in crate::cli) async fn run(args: Args, resolved: Resolved) -> anyhow::Result<Exit> {
    let mut files = load(&args.cases).map_err(|errors| Usage(errors.join("\n")))?;
    if let Some(unknown) = args
        .agents
        .iter()
        .find(|name| files.iter().all(|file| file.agent != **name))
    {
        return Err(Usage(format!("{unknown} has no cases in {}", args.cases.display())).into());
    }
    files.retain(|file| args.agents.is_empty() || args.agents.contains(&file.agent));
    let (mut right, mut all) = (0_usize, 0_usize);
    for file in files {
        let evaluated = unless_stopped(evaluate(&file, &resolved.config)).await?;
        let Some(judged) = evaluated.transpose()? else {
            return Ok(Exit::Interrupted);
        };
        for one in judged {
            all += 1;
            right += usize::from(one.wrong.is_empty());
            tell(&one, args.json)?;
        }
    }
    if !args.json {
        output::line(&format!("{right} of {all} cases are as expected"))?;
    }
    Ok(if right == all { Exit::Done } else { Exit::Failed })
}

/// All cases of one agent, one after another, in a service of their own.
async fn evaluate(file: &AgentCases, config: &Config) -> anyhow::Result<Vec<Judged>> {
    let scratch = Scratch::make()?;
    let config = scratch.apply_with_files(config.clone(), file.root.as_deref())?;
    let app = App::build_for_command(config).await?;
    let mut judged = Vec::with_capacity(file.cases.len());
    for case in &file.cases {
        let (wrong, run) = match one(&app, &file.agent, case).await {
            Ok((run, calls)) => (judge(&case.expect, &run, &calls), Some(run)),
            Err(error) => (vec![format!("{error:#}")], None),
        };
        judged.push(Judged {
            agent: file.agent.clone(),
            case: case.id.clone(),
            wrong,
            run,
        });
    }
    app.shutdown(None).await;
    Ok(judged)
}

/// The run of a case, and the tools that it called with success.
async fn one(app: &App, agent: &str, case: &AgentCase) -> anyhow::Result<(AgentRun, Vec<String>)> {
    let user = UserId::parse(format!("eval-{}", case.id)).context("the case's id")?;
    let caller = Caller {
        tenant: TenantId::parse("default").context("the tenant")?,
        identity: Identity::Service(Arc::from("eval")),
        roles: Arc::default(),
    };
    if !case.tasks.is_empty() {
        let seeds: Vec<_> = case.tasks.iter().map(|words| seed(words)).collect();
        app.mcp.ready(&["add_task".to_owned()], Instant::now() + SERVERS).await;
        if let Err(error) = Tasks::new(Arc::clone(&app.mcp)).seed(&user, &seeds).await {
            bail!("its tasks could not be made: {error}");
        }
    }
    let trigger = Trigger {
        project: ProjectId::parse(DEFAULT_PROJECT).context("the project")?,
        agent: agent.to_owned(),
        inputs: case.input.clone(),
        timeout: None,
        background: false,
        meta: RequestMeta {
            request_id: Arc::from(format!("eval-{}", RunId::new())),
            traceparent: None,
            idempotency: None,
        },
    };
    let mut triggered = app.agents.trigger(&caller, user, trigger).await?;
    let run = app.agents.wait(&caller, &mut triggered).await?;
    let decision = app.decisions.get(&caller, run.id.decision()).await?;
    Ok((run, called(decision.unwrap_or_default())))
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

fn tell(judged: &Judged, json: bool) -> anyhow::Result<()> {
    if json {
        let run = judged.run.as_ref().map(serde_json::to_value).transpose()?;
        let line = json!({
            "agent": judged.agent, "case": judged.case, "as_expected": judged.wrong.is_empty(), "wrong": judged.wrong,
            "run": run,
        });
        return output::line(&line.to_string());
    }
    let mark = if judged.wrong.is_empty() { "ok  " } else { "FAIL" };
    let about = judged.run.as_ref().map_or_else(String::new, |run| {
        let seconds = run.duration_ms.unwrap_or_default() as f64 / 1e3;
        format!("  {} steps, {} tokens, {seconds:.1} s", run.steps, run.usage.total())
    });
    output::line(&format!("{mark} {} {}{about}", judged.agent, judged.case))?;
    for wrong in &judged.wrong {
        output::line(&format!("       {wrong}"))?;
    }
    Ok(())
}

//! Runs one case: an agent on its own, or in a planning session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use chrono_tz::Tz;
use serde_json::Value;
use tokio::time::timeout_at;

use super::github::{GitHub, Repository};
use super::session;
use crate::app::App;
use crate::cli::eval::Tasks;
use crate::domain::agent_run::AgentRun;
use crate::domain::ids::{DEFAULT_PROJECT, ProjectId, RunId, TenantId, UserId};
use crate::domain::planning_session::{PLANNER, TASK_WORKER};
use crate::evaluation::Seed;
use crate::evaluation::agents::{AgentCase, AgentCases, CaseResult};
use crate::ports::tools::Tools;
use crate::surfaces::agents::Trigger;
use crate::surfaces::caller::{Caller, Identity};
use crate::surfaces::request::RequestMeta;
use crate::surfaces::runs::Begun;

/// How long a cancelled run may take to end.
pub(super) const CANCELLED: Duration = Duration::from_secs(10);
/// How long a server may take to start.
const SERVERS: Duration = Duration::from_secs(15);
/// The owner of the repository of a case; its name is that of the directory.
pub(super) const OWNER: &str = "acme";

/// What a case is run with.
pub(super) struct Stage<'a> {
    pub(super) app: &'a App,
    pub(super) caller: Caller,
    /// The stand-in for GitHub, for cases with a repository.
    pub(super) github: Option<&'a GitHub>,
    /// The longest that a case may take.
    pub(super) most: Duration,
}

/// A case that was run.
pub(super) struct Observed {
    pub(super) result: CaseResult,
    /// The run of the agent. A session has one for each task, and none that shows them all.
    pub(super) run: Option<AgentRun>,
}

pub(super) fn caller() -> anyhow::Result<Caller> {
    Ok(Caller {
        tenant: TenantId::parse("default").context("the tenant")?,
        identity: Identity::Service(Arc::from("eval")),
        roles: Arc::default(),
    })
}

/// The agent's time limit. If the agent does not exist, its cases report that.
pub(super) async fn limit(app: &App, agent: &str) -> anyhow::Result<Option<Duration>> {
    let project = ProjectId::parse(DEFAULT_PROJECT).context("the project")?;
    let project = app.directory.project(&caller()?.tenant, &project).await?;
    Ok(project
        .agents
        .get(agent)
        .and_then(|agent| agent.definition.limits.max_time))
}

pub(super) fn meta() -> RequestMeta {
    RequestMeta {
        request_id: Arc::from(format!("eval-{}", RunId::new())),
        traceparent: None,
        idempotency: None,
        shed: None,
    }
}

impl Stage<'_> {
    /// Runs a case. What does not end in time is cancelled.
    pub(super) async fn run(&self, file: &AgentCases, case: &AgentCase) -> anyhow::Result<Observed> {
        let user = UserId::parse(format!("eval-{}", case.id)).context("the case's id")?;
        let url = match (self.github, &file.repository) {
            (Some(github), Some(directory)) => {
                let name = directory
                    .file_name()
                    .context("the repository's name")?
                    .to_string_lossy();
                let repository = Repository::of((OWNER, &name), directory, case);
                github.hold(repository.with_context(|| format!("{} cannot be read", directory.display()))?);
                self.app
                    .mcp
                    .ready(&["getFileContents".to_owned()], Instant::now() + SERVERS)
                    .await;
                let base = self.app.config.planning.github.as_str().trim_end_matches('/');
                format!("{base}/{OWNER}/{name}")
            }
            _ => String::new(),
        };
        match &*file.agent {
            PLANNER => session::plan(self, user, case, &url).await,
            TASK_WORKER => session::work(self, user, case, &url).await,
            agent => {
                let begun = self.in_time(self.begin(user, agent, case)).await;
                self.ended(begun.context("the run had not begun")??).await
            }
        }
    }

    /// The run of an agent, once it has ended.
    pub(super) async fn ended(&self, mut begun: Begun) -> anyhow::Result<Observed> {
        let (app, caller) = (self.app, &self.caller);
        let id = begun.run;
        let Ok(run) = self.in_time(app.runs.wait(caller, &mut begun)).await else {
            app.runs.cancel(caller, None, id, None).await?;
            // One case at a time, even if one fails: the next case waits for this run to end.
            let ended = tokio::time::timeout(CANCELLED, app.runs.wait(caller, &mut begun)).await;
            bail!(self.not_in_time("run", ended.is_ok()));
        };
        let run = run?;
        let decision = app.decisions.get(caller, None, run.id.decision()).await?;
        let output = run.output.as_deref();
        let result = CaseResult {
            status: run.status.as_str().to_owned(),
            reason: run.error_message.clone(),
            output: output.map(|output| serde_json::from_str(output.get()).unwrap_or_default()),
            summary: run.summary.clone(),
            steps: run.steps,
            calls: called(&decision.unwrap_or_default()),
        };
        Ok(Observed { result, run: Some(run) })
    }

    /// Fails after the longest time that a case may take.
    pub(super) async fn in_time<T>(&self, work: impl Future<Output = T>) -> anyhow::Result<T> {
        let until = tokio::time::Instant::now() + self.most;
        timeout_at(until, work)
            .await
            .with_context(|| format!("after {} s", self.most.as_secs()))
    }

    pub(super) fn not_in_time(&self, what: &str, is_cancelled: bool) -> String {
        let seconds = self.most.as_secs();
        let cancelled = match is_cancelled {
            true => "was cancelled",
            false => "did not end when it was cancelled",
        };
        format!("the {what} had not ended after {seconds} s, and {cancelled}")
    }

    /// Creates the user's tasks, then begins the run.
    async fn begin(&self, user: UserId, agent: &str, case: &AgentCase) -> anyhow::Result<Begun> {
        let app = self.app;
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
            meta: meta(),
        };
        Ok(app.agents.trigger(&self.caller, user, trigger).await?)
    }
}

fn seed(words: &str) -> Seed {
    Seed {
        description: words.to_owned(),
        ..Seed::default()
    }
}

fn called(decision: &Value) -> BTreeMap<String, bool> {
    let calls = decision["tool_calls"].as_array().into_iter().flatten();
    let mut called = BTreeMap::new();
    for (tool, call) in calls.filter_map(|call| Some((call["tool"].as_str()?, call))) {
        *called.entry(tool.to_owned()).or_default() |= call["result"]["success"] == true;
    }
    called
}

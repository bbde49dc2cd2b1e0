//! What every case is run with and what comes of it, whether its agent works on its own or in a session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::github::GitHub;
use crate::app::App;
use crate::domain::agent_run::AgentRun;
use crate::domain::ids::{DEFAULT_PROJECT, ProjectId, RunId, TenantId};
use crate::evaluation::agents::CaseResult;
use crate::surfaces::caller::{Caller, Identity};
use crate::surfaces::request::RequestMeta;
use crate::surfaces::runs::Begun;

/// How long a cancelled run may take to end.
pub(super) const CANCELLED: Duration = Duration::from_secs(10);

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
    /// The run of an agent, once it has ended.
    pub(super) async fn ended(&self, mut begun: Begun) -> anyhow::Result<Observed> {
        let (app, caller) = (self.app, &self.caller);
        let id = begun.run;
        let Ok(run) = self.in_time(app.runs.wait(caller, &mut begun)).await else {
            app.runs.cancel(caller, None, id, None).await?;
            // One case at a time, even if one fails: the next case waits for this run to end.
            let ended = timeout(CANCELLED, app.runs.wait(caller, &mut begun)).await;
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
            calls: called(&serde_json::to_value(decision).unwrap_or_default()),
        };
        Ok(Observed { result, run: Some(run) })
    }

    /// Fails after the longest time that a case may take.
    pub(super) async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Elapsed> {
        timeout(self.most, work).await
    }

    pub(super) fn not_in_time(&self, what: &str, is_cancelled: bool) -> String {
        let seconds = self.most.as_secs();
        let cancelled = match is_cancelled {
            true => "was cancelled",
            false => "did not end when it was cancelled",
        };
        format!("the {what} had not ended after {seconds} s, and {cancelled}")
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

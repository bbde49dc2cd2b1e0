//! The service that executes runs: this process, or a remote gavel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use chrono_tz::Tz;
use serde_json::{Map, Value, json};

use super::events::Events;
use super::id_of;
use super::place::{Place, There};
use crate::app::App;
use crate::cli::client::Refused;
use crate::cli::exit::Usage;
use crate::cli::interrupt::unless_stopped;
use crate::cli::operator;
use crate::config::Config;
use crate::domain::ids::{ActionId, DecisionId, GrantId, ProjectId, RunId, UserId};
use crate::ports::tools::Tools;
use crate::surfaces::agents::{AgentError, AgentRuns, Cursor, Resume, Trigger};
use crate::surfaces::approvals::Answer;
use crate::surfaces::caller::Caller;
use crate::surfaces::chat::RequestMeta;

/// The acting user if none is named, as in the HTTP API (DESIGN.md section 9, Callers).
const LOCAL: &str = "local";
/// How long to wait for an agent's MCP servers.
const SERVERS: Duration = Duration::from_secs(15);
/// The path for answers.
const RESOLVE: [&str; 4] = ["api", "agent", "approvals", "resolve"];

/// This process, or a remote gavel.
pub(in crate::cli) enum Service {
    Here(Box<Own>),
    There(There),
}

/// This process.
pub(in crate::cli) struct Own {
    app: App,
    caller: Caller,
    user: Option<UserId>,
}

/// The request for a run.
pub(in crate::cli) struct NewRun {
    pub(in crate::cli) project: ProjectId,
    pub(in crate::cli) agent: String,
    pub(in crate::cli) inputs: Map<String, Value>,
    pub(in crate::cli) timeout: Option<Duration>,
    pub(in crate::cli) time_zone: Option<Tz>,
}

impl Service {
    pub(in crate::cli) async fn open(place: Place) -> anyhow::Result<Self> {
        Ok(match place {
            Place::There(there) => Self::There(there),
            Place::Here(here) => {
                // This process serves one run, and executes no other runs.
                let config = Config {
                    runs: crate::config::Runs {
                        background: 0,
                        ..here.config.runs
                    },
                    ..here.config
                };
                Self::Here(Box::new(Own {
                    app: App::build_for_command(config).await?,
                    caller: operator::caller(here.tenant, here.user.as_ref()),
                    user: here.user,
                }))
            }
        })
    }

    /// An agent of a project, as the API shows it; if the name is unknown, the known names. Waits for the servers of
    /// all agents that it calls.
    pub(in crate::cli) async fn agent(
        &self,
        project: &ProjectId,
        name: &str,
    ) -> anyhow::Result<Result<Value, Vec<String>>> {
        match self {
            Self::There(there) => {
                let agents = ["api", "projects", project.as_str(), "agents"];
                let path = [&agents[..], &[name]].concat();
                match there.client.get(&path, &[], None).await {
                    Ok(agent) => Ok(Ok(agent)),
                    Err(error) if is_missing(&error) => {
                        // One page of names, for a user who mistyped one.
                        let page = there.client.get(&agents, &[("page_size", "1000")], None).await;
                        let page = page.map_err(|error| no_project(error, project))?;
                        let listed = page["agents"].as_array().context("the answer has no list of agents")?;
                        let names = listed.iter().filter_map(|agent| agent["id"].as_str());
                        Ok(Err(names.map(str::to_owned).collect()))
                    }
                    Err(error) => Err(error),
                }
            }
            Self::Here(own) => {
                let directory = own.app.agents.directory();
                let listed = directory.list(&own.caller.tenant, project).await;
                let listed = listed.map_err(|error| no_project(error.into(), project))?;
                if listed.iter().all(|agent| agent.id != name) {
                    return Ok(Err(listed.into_iter().map(|agent| agent.id).collect()));
                }
                let tools = tools(&listed, name);
                own.app.mcp.ready(&tools, Instant::now() + SERVERS).await;
                let agent = directory
                    .get(&own.caller.tenant, project, name)
                    .await
                    .map_err(to_error)?;
                Ok(Ok(serde_json::to_value(agent)?))
            }
        }
    }

    /// Creates and starts a run.
    pub(in crate::cli) async fn trigger(&self, new: NewRun) -> anyhow::Result<RunId> {
        match self {
            Self::There(there) => {
                let path = ["api", "projects", new.project.as_str(), "agents", &new.agent, "trigger"];
                let body = Value::Object(new.inputs);
                there.post(&path, new.timeout, new.time_zone, &body).await
            }
            Self::Here(own) => {
                let user = match &own.user {
                    Some(user) => user.clone(),
                    None => UserId::parse(LOCAL)?,
                };
                let trigger = Trigger {
                    project: new.project,
                    agent: new.agent,
                    inputs: new.inputs.into(),
                    timeout: new.timeout,
                    time_zone: new.time_zone,
                    background: false,
                    meta: meta(),
                };
                let triggered = own.app.agents.trigger(&own.caller, user, trigger).await;
                Ok(triggered.map_err(to_error)?.run)
            }
        }
    }

    /// Continues a paused run.
    pub(in crate::cli) async fn resume(
        &self,
        run: RunId,
        settled: BTreeMap<ActionId, bool>,
        timeout: Option<Duration>,
    ) -> anyhow::Result<RunId> {
        match self {
            Self::There(there) => {
                let id = run.to_string();
                let body = json!({ "settled": settled });
                there.post(&["api", "runs", &id, "resume"], timeout, None, &body).await
            }
            Self::Here(own) => {
                let resume = Resume {
                    settled,
                    timeout,
                    background: false,
                    meta: meta(),
                };
                let resumed = own.app.agents.resume(&own.caller, own.user.clone(), run, resume).await;
                Ok(resumed.map_err(to_error)?.run)
            }
        }
    }

    /// Requests the cancellation of a run, and returns its state after that.
    pub(in crate::cli) async fn cancel(&self, run: RunId) -> anyhow::Result<Value> {
        match self {
            Self::There(there) => {
                let id = run.to_string();
                let path = ["api", "runs", &id, "cancel"];
                there.client.post(&path, &[], there.user.as_ref(), &json!({})).await
            }
            Self::Here(own) => {
                let cancelled = own.app.agents.cancel(&own.caller, own.user.as_ref(), run, None).await;
                Ok(serde_json::to_value(cancelled.map_err(to_error)?)?)
            }
        }
    }

    /// Resolves an approval; returns the run, as in the threads API, when it waits or has ended, or after it resumed.
    pub(in crate::cli) async fn resolve(&self, answer: Answer) -> anyhow::Result<Value> {
        match self {
            Self::There(there) => {
                let (client, user) = (&there.client, there.user.as_ref());
                client.post_and_wait(&RESOLVE, user, &body(&answer)).await
            }
            Self::Here(own) => {
                let run = own.answer(answer).await?;
                if let Err(error) = own.app.agents.rests(&own.caller, run).await {
                    tracing::warn!(run_id = %run, %error, "an answered run was not waited for to its end");
                }
                own.after(run).await
            }
        }
    }

    /// Like [`Service::resolve`], but does not wait for the run, which the caller follows. Returns the message if the
    /// answer came too late.
    pub(super) async fn answer(&self, answer: Answer) -> anyhow::Result<Option<String>> {
        let answered = match self {
            Self::There(there) => {
                let (client, user) = (&there.client, there.user.as_ref());
                client.post(&RESOLVE, &[], user, &body(&answer)).await.map(drop)
            }
            Self::Here(own) => own.answer(answer).await.map(drop),
        };
        match answered {
            Ok(()) => Ok(None),
            Err(error) if is_late(&error) => Ok(Some(format!("{error:#}"))),
            Err(error) => Err(error),
        }
    }

    /// Settles an in-doubt action; returns its run, as in the threads API.
    pub(in crate::cli) async fn settle(&self, action: ActionId, happened: bool) -> anyhow::Result<Value> {
        match self {
            Self::There(there) => {
                let id = action.to_string();
                let path = ["api", "agent", "actions", &id, "settle"];
                let body = json!({ "happened": happened });
                there.client.post(&path, &[], there.user.as_ref(), &body).await
            }
            Self::Here(own) => {
                let approvals = &own.app.approvals;
                let settled = approvals
                    .settle(&own.caller, own.user.clone(), action, happened, None)
                    .await;
                own.after(settled.map_err(unasked)?.run).await
            }
        }
    }

    /// Revokes a grant.
    pub(in crate::cli) async fn revoke(&self, grant: GrantId) -> anyhow::Result<()> {
        match self {
            Self::There(there) => {
                let id = grant.to_string();
                let path = ["api", "agent", "grants", &id];
                there.client.delete(&path, there.user.as_ref()).await
            }
            Self::Here(own) => {
                let revoked = own.app.approvals.revoke(&own.caller, own.user.clone(), grant).await;
                revoked.map_err(|error| match error {
                    AgentError::NotFound => {
                        anyhow!(
                            "this tenant and user have no such active grant; `gavel approvals grants` lists the grants"
                        )
                    }
                    error => to_error(error),
                })
            }
        }
    }

    /// A run with its actions, as in the threads API.
    async fn in_thread(&self, run: RunId) -> anyhow::Result<Value> {
        match self {
            Self::There(there) => {
                let id = run.to_string();
                let path = ["api", "agent", "runs", &id];
                there.client.get(&path, &[], there.user.as_ref()).await
            }
            Self::Here(own) => {
                let run = own.app.threads.run(&own.caller, None, run).await;
                Ok(serde_json::to_value(run.map_err(to_error)?)?)
            }
        }
    }

    /// The approval requests of this run and the runs it called, oldest first.
    pub(super) async fn questions(&self, run: RunId) -> anyhow::Result<Vec<Value>> {
        let run = self.in_thread(run).await?;
        let actions = run["actions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let waiting = actions.iter().filter(|action| action["approvalId"].is_string());
        Ok(waiting.cloned().collect())
    }

    /// One run in its current state.
    pub(super) async fn get(&self, run: RunId) -> anyhow::Result<Value> {
        match self {
            Self::There(there) => {
                let id = run.to_string();
                there.client.get(&["api", "runs", &id], &[], there.user.as_ref()).await
            }
            Self::Here(own) => {
                let found = own.app.agents.get(&own.caller, own.user.as_ref(), run).await;
                Ok(serde_json::to_value(found.map_err(to_error)?)?)
            }
        }
    }

    /// The events of a run, from its beginning.
    pub(super) async fn events(&self, run: RunId) -> anyhow::Result<Events<'_>> {
        Ok(match self {
            Self::There(there) => Events::there(there, run),
            Self::Here(own) => {
                let runs: &Arc<AgentRuns> = &own.app.agents;
                let watch = runs.watch(&own.caller, own.user.as_ref(), run, Cursor::default()).await;
                Events::Here(Box::new(watch.map_err(to_error)?))
            }
        })
    }

    /// Ends the work of this process. A run in progress is completed, unless `detach` is set.
    pub(in crate::cli) async fn close(self, detach: bool) -> anyhow::Result<()> {
        if let Self::Here(own) = self {
            if detach {
                own.app.agents.cut_short();
            }
            // A second signal ends it at once; then the leases expire.
            unless_stopped(own.app.shutdown(None)).await?;
        }
        Ok(())
    }
}

impl Own {
    async fn answer(&self, answer: Answer) -> anyhow::Result<RunId> {
        let approvals = &self.app.approvals;
        let answered = approvals.resolve(&self.caller, self.user.clone(), answer).await;
        Ok(answered.map_err(unasked)?.run)
    }

    /// A run after an answer, as in the threads API.
    async fn after(&self, run: RunId) -> anyhow::Result<Value> {
        let run = self.app.threads.after(&self.caller, run).await;
        Ok(serde_json::to_value(run.map_err(to_error)?)?)
    }
}

impl There {
    async fn post(
        &self,
        path: &[&str],
        timeout: Option<Duration>,
        zone: Option<Tz>,
        body: &Value,
    ) -> anyhow::Result<RunId> {
        let seconds = timeout.map(|timeout| timeout.as_secs().to_string());
        let seconds = seconds.iter().map(|seconds| ("timeout_s", seconds.as_str()));
        let query: Vec<_> = seconds.chain(zone.map(|zone| ("time_zone", zone.name()))).collect();
        let run = self.client.post(path, &query, self.user.as_ref(), body).await?;
        id_of(&run)
    }
}

fn meta() -> RequestMeta {
    RequestMeta {
        request_id: Arc::from(format!("cli-{}", DecisionId::new())),
        traceparent: None,
        idempotency: None,
        shed: None,
    }
}

/// The tools of an agent and of all agents that it calls; each agent is visited once.
fn tools(agents: &[crate::surfaces::agents::AgentInfo], name: &str) -> Vec<String> {
    let (mut seen, mut open, mut tools) = (BTreeSet::new(), vec![name], Vec::new());
    while let Some(next) = open.pop() {
        if seen.insert(next)
            && let Some(agent) = agents.iter().find(|agent| agent.id == next)
        {
            tools.extend(agent.tools.iter().cloned());
            open.extend(agent.calls.iter().map(String::as_str));
        }
    }
    tools
}

/// The request body of an answer.
fn body(answer: &Answer) -> Value {
    json!({ "approvalId": answer.approval, "decision": answer.resolution, "reason": answer.reason })
}

fn is_missing(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<Refused>() {
        Some(refused) => refused.status.as_u16() == 404,
        None => matches!(error.downcast_ref(), Some(AgentError::NotFound)),
    }
}

/// Was the request already resolved?
fn is_late(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<Refused>() {
        Some(refused) => refused.code.as_deref() == Some("already_resolved"),
        None => error.is::<Late>(),
    }
}

/// Already resolved, or expired.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
struct Late(String);

fn no_project(error: anyhow::Error, project: &ProjectId) -> anyhow::Error {
    if is_missing(&error) {
        Usage(format!("there is no project {project} with agents")).into()
    } else {
        error
    }
}

/// Like [`to_error`], for requests about approvals and actions.
fn unasked(error: AgentError) -> anyhow::Error {
    match error {
        AgentError::NotFound => {
            anyhow!("this tenant and user have no such approval request or action; `gavel approvals list` lists them")
        }
        error => to_error(error),
    }
}

/// A surface error as a message for the terminal.
fn to_error(error: AgentError) -> anyhow::Error {
    match &error {
        AgentError::Invalid(errors) => {
            let lines: Vec<_> = errors.iter().map(|error| format!("\n  {error}")).collect();
            Usage(format!("the input is invalid:{}", lines.concat())).into()
        }
        AgentError::NotGrantable(why) => Usage(why.clone()).into(),
        AgentError::NotFound => anyhow!("there is no such run of this tenant and user"),
        AgentError::Resolved(status, said, by) => {
            let by = by.as_deref().map_or_else(String::new, |by| format!(" by {by}"));
            let said = said.map_or_else(String::new, |said| format!(", answered {}{by}", said.as_str()));
            Late(format!(
                "the approval request is no longer pending: it is {}{said}",
                status.as_str()
            ))
            .into()
        }
        AgentError::NotInDoubt(status) => anyhow!(
            "only an in-doubt action can be settled; this one is {}",
            status.as_str()
        ),
        AgentError::SettledWith(run) => {
            anyhow!("it is settled when its run is resumed: `gavel runs show {run}` shows how")
        }
        AgentError::NotOver(run) => {
            anyhow!("its run {run} has not ended; resolve its approval requests or cancel it, then settle this action")
        }
        AgentError::NotPaused(status) => {
            anyhow!("only a paused run can be resumed; this one is {}", status.as_str())
        }
        AgentError::PartOf(run) => anyhow!("the run was called by another run; resume run {run} instead"),
        AgentError::StepLimitExceeded => {
            anyhow!("the step limit over all resumes of this run is exhausted; start a new run of the agent")
        }
        AgentError::Overloaded => anyhow!("gavel is overloaded or stopping; nothing was begun"),
        AgentError::RateLimited(quota) => anyhow!("the quota is exceeded; try again in {} s", quota.reset_s.max(1)),
        _ => error.into(),
    }
}

//! One function for each route that a command uses.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::anyhow;
use chrono_tz::Tz;
use reqwest::header::IF_MATCH;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{ACTING_USER, Client, Events, Refused, problem, with};
use crate::api::Page;
use crate::api::agents::{AgentDetail, AgentInfo, AgentPage};
use crate::api::approvals::{
    ActionInDoubt, ActionInDoubtPage, ApprovalPage, Grant, GrantPage, PendingApproval, ResolveBody, SettleBody,
};
use crate::api::decisions::{DecisionDetail, DecisionPage, DecisionRecord};
use crate::api::planning::{
    CancelBody, DryRun, ExecuteBody, LoggedAction, PlanVersionPage, PlanningLogPage, PlanningSessionPage, RefineBody,
    Session, StartBody, TaskDetail, Version,
};
use crate::api::runs::{AgentRun, RunPage};
use crate::api::threads::{ActionAnswer, RunAnswer, Thread, ThreadPage, ThreadSummary};
use crate::domain::ids::{ActionId, DecisionId, GrantId, PlanningSessionId, ProjectId, RunId, ThreadId};
use crate::domain::plan::TaskId;

/// The acting user if none is named, as in the HTTP API.
pub(super) const LOCAL: &str = "local";

/// What a list is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pub(crate) page_size: u32,
    pub(crate) page_token: Option<String>,
    pub(crate) filter: Option<String>,
    pub(crate) order_by: Option<&'static str>,
}

/// The request for a run.
#[derive(Clone, Debug)]
pub(crate) struct NewRun {
    pub(crate) project: ProjectId,
    pub(crate) agent: String,
    pub(crate) inputs: Map<String, Value>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) time_zone: Option<Tz>,
}

/// A run that was created.
#[derive(Deserialize)]
struct Created {
    id: RunId,
}

impl Client {
    /// Requests a decision, and returns its body as text.
    ///
    /// # Errors
    /// There is none; the error has the problem document's own text.
    pub(crate) async fn decide(&self, body: &Value) -> anyhow::Result<String> {
        let whole = self.whole(self.http.post(self.url(&["v1", "chat"])).json(body)).await?;
        // The answer has a decision whatever its status (429, 503).
        match serde_json::from_str::<Value>(&whole.text) {
            // JSON may have carriage returns between values, which must not reach the output.
            Ok(body) if body.get("decision_type").is_some() => Ok(match whole.text.contains('\r') {
                true => body.to_string(),
                false => whole.text,
            }),
            Ok(body) if whole.status.is_success() => Err(problem(&body).map_or_else(
                || anyhow!("{} answered {} without a decision", whole.url, whole.status),
                |(words, _)| anyhow!(words),
            )),
            // A message that is rejected is no invalid usage of the command.
            _ => Err(anyhow!("{:#}", self.refused(whole))),
        }
    }

    /// An agent of a project.
    ///
    /// # Errors
    /// There is no such agent.
    pub(crate) async fn agent(&self, project: &ProjectId, name: &str) -> anyhow::Result<AgentDetail> {
        self.get(&["api", "projects", project.as_str(), "agents", name], &[])
            .await
    }

    /// One page of agents, for a user who mistyped the name of one.
    ///
    /// # Errors
    /// There is no such project.
    pub(crate) async fn agents(&self, project: &ProjectId) -> anyhow::Result<Page<AgentInfo>> {
        let query = Query {
            page_size: 1000,
            ..Query::default()
        };
        self.page::<AgentPage, _>(&["api", "projects", project.as_str(), "agents"], &query)
            .await
    }

    /// Creates and starts a run.
    pub(crate) async fn trigger(&self, new: NewRun) -> anyhow::Result<RunId> {
        let path = ["api", "projects", new.project.as_str(), "agents", &new.agent, "trigger"];
        let mut query = timeout(new.timeout);
        query.extend(new.time_zone.map(|zone| ("time_zone", zone.name().to_owned())));
        let url = with(self.url(&path), &query);
        let mut request = self.http.post(url).json(&new.inputs).header("prefer", self.begins());
        if self.own && self.user.is_none() {
            request = request.header(super::ACTING_USER, LOCAL);
        }
        self.json(request).await.map(|Created { id }| id)
    }

    /// Continues a paused run.
    pub(crate) async fn resume(
        &self,
        run: RunId,
        settled: BTreeMap<ActionId, bool>,
        most: Option<Duration>,
    ) -> anyhow::Result<RunId> {
        let (id, body) = (run.to_string(), json!({ "settled": settled }));
        let Created { id } = self
            .post(&["api", "runs", &id, "resume"], &timeout(most), self.begins(), &body)
            .await?;
        Ok(id)
    }

    /// Requests the cancellation of a run, and returns its state after that.
    pub(crate) async fn cancel(&self, run: RunId) -> anyhow::Result<AgentRun> {
        let id = run.to_string();
        self.post(&["api", "runs", &id, "cancel"], &[], AT_ONCE, &json!({}))
            .await
    }

    /// One run in its current state.
    pub(crate) async fn run(&self, run: RunId) -> anyhow::Result<AgentRun> {
        self.get(&["api", "runs", &run.to_string()], &[]).await
    }

    /// A page of the runs of a project.
    pub(crate) async fn runs(&self, project: &ProjectId, query: &Query) -> anyhow::Result<Page<AgentRun>> {
        self.page::<RunPage, _>(&["api", "projects", project.as_str(), "runs"], query)
            .await
    }

    /// The events of a run, from its beginning.
    pub(crate) fn events(&self, run: RunId) -> Events<'_> {
        Events::of(self, &["api", "runs", &run.to_string(), "events"])
    }

    /// A run with its calls.
    pub(crate) async fn thread_run(&self, run: RunId) -> anyhow::Result<RunAnswer> {
        self.get(&["api", "agent", "runs", &run.to_string()], &[]).await
    }

    /// The actions of a run, and of those that it called; empty if the run is no longer kept, or hidden from the user.
    pub(crate) async fn actions(&self, run: RunId) -> anyhow::Result<Vec<ActionAnswer>> {
        let run = seen(self.thread_run(run).await)?;
        let calls = run.map(|run| run.actions).unwrap_or_default();
        let is_action = |call: &ActionAnswer| call.record.created_at.is_some();
        Ok(calls.into_iter().filter(is_action).collect())
    }

    /// A page of threads.
    pub(crate) async fn threads(&self, query: &Query) -> anyhow::Result<Page<ThreadSummary>> {
        self.page::<ThreadPage, _>(&["api", "agent", "threads"], query).await
    }

    /// One thread, with its latest messages before number `before`.
    pub(crate) async fn thread(&self, thread: ThreadId, before: Option<u64>) -> anyhow::Result<Thread> {
        let query: Vec<_> = before.iter().map(|before| ("before", before.to_string())).collect();
        self.get(&["api", "agent", "threads", &thread.to_string()], &query)
            .await
    }

    /// A page of approval requests, oldest first.
    pub(crate) async fn pending(&self, query: &Query) -> anyhow::Result<Page<PendingApproval>> {
        self.page::<ApprovalPage, _>(&["api", "agent", "approvals", "pending"], query)
            .await
    }

    /// A page of in-doubt actions, oldest first.
    pub(crate) async fn in_doubt(&self, query: &Query) -> anyhow::Result<Page<ActionInDoubt>> {
        self.page::<ActionInDoubtPage, _>(&["api", "agent", "actions", "in-doubt"], query)
            .await
    }

    /// Resolves an approval; returns the run when it waits or has ended.
    pub(crate) async fn resolve_and_wait(&self, resolution: &ResolveBody) -> anyhow::Result<RunAnswer> {
        let wait = format!("wait={}", self.wait().as_secs());
        self.post(&RESOLVE, &[], &wait, resolution).await
    }

    /// Resolves an approval, without waiting for the run.
    pub(crate) async fn resolve(&self, resolution: &ResolveBody) -> anyhow::Result<RunAnswer> {
        self.post(&RESOLVE, &[], AT_ONCE, resolution).await
    }

    /// Settles an in-doubt action; returns its run.
    pub(crate) async fn settle(&self, action: ActionId, happened: bool) -> anyhow::Result<RunAnswer> {
        let (id, body) = (action.to_string(), SettleBody { happened });
        self.post(&["api", "agent", "actions", &id, "settle"], &[], AT_ONCE, &body)
            .await
    }

    /// A page of grants.
    pub(crate) async fn grants(&self, query: &Query) -> anyhow::Result<Page<Grant>> {
        self.page::<GrantPage, _>(&["api", "agent", "grants"], query).await
    }

    /// Revokes a grant.
    pub(crate) async fn revoke(&self, grant: GrantId) -> anyhow::Result<()> {
        self.delete(&["api", "agent", "grants", &grant.to_string()]).await
    }

    /// A page of decisions.
    pub(crate) async fn decisions(&self, query: &Query) -> anyhow::Result<Page<DecisionRecord>> {
        self.page::<DecisionPage, _>(&["v1", "decisions"], query).await
    }

    /// One decision with its tool calls; `None` if there is none, or the caller may not see it.
    pub(crate) async fn decision(&self, id: DecisionId) -> anyhow::Result<Option<DecisionDetail>> {
        seen(self.get(&["v1", "decisions", &id.to_string()], &[]).await)
    }

    /// A page of a list, as the API answers it: a `P`.
    pub(super) async fn page<P: DeserializeOwned, T>(&self, path: &[&str], query: &Query) -> anyhow::Result<Page<T>>
    where
        Page<T>: From<P>,
    {
        // The routes of threads and of planning sessions spell names in camelCase.
        let [size, order, token] = match path {
            ["api", "agent", ..] | ["v1", "sessions", ..] => ["pageSize", "orderBy", "pageToken"],
            _ => ["page_size", "order_by", "page_token"],
        };
        let mut given = vec![(size, query.page_size.to_string())];
        let optional = [
            ("filter", query.filter.clone()),
            (order, query.order_by.map(str::to_owned)),
            (token, query.page_token.clone()),
        ];
        given.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
        self.get::<P>(path, &given).await.map(Page::from)
    }

    /// How a run begins whose events are followed: in the process itself, or with a background worker of the server.
    pub(super) fn begins(&self) -> &'static str {
        if self.own { "wait=0" } else { AT_ONCE }
    }
}

/// The preference for an answer that waits for no run.
pub(super) const AT_ONCE: &str = "respond-async";
/// The path for answers.
const RESOLVE: [&str; 4] = ["api", "agent", "approvals", "resolve"];

fn timeout(most: Option<Duration>) -> Vec<(&'static str, String)> {
    most.iter()
        .map(|most| ("timeout_s", most.as_secs().to_string()))
        .collect()
}

/// `None` for what does not exist, or is hidden from the caller.
fn seen<T>(answer: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match answer {
        Ok(seen) => Ok(Some(seen)),
        Err(error) if Refused::in_error(&error).is_some_and(|refused| matches!(refused.status.as_u16(), 403 | 404)) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl Client {
    /// Creates a session; its plan is made while the caller watches.
    pub(crate) async fn start_planning(&self, new: &StartBody) -> anyhow::Result<Session> {
        let url = self.url(&["v1", "sessions"]);
        let mut request = self.http.post(url).json(new).header("prefer", self.begins());
        if self.own && self.user.is_none() {
            request = request.header(ACTING_USER, LOCAL);
        }
        self.json(request).await
    }

    /// Requests a change of the plan; it is made while the caller watches.
    pub(crate) async fn refine_plan(&self, session: PlanningSessionId, text: &str) -> anyhow::Result<Session> {
        let (id, body) = (
            session.to_string(),
            RefineBody {
                refinement_prompt: text.to_owned(),
            },
        );
        self.post(&["v1", "sessions", &id, "refine"], &[], self.begins(), &body)
            .await
    }

    /// Replaces version `version` of the plan by an edited one.
    pub(crate) async fn edit_plan(
        &self,
        session: PlanningSessionId,
        version: u32,
        draft: &Value,
    ) -> anyhow::Result<Session> {
        let url = self.url(&["v1", "sessions", &session.to_string(), "plan"]);
        let request = self.http.put(url).header(IF_MATCH, format!("\"{version}\""));
        self.json(request.json(draft)).await
    }

    /// Cancels a session, and returns its state after that.
    pub(crate) async fn cancel_session(
        &self,
        session: PlanningSessionId,
        reason: Option<&str>,
    ) -> anyhow::Result<Session> {
        let id = session.to_string();
        let body = CancelBody {
            reason: reason.map(str::to_owned),
        };
        self.post(&["v1", "sessions", &id, "cancel"], &[], AT_ONCE, &body).await
    }

    /// One session.
    pub(crate) async fn session(&self, session: PlanningSessionId) -> anyhow::Result<Session> {
        self.get(&["v1", "sessions", &session.to_string()], &[]).await
    }

    /// One session, with its plan also as the text that is stored.
    pub(crate) async fn raw_session(&self, session: PlanningSessionId) -> anyhow::Result<Session> {
        let query = [("view", "raw".to_owned())];
        self.get(&["v1", "sessions", &session.to_string()], &query).await
    }

    /// A page of sessions.
    pub(crate) async fn sessions(&self, query: &Query) -> anyhow::Result<Page<Session>> {
        self.page::<PlanningSessionPage, _>(&["v1", "sessions"], query).await
    }

    /// All versions of a plan, in order.
    pub(crate) async fn versions(&self, session: PlanningSessionId) -> anyhow::Result<Vec<Version>> {
        let id = session.to_string();
        let mut versions = Vec::new();
        let mut query = Query {
            page_size: 50,
            ..Query::default()
        };
        loop {
            let path = ["v1", "sessions", &id, "history"];
            let page = self.page::<PlanVersionPage, Version>(&path, &query).await?;
            versions.extend(page.items);
            match page.next_page_token {
                Some(next) => query.page_token = Some(next),
                None => return Ok(versions),
            }
        }
    }

    /// One version of a plan.
    pub(crate) async fn version(&self, session: PlanningSessionId, version: u32) -> anyhow::Result<Version> {
        let (id, number) = (session.to_string(), version.to_string());
        self.get(&["v1", "sessions", &id, "history", &number], &[]).await
    }

    /// Confirms a version of the plan; the work on it begins. Each call of the tools in `ask_for` asks a person first.
    pub(crate) async fn execute_plan(
        &self,
        session: PlanningSessionId,
        execute: &ExecuteBody,
    ) -> anyhow::Result<Session> {
        let id = session.to_string();
        self.post(&["v1", "sessions", &id, "execute"], &[], self.begins(), execute)
            .await
    }

    /// What would happen if the plan were confirmed now.
    pub(crate) async fn dry_run(&self, session: PlanningSessionId, execute: &ExecuteBody) -> anyhow::Result<DryRun> {
        let id = session.to_string();
        self.post(&["v1", "sessions", &id, "execute"], &[], AT_ONCE, execute)
            .await
    }

    /// A task with its steps.
    pub(crate) async fn plan_task(&self, session: PlanningSessionId, task: TaskId) -> anyhow::Result<TaskDetail> {
        let (session, task) = (session.to_string(), task.to_string());
        self.get(&["v1", "sessions", &session, "tasks", &task], &[]).await
    }

    /// A page of the actions of a session, oldest first.
    pub(crate) async fn plan_log(
        &self,
        session: PlanningSessionId,
        query: &Query,
    ) -> anyhow::Result<Page<LoggedAction>> {
        let id = session.to_string();
        self.page::<PlanningLogPage, _>(&["v1", "sessions", &id, "log"], query)
            .await
    }

    /// The events of a session, from its beginning.
    pub(crate) fn session_events(&self, session: PlanningSessionId) -> Events<'_> {
        Events::of(self, &["v1", "sessions", &session.to_string(), "events"])
    }
}

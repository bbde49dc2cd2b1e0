//! Planning sessions: one function for each route that a command uses.

use reqwest::header::IF_MATCH;
use serde_json::Value;

use super::events::Events;
use super::routes::{AT_ONCE, LOCAL, Query};
use super::{ACTING_USER, Client};
use crate::api::Page;
use crate::api::planning::{
    CancelBody, DryRun, ExecuteBody, LoggedAction, PlanVersionPage, PlanningLogPage, PlanningSessionPage, RefineBody,
    Session, StartBody, TaskDetail, Version,
};
use crate::domain::ids::PlanningSessionId;
use crate::domain::plan::TaskId;

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

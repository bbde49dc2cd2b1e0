//! Planning sessions: what commands read of the answers, and one function for each route that a command uses.

use chrono_tz::Tz;
use reqwest::header::IF_MATCH;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answers::{Answer, Page};
use super::events::Events;
use super::routes::{AT_ONCE, LOCAL, Query};
use super::work::{DryRun, ExecutePlan, LogAction, Read, Scope, Step, Usage};
use super::{ACTING_USER, Client};
use crate::domain::ids::PlanningSessionId;
use crate::domain::planning_session::SessionStatus;

/// The request for a planning session.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct NewSession {
    pub(in crate::cli) prompt: String,
    pub(in crate::cli) repo_url: String,
    /// RFC 3339.
    pub(in crate::cli) deadline: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) time_zone: Option<Tz>,
}

/// A planning session.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct Session {
    pub(in crate::cli) session_id: String,
    pub(in crate::cli) status: String,
    pub(in crate::cli) status_reason: Option<Reason>,
    pub(in crate::cli) prompt: String,
    pub(in crate::cli) repo_url: String,
    /// RFC 3339.
    pub(in crate::cli) deadline: String,
    /// RFC 3339; only while its plan waits for a confirmation.
    pub(in crate::cli) confirm_by: Option<String>,
    pub(in crate::cli) time_left_ms: u64,
    /// 0 while there is no plan.
    pub(in crate::cli) plan_version: u32,
    pub(in crate::cli) plan: Vec<Task>,
    /// Only where it was asked for.
    pub(in crate::cli) raw_plan: Option<String>,
    pub(in crate::cli) summary: String,
    pub(in crate::cli) assumptions: Vec<String>,
    pub(in crate::cli) risks: Vec<String>,
    /// Why the last refinement made no new version.
    pub(in crate::cli) refinement: Option<Reason>,
    /// What was read before the plan was made.
    pub(in crate::cli) read: Option<Read>,
    /// What the planner asked the open world; absent once the plan is confirmed.
    pub(in crate::cli) lookups: Option<Vec<LogAction>>,
    /// What the confirmation of the plan allows; absent in a list, and when there is nothing to confirm or to work on.
    pub(in crate::cli) scope: Option<Scope>,
    pub(in crate::cli) usage: Usage,
    /// The run that works for it, or worked last.
    pub(in crate::cli) run_id: String,
    /// What it waits for; absent in a list.
    pub(in crate::cli) waiting_for: Option<Vec<Wait>>,
    /// Absent in a list.
    pub(in crate::cli) pull_requests: Option<Vec<PullRequest>>,
    pub(in crate::cli) updated_at: String,
    /// When its plan was confirmed, RFC 3339.
    pub(in crate::cli) started_at: Option<String>,
    pub(in crate::cli) completed_at: Option<String>,
}

/// Something that a session waits for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct Wait {
    /// `approval` or `in_doubt`.
    pub(in crate::cli) kind: String,
    pub(in crate::cli) task_id: Option<String>,
    pub(in crate::cli) tool: String,
    pub(in crate::cli) action_id: String,
}

/// A pull request that a session opened.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct PullRequest {
    pub(in crate::cli) url: String,
}

/// Why a session ended, or a refinement made no new version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Reason {
    pub(in crate::cli) code: String,
    pub(in crate::cli) detail: String,
}

/// A task of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct Task {
    pub(in crate::cli) id: String,
    pub(in crate::cli) title: String,
    pub(in crate::cli) goal: String,
    pub(in crate::cli) done_when: String,
    pub(in crate::cli) tools: Vec<String>,
    pub(in crate::cli) status: String,
    pub(in crate::cli) status_reason: Option<Reason>,
    pub(in crate::cli) replaces: Option<String>,
    pub(in crate::cli) run_id: Option<String>,
    pub(in crate::cli) steps: u64,
    /// Its steps one by one, where they were asked for.
    pub(in crate::cli) react_history: Vec<Step>,
}

/// One version of a plan.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Version {
    pub(in crate::cli) version: u32,
    /// RFC 3339.
    pub(in crate::cli) at: String,
    pub(in crate::cli) by: String,
    pub(in crate::cli) kind: String,
    pub(in crate::cli) why: String,
    pub(in crate::cli) changes: Vec<Change>,
    pub(in crate::cli) plan: Vec<Task>,
}

/// How a version differs from the one before, in one task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Change {
    /// `add`, `modify` or `remove`.
    pub(in crate::cli) op: String,
    pub(in crate::cli) task: String,
    pub(in crate::cli) title: String,
}

impl Session {
    /// `None` for a status of a later gavel.
    pub(in crate::cli) fn known_status(&self) -> Option<SessionStatus> {
        SessionStatus::parse(&self.status)
    }

    /// Whether a plan, or a refinement of it, is being made.
    pub(in crate::cli) fn is_planning(&self) -> bool {
        self.known_status() == Some(SessionStatus::Planning)
    }

    /// Whether no status follows.
    pub(in crate::cli) fn has_ended(&self) -> bool {
        use SessionStatus::{Cancelled, Completed, DeadlineExceeded, Failed};
        matches!(
            self.known_status(),
            Some(Completed | Failed | DeadlineExceeded | Cancelled)
        )
    }

    /// Whether its plan was confirmed.
    pub(in crate::cli) fn was_executed(&self) -> bool {
        self.started_at.is_some()
    }

    /// Whether there is a plan that the user can change.
    pub(in crate::cli) fn is_open(&self) -> bool {
        self.known_status() == Some(SessionStatus::AwaitingConfirmation)
    }
}

impl Client {
    /// Creates a session; its plan is made while the caller watches.
    pub(in crate::cli) async fn start_planning(&self, new: &NewSession) -> anyhow::Result<Answer<Session>> {
        let url = self.url(&["v1", "sessions"]);
        let mut request = self.http.post(url).json(new).header("prefer", self.begins());
        if self.own && self.user.is_none() {
            request = request.header(ACTING_USER, LOCAL);
        }
        self.json(request).await
    }

    /// Requests a change of the plan; it is made while the caller watches.
    pub(in crate::cli) async fn refine_plan(
        &self,
        session: PlanningSessionId,
        text: &str,
    ) -> anyhow::Result<Answer<Session>> {
        let (id, body) = (session.to_string(), json!({ "refinementPrompt": text }));
        self.post(&["v1", "sessions", &id, "refine"], &[], self.begins(), &body)
            .await
    }

    /// Replaces version `version` of the plan by an edited one.
    pub(in crate::cli) async fn edit_plan(
        &self,
        session: PlanningSessionId,
        version: u32,
        draft: &Value,
    ) -> anyhow::Result<Answer<Session>> {
        let url = self.url(&["v1", "sessions", &session.to_string(), "plan"]);
        let request = self.http.put(url).header(IF_MATCH, format!("\"{version}\""));
        self.json(request.json(draft)).await
    }

    /// Cancels a session, and returns its state after that.
    pub(in crate::cli) async fn cancel_session(
        &self,
        session: PlanningSessionId,
        reason: Option<&str>,
    ) -> anyhow::Result<Answer<Session>> {
        let id = session.to_string();
        let body = reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
        self.post(&["v1", "sessions", &id, "cancel"], &[], AT_ONCE, &body).await
    }

    /// One session.
    pub(in crate::cli) async fn session(&self, session: PlanningSessionId) -> anyhow::Result<Answer<Session>> {
        self.get(&["v1", "sessions", &session.to_string()], &[]).await
    }

    /// One session, with its plan also as the text that is stored.
    pub(in crate::cli) async fn raw_session(&self, session: PlanningSessionId) -> anyhow::Result<Answer<Session>> {
        let query = [("view", "raw".to_owned())];
        self.get(&["v1", "sessions", &session.to_string()], &query).await
    }

    /// A page of sessions.
    pub(in crate::cli) async fn sessions(&self, query: &Query) -> anyhow::Result<Page<Session>> {
        self.page(&["v1", "sessions"], "sessions", query).await
    }

    /// All versions of a plan, in order.
    pub(in crate::cli) async fn versions(&self, session: PlanningSessionId) -> anyhow::Result<Vec<Answer<Version>>> {
        let id = session.to_string();
        let mut versions = Vec::new();
        let mut query = Query {
            page_size: 50,
            ..Query::default()
        };
        loop {
            let page: Page<Version> = self
                .page(&["v1", "sessions", &id, "history"], "versions", &query)
                .await?;
            versions.extend(page.items);
            match page.next_page_token {
                Some(next) => query.page_token = Some(next),
                None => return Ok(versions),
            }
        }
    }

    /// One version of a plan.
    pub(in crate::cli) async fn version(
        &self,
        session: PlanningSessionId,
        version: u32,
    ) -> anyhow::Result<Answer<Version>> {
        let (id, number) = (session.to_string(), version.to_string());
        self.get(&["v1", "sessions", &id, "history", &number], &[]).await
    }

    /// Confirms a version of the plan; the work on it begins. Each call of the tools in `ask_for` asks a person first.
    pub(in crate::cli) async fn execute_plan(
        &self,
        session: PlanningSessionId,
        execute: &ExecutePlan,
    ) -> anyhow::Result<Answer<Session>> {
        let id = session.to_string();
        let body = serde_json::to_value(execute)?;
        self.post(&["v1", "sessions", &id, "execute"], &[], self.begins(), &body)
            .await
    }

    /// What would happen if the plan were confirmed now.
    pub(in crate::cli) async fn dry_run(
        &self,
        session: PlanningSessionId,
        execute: &ExecutePlan,
    ) -> anyhow::Result<Answer<DryRun>> {
        let id = session.to_string();
        let mut body = serde_json::to_value(execute)?;
        body["dryRun"] = true.into();
        self.post(&["v1", "sessions", &id, "execute"], &[], AT_ONCE, &body)
            .await
    }

    /// A task with its steps.
    pub(in crate::cli) async fn plan_task(
        &self,
        session: PlanningSessionId,
        task: &str,
    ) -> anyhow::Result<Answer<Task>> {
        self.get(&["v1", "sessions", &session.to_string(), "tasks", task], &[])
            .await
    }

    /// A page of the actions of a session, oldest first.
    pub(in crate::cli) async fn plan_log(
        &self,
        session: PlanningSessionId,
        query: &Query,
    ) -> anyhow::Result<Page<LogAction>> {
        let id = session.to_string();
        self.page(&["v1", "sessions", &id, "log"], "actions", query).await
    }

    /// The events of a session, from its beginning.
    pub(in crate::cli) fn session_events(&self, session: PlanningSessionId) -> Events<'_> {
        Events::of(self, &["v1", "sessions", &session.to_string(), "events"])
    }
}

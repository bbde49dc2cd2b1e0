//! The chat surface of a running gavel, with its servers and its decision log.

use async_trait::async_trait;
use chrono::{NaiveDate, Utc};
use serde_json::json;

use super::case::Turn;
use super::subject::{Observed, Subject, Task};
use crate::{Gavel, Request, problem_text, tasks};

/// A gavel as a [`Subject`].
pub(super) struct Chat<'a> {
    pub(super) gavel: &'a dyn Gavel,
    /// The constitution's tool allowlist.
    pub(super) allowlist: &'a [String],
}

#[async_trait]
impl Subject for Chat<'_> {
    /// Requests are made in UTC.
    fn today(&self) -> NaiveDate {
        Utc::now().date_naive()
    }

    fn allowlist(&self) -> Vec<String> {
        self.allowlist.to_vec()
    }

    async fn seed(&self, user: &str, seeds: &[Task]) -> Result<(), String> {
        tasks::seed(self.gavel, user, seeds).await
    }

    async fn decide(&self, user: &str, history: &[Turn], message: &str) -> Result<Observed, String> {
        let turn = |turn: &Turn| json!({ "role": turn.role, "content": turn.text });
        let history: Vec<_> = history.iter().map(turn).collect();
        let body = json!({ "message": message, "user_id": user, "history": history, "time_zone": "UTC" });
        let answer = self.gavel.request(Request::post(user, "/v1/chat", body)).await;
        let (status, body) = answer.map_err(|error| format!("{error:#}"))?;
        // The body is a decision whatever the status (429, 503).
        if body.get("decision_type").is_none() {
            return Err(problem_text(status, &body));
        }
        let observed: Observed = serde_json::from_value(body).map_err(|error| format!("the decision: {error}"))?;
        // The user has made one request.
        let page = Request::get(user, "/v1/decisions?page_size=10").send(self.gavel).await;
        let page = page.map_err(|error| format!("the decision log: {error:#}"))?;
        let records = page["decisions"].as_array().map(|rows| rows.len() as u64);
        Ok(Observed { records, ..observed })
    }

    async fn tasks(&self, user: &str) -> Result<Vec<Task>, String> {
        tasks::all(self.gavel, user).await
    }
}

//! What every case is run with and what comes of it, whether its agent works on its own or in a session.

use std::time::Duration;

use anyhow::{Context, bail};
use gavel_testing::github::GitHub;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::cases::CaseResult;
use crate::{Gavel, Request};

/// How long a cancelled run may take to end.
const CANCELLED: Duration = Duration::from_secs(10);
/// Interval between two looks at a run or a session.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// What a case is run with.
#[derive(Clone, Copy)]
pub(super) struct Stage<'a> {
    pub(super) gavel: &'a dyn Gavel,
    /// The stand-in for GitHub, for cases with a repository.
    pub(super) github: Option<&'a GitHub>,
    /// GitHub's address in links, without a slash at its end.
    pub(super) github_url: &'a str,
    /// The longest that a case may take.
    pub(super) most: Duration,
    /// The user of the case.
    pub(super) user: &'a str,
}

/// A case that was run.
pub(super) struct Observed {
    pub(super) result: CaseResult,
    /// The run of the agent. A session has one for each task, and none that shows them all.
    pub(super) run: Option<Value>,
}

impl Stage<'_> {
    pub(super) async fn send(&self, request: Request<'_>) -> anyhow::Result<Value> {
        request.send(self.gavel).await
    }

    pub(super) async fn get(&self, path: impl Into<String>) -> anyhow::Result<Value> {
        self.send(Request::get(self.user, path)).await
    }

    pub(super) async fn post(&self, path: impl Into<String>, body: Value) -> anyhow::Result<Value> {
        self.send(Request::post(self.user, path, body)).await
    }

    /// The run with this id, once it has ended or waits for an approval.
    async fn rests(&self, id: &str) -> anyhow::Result<Value> {
        loop {
            let run = self.get(format!("/api/runs/{id}")).await?;
            if !["queued", "running"].contains(&run["status"].as_str().unwrap_or_default()) {
                return Ok(run);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The result of a run, once it has ended.
    pub(super) async fn observe(&self, id: String) -> anyhow::Result<Observed> {
        let Ok(run) = timeout(self.most, self.rests(&id)).await else {
            self.post(format!("/api/runs/{id}/cancel"), json!({})).await?;
            bail!(self.not_in_time("run", &id).await);
        };
        let run = run?;
        let decision = self.get(format!("/v1/decisions/{id}")).await?;
        let result = CaseResult {
            status: text(&run, "status")?,
            reason: run["error_message"].as_str().map(str::to_owned),
            output: Some(run["output"].clone()).filter(|output| !output.is_null()),
            summary: run["summary"].as_str().map(str::to_owned),
            steps: number(&run, "steps"),
            calls: CaseResult::calls_of(&decision["tool_calls"], |call| call["result"]["success"] == true),
        };
        Ok(Observed { result, run: Some(run) })
    }

    /// Waits a moment for a run that was cancelled: one case at a time, even if one fails. Returns what to report.
    pub(super) async fn not_in_time(&self, what: &str, run: &str) -> String {
        let cancelled = match timeout(CANCELLED, self.rests(run)).await {
            Ok(_) => "was cancelled",
            Err(_) => "did not end when it was cancelled",
        };
        format!(
            "the {what} had not ended after {} s, and {cancelled}",
            self.most.as_secs()
        )
    }
}

pub(super) fn text(answer: &Value, field: &str) -> anyhow::Result<String> {
    let text = answer[field].as_str();
    Ok(text
        .with_context(|| format!("gavel's answer has no {field}"))?
        .to_owned())
}

pub(super) fn number(answer: &Value, field: &str) -> u32 {
    let number = answer[field].as_u64().and_then(|number| number.try_into().ok());
    number.unwrap_or_default()
}

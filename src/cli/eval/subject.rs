//! The subject of the evaluation: the real chat surface, with real servers and a real decision log.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{NaiveDate, Utc};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::tasks::Tasks;
use crate::app::{self, App};
use crate::domain::decision::{AgentDecision, ToolCall, ToolResult};
use crate::domain::ids::{DecisionId, TenantId, UserId};
use crate::domain::journal::Speaker;
use crate::evaluation::{Observed, ObservedCall, ObservedError, ObservedResult, ObservedTask, Seed, Subject, Turn};
use crate::ports::records::ListQuery;
use crate::surfaces::caller::Caller;
use crate::surfaces::chat::Chat;
use crate::surfaces::chat::request::ChatRequest;
use crate::surfaces::decisions::DecisionQueries;
use crate::surfaces::request::RequestMeta;

/// An app as a [`Subject`].
pub(super) struct ChatSubject {
    chat: Arc<Chat>,
    decisions: DecisionQueries,
    tasks: Tasks,
    caller: Caller,
}

impl ChatSubject {
    pub(super) fn new(app: &App) -> anyhow::Result<Self> {
        Ok(Self {
            chat: Arc::clone(&app.chat),
            decisions: app.decisions.clone(),
            tasks: Tasks::new(Arc::clone(&app.mcp)),
            caller: app::operator(TenantId::parse("default")?, None),
        })
    }

    /// The number of rows in the decision log for this user, who has made one request.
    async fn records(&self, user: &UserId) -> Result<u64, String> {
        let query = ListQuery {
            page_size: 10,
            user: Some(user.clone()),
            ..ListQuery::default()
        };
        let page = self
            .decisions
            .list(&self.caller, query)
            .await
            .map_err(|error| error.to_string())?;
        u64::try_from(page.items.len()).map_err(|error| error.to_string())
    }
}

#[async_trait]
impl Subject for ChatSubject {
    /// Requests are made in UTC.
    fn today(&self) -> NaiveDate {
        Utc::now().date_naive()
    }

    fn allowlist(&self) -> Vec<String> {
        self.chat.allowlist().to_vec()
    }

    async fn seed(&self, user: &str, tasks: &[Seed]) -> Result<(), String> {
        self.tasks.seed(&parsed(user)?, tasks).await
    }

    async fn decide(&self, user: &str, history: &[Turn], message: &str) -> Result<Observed, String> {
        let history: Vec<_> = history
            .iter()
            .map(|turn| json!({ "role": role(turn.speaker), "content": turn.text }))
            .collect();
        let body = json!({ "message": message, "user_id": user, "history": history, "time_zone": "UTC" }).to_string();
        let request = ChatRequest::from_json(body.as_bytes())
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        let user = parsed(user)?;
        let request_id = Arc::from(format!("eval-{}", DecisionId::new()));
        let meta = RequestMeta {
            request_id,
            traceparent: None,
            idempotency: None,
            shed: None,
        };
        let answer = self.chat.decide(&self.caller, user.clone(), request, meta, None).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let decision = answer.decision.ok_or("the answer of an earlier request was returned")?;
        Ok(observed(&decision, self.records(&user).await?))
    }

    async fn tasks(&self, user: &str) -> Result<Vec<ObservedTask>, String> {
        self.tasks.all(&parsed(user)?).await
    }
}

/// Not parsed from the body's JSON: a hostile model's arguments may be nested deeper than a parser accepts.
fn observed(decision: &AgentDecision, records: u64) -> Observed {
    let value =
        |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or_else(|_| Value::String(raw.get().to_owned()));
    let result = |result: &ToolResult| ObservedResult {
        success: result.success,
        error: result.error.as_ref().map(|error| ObservedError {
            code: error.code.as_str().to_owned(),
        }),
    };
    let call = |call: &ToolCall| ObservedCall {
        sequence: call.sequence,
        tool: call.tool.clone(),
        parameters: value(&call.parameters),
        result: Some(result(&call.result)),
    };
    Observed {
        decision_type: decision.decision_type,
        outcome: decision.outcome_category,
        response: decision.response.clone(),
        tool_calls: decision.tool_calls.iter().map(call).collect(),
        iterations: decision.iterations,
        model: decision.model.clone(),
        duration_ms: decision.duration_ms,
        records: Some(records),
    }
}

fn role(speaker: Speaker) -> &'static str {
    match speaker {
        Speaker::User => "user",
        Speaker::Assistant => "assistant",
    }
}

fn parsed(user: &str) -> Result<UserId, String> {
    UserId::parse(user).map_err(|error| error.to_string())
}

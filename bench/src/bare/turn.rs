//! One decision: model, tool, model, rows.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Instant;

use anyhow::Context;
use bytes::Bytes;
use hyper::Uri;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::pool::Pool;
use super::rows::Row;
use crate::loopback::Loopback;

pub(super) struct Bare {
    model: Pool,
    mcp: Pool,
    generate: Uri,
    rpc: Uri,
    rows: mpsc::Sender<Row>,
    /// What follows the contents in every request: prompt and declarations.
    tail: String,
    next: AtomicU64,
}

#[derive(Deserialize)]
struct Request {
    message: String,
    user_id: String,
    conversation_id: String,
}

#[derive(Serialize)]
struct Reply<'a> {
    decision_id: &'a str,
    conversation_id: &'a str,
    decision_type: &'static str,
    outcome_category: &'static str,
    response: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Generated<'a> {
    #[serde(borrow)]
    candidates: Vec<Candidate<'a>>,
    usage_metadata: Usage,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Usage {
    total_token_count: i64,
}

#[derive(Deserialize)]
struct Candidate<'a> {
    /// Echoed unchanged.
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Vec<Part<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    function_call: Option<Call<'a>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    id: &'a str,
    name: &'a str,
    #[serde(borrow)]
    args: &'a RawValue,
}

#[derive(Deserialize)]
struct RpcAnswer<'a> {
    #[serde(borrow)]
    result: &'a RawValue,
}

impl Bare {
    /// Requests the tools from the MCP server once.
    pub(super) async fn start(
        model: Loopback,
        mcp: Loopback,
        prompt: &str,
        rows: mpsc::Sender<Row>,
    ) -> anyhow::Result<Self> {
        let mcp = Pool::new(mcp);
        let rpc = Uri::from_static("/mcp");
        let list = Bytes::from_static(br#"{"jsonrpc":"2.0","id":0,"method":"tools/list"}"#);
        let listed: serde_json::Value = serde_json::from_slice(&mcp.post(&rpc, list).await?)?;
        let declarations: Vec<_> = listed["result"]["tools"]
            .as_array()
            .context("tools/list has no tools")?
            .iter()
            .map(|tool| {
                json!({
                    "name": tool["name"], "description": tool["description"],
                    "parametersJsonSchema": tool["inputSchema"],
                })
            })
            .collect();
        let prompt = json!({"parts": [{"text": prompt}]});
        let tools = json!([{"functionDeclarations": declarations}]);
        Ok(Self {
            model: Pool::new(model),
            mcp,
            generate: Uri::from_static("/v1beta/models/gemini-bench:generateContent"),
            rpc,
            rows,
            tail: format!(r#"],"systemInstruction":{prompt},"tools":{tools}}}"#),
            next: AtomicU64::new(1),
        })
    }

    pub(super) async fn decide(&self, body: &[u8]) -> anyhow::Result<Vec<u8>> {
        let start = Instant::now();
        let request: Request = serde_json::from_slice(body)?;
        let number = self.next.fetch_add(1, Relaxed);
        let asked = format!(
            r#"{{"contents":[{{"role":"user","parts":[{{"text":{}}}]}}"#,
            serde_json::to_string(&request.message)?
        );

        let first = self.generate(format!("{asked}{}", self.tail)).await?;
        let first: Generated<'_> = serde_json::from_slice(&first)?;
        let content = first.candidates.first().context("no candidate")?.content;
        let parts: Content<'_> = serde_json::from_str(content.get())?;
        let call = parts
            .parts
            .into_iter()
            .find_map(|part| part.function_call)
            .context("no call")?;

        let called = Instant::now();
        let answer = self
            .mcp
            .post(
                &self.rpc,
                Bytes::from(format!(
                    r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"{}","arguments":{}}}}}"#,
                    call.name,
                    call.args.get()
                )),
            )
            .await?;
        let result = serde_json::from_slice::<RpcAnswer<'_>>(&answer)?.result.get();
        let tool_us = micros(called);

        let second = self
            .generate(format!(
                r#"{asked},{},{{"role":"user","parts":[{{"functionResponse":{{"id":"{}","name":"{}","response":{result}}}}}]}}{}"#,
                content.get(),
                call.id,
                call.name,
                self.tail
            ))
            .await?;
        let second: Generated<'_> = serde_json::from_slice(&second)?;
        let words: Content<'_> =
            serde_json::from_str(second.candidates.first().context("no candidate")?.content.get())?;
        let response = words.parts.into_iter().find_map(|part| part.text).context("no text")?;

        let id = number.to_string();
        let reply = serde_json::to_vec(&Reply {
            decision_id: &id,
            conversation_id: &request.conversation_id,
            decision_type: "INVOKE_TOOL",
            outcome_category: "SUCCESS:TASK_COMPLETED",
            response: &response,
        })?;
        let (committed, durable) = oneshot::channel();
        self.rows.send(Row {
            id,
            user_id: request.user_id,
            conversation_id: request.conversation_id,
            message: request.message,
            response: response.into_owned(),
            tokens: first.usage_metadata.total_token_count + second.usage_metadata.total_token_count,
            duration_us: micros(start),
            tool: call.name.to_owned(),
            arguments: call.args.get().to_owned(),
            result: result.to_owned(),
            tool_us,
            committed,
        })?;
        durable.await.context("the rows were not committed")?;
        Ok(reply)
    }

    async fn generate(&self, body: String) -> anyhow::Result<Bytes> {
        self.model.post(&self.generate, Bytes::from(body)).await
    }
}

fn micros(since: Instant) -> i64 {
    i64::try_from(since.elapsed().as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::bare::rows;
    use crate::contender::Asks;
    use crate::stand_ins::{Seen, StandIns};

    #[tokio::test]
    async fn a_decision_calls_the_model_twice_and_the_tool_once_and_is_recorded_before_the_reply() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("data.db");
        let upstream = StandIns::start(&TaskTracker::new()).unwrap();
        let rows = rows::open(&database).unwrap();
        let bare = Bare::start(upstream.model_at, upstream.mcp_at, "Be brief.", rows)
            .await
            .unwrap();
        let reply = bare.decide(&Asks::Decision.body(7)).await.unwrap();
        assert_eq!(Asks::Decision.check(7, StatusCode::OK, &reply), Ok(()));
        let once = Seen {
            model_calls: 2,
            tool_calls: 1,
            faults: 0,
        };
        assert_eq!(upstream.seen(), once);
        let reader = rusqlite::Connection::open(&database).unwrap();
        let recorded: (String, String) = reader
            .query_row(
                "SELECT user_id, tool FROM decision JOIN tool_call ON decision_id = id",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .unwrap();
        assert_eq!(recorded, ("user-7".to_owned(), "list_tasks".to_owned()));
    }
}

//! An MCP server over streamable HTTP that answers in plain JSON and keeps no session. It supports both eras:
//! `server/discover` (2026-07-28) and `initialize` (2025-11-25 and older).

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::script::TOOL;
use crate::serve::{Answer, empty, reply};

#[derive(Default)]
pub(super) struct Mcp {
    calls: AtomicU64,
    faults: AtomicU64,
}

#[derive(Deserialize)]
struct Rpc<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CallParams<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

impl Mcp {
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    pub(super) fn faults(&self) -> u64 {
        self.faults.load(Relaxed)
    }

    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        match *request.method() {
            Method::POST => {}
            // The end of a session. There is none, which is not a client error.
            Method::DELETE => return empty(StatusCode::OK),
            // The server offers no stream.
            _ => return empty(StatusCode::METHOD_NOT_ALLOWED),
        }
        let body = match request.into_body().collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return self.fault(&error.to_string()),
        };
        let rpc: Rpc<'_> = match serde_json::from_slice(&body) {
            Ok(rpc) => rpc,
            Err(error) => return self.fault(&error.to_string()),
        };
        let Some(id) = rpc.id else {
            return empty(StatusCode::ACCEPTED);
        };
        let id = id.get();
        let answer = match self.result(&rpc) {
            Ok(result) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
            Err((code, message)) => {
                format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
            }
        };
        reply(StatusCode::OK, "application/json", answer)
    }

    fn result(&self, rpc: &Rpc<'_>) -> Result<Cow<'static, str>, (i32, &'static str)> {
        match rpc.method.as_ref() {
            "tools/call" => {
                self.calls.fetch_add(1, Relaxed);
                let params = rpc
                    .params
                    .map(|params| serde_json::from_str::<CallParams<'_>>(params.get()));
                match params {
                    Some(Ok(call)) if call.name == TOOL => Ok(Cow::Borrowed(FOUND_TASKS)),
                    _ => {
                        self.faults.fetch_add(1, Relaxed);
                        Err((-32602, "only list_tasks is scripted"))
                    }
                }
            }
            "tools/list" => Ok(tools().to_string().into()),
            "server/discover" => Ok(json!({
                "resultType": "complete", "ttlMs": 3_600_000, "cacheScope": "public",
                "supportedVersions": ["2026-07-28", "2025-11-25"], "capabilities": {"tools": {}},
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "tasks", "version": "1"}},
            })
            .to_string()
            .into()),
            "initialize" => Ok(json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "tasks", "version": "1"},
            })
            .to_string()
            .into()),
            "ping" => Ok(Cow::Borrowed("{}")),
            _ => Err((-32601, "method not found")),
        }
    }

    fn fault(&self, why: &str) -> Answer {
        self.faults.fetch_add(1, Relaxed);
        eprintln!("the MCP stand-in refused a request: {why}");
        empty(StatusCode::BAD_REQUEST)
    }
}

// `resultType` belongs to the newer era; clients of the older one ignore it.
const FOUND_TASKS: &str = concat!(
    r#"{"resultType":"complete","isError":false,"content":[{"type":"text","text":"3 tasks"}],"structuredContent":{"tasks":["#,
    r#"{"id":"7f3a-water-the-ferns","description":"water the ferns","status":"open"},"#,
    r#"{"id":"81c0-answer-the-landlord","description":"answer the landlord","status":"open"},"#,
    r#"{"id":"93de-book-the-train","description":"book the train","status":"open"}]}}"#,
);

/// The five tools of the constitution's allowlist, one of which is scripted.
fn tools() -> Value {
    let task = json!({"type": "string", "description": "The task's id"});
    let text = json!({"type": "string", "description": "What is to be done"});
    let due = json!({"type": "string", "format": "date", "description": "When it is due"});
    let status = json!({"type": "string", "enum": ["open", "completed"], "description": "Only tasks in this state"});
    let tool = |name: &str, what: &str, properties: Value, required: &[&str], read_only: bool| {
        json!({
            "name": name, "description": what, "annotations": {"readOnlyHint": read_only},
            "inputSchema": {
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            },
        })
    };
    json!({"resultType": "complete", "ttlMs": 3_600_000, "cacheScope": "public", "tools": [
        tool("add_task", "Adds a task.", json!({"description": text, "due": due}), &["description"], false),
        tool(TOOL, "Lists the user's tasks.", json!({"status": status}), &[], true),
        tool("update_task", "Changes a task.", json!({"id": task, "description": text, "due": due}), &["id"], false),
        tool("complete_task", "Marks a task as done.", json!({"id": task}), &["id"], false),
        tool("delete_task", "Deletes a task.", json!({"id": task}), &["id"], false),
    ]})
}

#[cfg(test)]
mod tests {
    use super::super::script::FOUND;
    use super::*;

    #[test]
    fn the_tool_returns_the_mark_that_the_model_waits_for() {
        assert!(FOUND_TASKS.contains(FOUND));
        assert!(serde_json::from_str::<Value>(FOUND_TASKS).is_ok());
    }
}

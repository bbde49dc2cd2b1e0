//! The model and the tools of a session on a plan: scripted, with known times, and a record of what was asked when.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, StatusCode, Uri};
use serde_json::{Value, json};

use crate::precise;
use crate::serve::{Answer, empty, reply};

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Reason,
    Act,
    Tool,
    Reflect,
    /// Before and after the steps.
    Other,
}

/// One request, and from when to when it was with the model or the tool.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) kind: Kind,
    pub(super) uri: Uri,
    pub(super) body: Bytes,
    pub(super) began: Instant,
    pub(super) ended: Instant,
}

pub(super) struct StandIn {
    model: Duration,
    tool: Duration,
    /// Steps until the model says that the task is done.
    steps: AtomicU64,
    done: AtomicU64,
    seen: Mutex<Vec<Seen>>,
}

impl StandIn {
    /// With the time of a model call and that of a tool call.
    pub(super) fn new(model: Duration, tool: Duration) -> Self {
        Self {
            model,
            tool,
            steps: AtomicU64::new(0),
            done: AtomicU64::new(0),
            seen: Mutex::default(),
        }
    }

    /// From now on the work has this many steps. Returns what was asked until now.
    pub(super) fn begin(&self, steps: u64) -> Vec<Seen> {
        self.steps.store(steps, Relaxed);
        self.done.store(0, Relaxed);
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request to the model or to the tools, as its path says.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Answer {
        let began = Instant::now();
        let uri = request.uri().clone();
        let body = match request.into_body().collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return reply(StatusCode::BAD_REQUEST, "text/plain", error.to_string()),
        };
        let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (kind, time, answer) = match uri.path() {
            "/mcp" => self.tool(&asked),
            path => self.model(&asked, path.ends_with(":streamGenerateContent")),
        };
        if let Err(error) = precise::sleep(time.saturating_sub(began.elapsed())).await {
            return reply(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string());
        }
        self.lock().push(Seen {
            kind,
            uri,
            body,
            began,
            ended: Instant::now(),
        });
        answer
    }

    fn model(&self, asked: &Value, is_streamed: bool) -> (Kind, Duration, Answer) {
        let config = &asked["toolConfig"]["functionCallingConfig"];
        let allowed = config["allowedFunctionNames"][0].as_str();
        let declared = asked["tools"][0]["functionDeclarations"].as_array();
        let plans = declared.is_some_and(|all| all.iter().any(|one| one["name"] == "complete_task"));
        let step = self.done.load(Relaxed);
        let (kind, part) = match (config["mode"].as_str(), allowed) {
            (Some("NONE"), _) => (Kind::Reason, json!({ "text": format!("File {step} comes next.") })),
            (_, Some("reflect")) => (Kind::Reflect, call("reflect", &self.reflection(step))),
            _ if plans => (Kind::Other, call("complete_task", &json!({ "plan": plan() }))),
            _ => (
                Kind::Act,
                call("getFileContents", &in_repository(&format!("{step}.txt"))),
            ),
        };
        let chunk = json!({
            "candidates": [{ "content": { "role": "model", "parts": [part] }, "finishReason": "STOP", "index": 0 }],
            "usageMetadata": { "promptTokenCount": 1000, "candidatesTokenCount": 20, "totalTokenCount": 1020 },
            "modelVersion": "gemini-bench",
        });
        let answer = match is_streamed {
            true => reply(StatusCode::OK, "text/event-stream", format!("data: {chunk}\r\n\r\n")),
            false => reply(StatusCode::OK, "application/json", chunk.to_string()),
        };
        (kind, self.model, answer)
    }

    fn reflection(&self, step: u64) -> Value {
        if step < self.steps.load(Relaxed) {
            return json!({ "is_task_complete": false, "summary": format!("{step} files are read.") });
        }
        let evidence = [json!({ "observation": step, "quote": content(step) })];
        json!({ "is_task_complete": true, "summary": "All files are read.", "evidence": evidence })
    }

    fn tool(&self, asked: &Value) -> (Kind, Duration, Answer) {
        let Some(id) = asked.get("id") else {
            return (Kind::Other, Duration::ZERO, empty(StatusCode::ACCEPTED));
        };
        let path = asked["params"]["arguments"]["path"].as_str();
        let is_step = path.is_some_and(|path| path.ends_with(".txt"));
        let result = match (asked["method"].as_str(), asked["params"]["name"].as_str()) {
            (Some("tools/call"), Some("retrieveRepository")) => result(&json!({ "repository": {
                "owner": "acme", "name": "dates", "fullName": "acme/dates", "defaultBranch": "main",
            } })),
            (Some("tools/call"), Some("getRepositoryTree")) => result(&json!({ "entries": [] })),
            (Some("tools/call"), Some("getFileContents")) if is_step => {
                let step = self.done.fetch_add(1, Relaxed) + 1;
                result(&json!({ "file": { "path": path, "content": content(step) } }))
            }
            (Some("tools/call"), Some("getFileContents")) => result(&json!({ "file": null })),
            (Some("tools/list"), _) => tools(),
            (Some("server/discover"), _) => json!({
                "resultType": "complete", "ttlMs": 3_600_000, "cacheScope": "public",
                "supportedVersions": ["2026-07-28", "2025-11-25"], "capabilities": { "tools": {} },
                "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "github", "version": "1" } },
            }),
            _ => json!({}),
        };
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
        let answer = reply(StatusCode::OK, "application/json", answer);
        match is_step {
            true => (Kind::Tool, self.tool, answer),
            false => (Kind::Other, Duration::ZERO, answer),
        }
    }
}

fn call(name: &str, arguments: &Value) -> Value {
    json!({ "functionCall": { "name": name, "args": arguments }, "thoughtSignature": "c2lnbmVk" })
}

fn in_repository(path: &str) -> Value {
    json!({ "owner": "acme", "repo": "dates", "path": path })
}

fn plan() -> Value {
    let task = json!({
        "title": "Read the files", "goal": "Read each file.", "doneWhen": "each is read", "tools": ["getFileContents"],
    });
    json!({ "summary": "The files are read.", "tasks": [task] })
}

/// About a kilobyte, another one for each step.
fn content(step: u64) -> String {
    format!("file {step}: {}", "a line of a file ".repeat(60))
}

fn result(structure: &Value) -> Value {
    json!({
        "resultType": "complete", "isError": false, "structuredContent": structure,
        "content": [{ "type": "text", "text": structure.to_string() }],
    })
}

fn tools() -> Value {
    let text = json!({ "type": "string" });
    let tool = |name: &str, properties: &Value| {
        json!({
            "name": name, "description": name, "annotations": { "readOnlyHint": true },
            "inputSchema": { "type": "object", "properties": properties, "additionalProperties": false },
        })
    };
    let of_repository = json!({ "owner": text, "repo": text, "path": text });
    // What code reads before the planner is asked, and what the planner may call.
    let names = [
        "retrieveRepository",
        "getRepositoryTree",
        "getFileContents",
        "readIssue",
        "readPullRequest",
        "listPullRequests",
    ];
    let tools = names.map(|name| tool(name, &of_repository));
    json!({ "resultType": "complete", "ttlMs": 3_600_000, "cacheScope": "public", "tools": tools })
}

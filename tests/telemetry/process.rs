//! `gavel serve` as a separate process, because a process has one exporter, between stand-ins for Gemini, for an MCP
//! server that stores the received `_meta`, and for a collector.

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::collector::Collector;
use crate::gemini::{Gemini, Reply};
use crate::harness::{Database, Ended, binary, free_port, ready};
use crate::postgres;
use crate::raw::{Answer, RawServer, Request};

/// `OTEL_SERVICE_NAME`.
pub const SERVICE: &str = "task-assistant-eu";
pub const KEY_CANARY: &str = "canary-gemini-key";

pub struct Process {
    pub url: String,
    pub collector: Collector,
    meta: Arc<Mutex<Vec<Value>>>,
    _gemini: Gemini,
    _tools: RawServer,
    _directory: TempDir,
    _child: Ended,
}

/// Starts it; with `traced` its spans go to the collector.
pub async fn start(script: Vec<Reply>, database: Database, traced: bool) -> Process {
    // The client of the tests needs it too; another test may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = tempfile::tempdir().unwrap();
    let (gemini, collector) = (Gemini::scripted(script).await, Collector::start().await);
    let meta = Arc::new(Mutex::new(Vec::new()));
    let tools = tools(Arc::clone(&meta)).await;
    let mcp = json!({"mcpServers": {"peer": {"url": tools.url, "gavel": {"trustHints": true}}}});
    std::fs::write(directory.path().join("mcp.json"), mcp.to_string()).unwrap();
    let database = match database {
        Database::Sqlite => format!("sqlite://{}", directory.path().join("gavel.db").display()),
        Database::Postgres => postgres::database().await,
    };
    let port = free_port();
    let mut command = Command::new(binary());
    command
        .arg("serve")
        .current_dir(directory.path())
        .env("GAVEL_LISTEN", format!("127.0.0.1:{port}"))
        .env("GAVEL_MCP_CONFIG", directory.path().join("mcp.json"))
        .env("DATABASE_URL", database)
        .env("GEMINI_API_KEY", KEY_CANARY)
        .env("GEMINI_MODEL", "gemini-3.5-flash")
        .env("GEMINI_BASE_URL", &gemini.url)
        .env("RUST_LOG", "error")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if traced {
        command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
            .env("OTEL_SERVICE_NAME", SERVICE)
            .env("OTEL_BSP_SCHEDULE_DELAY", "20");
    } else {
        command.env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
    }
    let child = Ended(command.spawn().unwrap());
    let url = format!("http://127.0.0.1:{port}");
    ready(&url).await;
    Process {
        url,
        collector,
        meta,
        _gemini: gemini,
        _tools: tools,
        _directory: directory,
        _child: child,
    }
}

/// `add_task` works, `list_tasks` fails.
async fn tools(meta: Arc<Mutex<Vec<Value>>>) -> RawServer {
    let tool = |name: &str, reads: bool| {
        json!({
            "name": name, "annotations": {"readOnlyHint": reads},
            "inputSchema": {"type": "object", "properties": {"description": {"type": "string"}}},
        })
    };
    let offered = json!({"tools": [tool("add_task", false), tool("list_tasks", true)]});
    RawServer::start(move |request: &Request| match request.method() {
        "tools/list" => Some(Answer::Result(offered.clone())),
        "tools/call" => {
            let params = &request.message["params"];
            meta.lock().unwrap().push(params["_meta"].clone());
            let text = json!([{"type": "text", "text": "canary-tool-result"}]);
            Some(Answer::Result(
                json!({"content": text, "isError": params["name"] == "list_tasks"}),
            ))
        }
        _ => None,
    })
    .await
}

impl Process {
    pub async fn chat(&self, path: &str, headers: &[(&str, &str)]) -> String {
        let body = json!({"message": "add canary-message", "user_id": "canary-user"});
        let mut request = reqwest::Client::new().post(format!("{}{path}", self.url)).json(&body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.text().await.unwrap()
    }

    /// Sends a request, and disconnects before there can be a response.
    pub async fn leave_after(&self, time: Duration) {
        let body = json!({"message": "canary-message", "user_id": "canary-user"});
        let request = reqwest::Client::new().post(format!("{}/v1/chat", self.url)).json(&body);
        let answer = request.timeout(time).send().await;
        assert!(answer.is_err_and(|error| error.is_timeout()));
    }

    pub async fn get(&self, path: &str) -> u16 {
        let response = reqwest::get(format!("{}{path}", self.url)).await.unwrap();
        response.status().as_u16()
    }

    /// The `traceparent` of every tool call, as the server got it.
    pub fn reported(&self) -> Vec<Value> {
        let meta = self.meta.lock().unwrap();
        meta.iter().map(|meta| meta["traceparent"].clone()).collect()
    }

    /// Neither message text nor a name or a secret is in the collector's data.
    #[track_caller]
    pub fn assert_no_canary_is_traced(&self) {
        let sent = self.collector.bytes();
        let canary = sent.windows(6).position(|window| window == b"canary");
        if let Some(at) = canary {
            let around = &sent[at..sent.len().min(at + 60)];
            panic!("a canary is traced: {}", String::from_utf8_lossy(around));
        }
    }
}

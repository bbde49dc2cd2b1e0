//! The program with an engine, and a client of it.

#[path = "../../../base/tests/shared/mod.rs"]
mod shared;

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, RequestMetaObject, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, RunningService, ServiceError};
use rmcp::transport::TokioChildProcess;
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;

use crate::engine::{Engine, IMAGE, engine};
use shared::output_schemas;

/// No credential of a test lacks this word.
pub(crate) const CANARY: &str = "canary";

/// The settings of a server.
pub(crate) struct World {
    pub(crate) environment: HashMap<&'static str, String>,
    directory: Arc<TempDir>,
}

/// The engine and the settings for it; `None` without root, and then the test is not run.
pub(crate) fn world() -> Option<(&'static Engine, World)> {
    let engine = engine()?;
    Some((engine, World::at(&engine.host())))
}

impl World {
    pub(crate) fn at(host: &str) -> Self {
        Self {
            environment: HashMap::from([
                ("DOCKER_HOST", host.to_owned()),
                ("DOCKER_IMAGES", "localhost/gavel-test/*".to_owned()),
                // Other tests have containers too.
                ("DOCKER_CONTAINERS", "1000".to_owned()),
            ]),
            directory: Arc::new(tempfile::tempdir().expect("a temporary directory")),
        }
    }

    pub(crate) fn set(mut self, name: &'static str, value: &str) -> Self {
        self.environment.insert(name, value.to_owned());
        self
    }

    /// The program, without anything from this process's environment that could affect it.
    pub(crate) fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gavel-mcp-docker"));
        command.env_clear().envs(&self.environment).kill_on_drop(true);
        command
    }

    /// A server for a session that no other test has.
    pub(crate) async fn server(&self) -> Server {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.server_of(&format!("session-{number}")).await
    }

    pub(crate) async fn server_of(&self, session: &str) -> Server {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let log = self.directory.path().join(format!("log-{number}"));
        let mut command = self.program();
        command.env("RUST_LOG", "trace,rmcp=warn");
        let (child, _) = TokioChildProcess::builder(command)
            .stderr(Stdio::from(File::create(&log).expect("a log")))
            .spawn()
            .expect("the program starts");
        let process = child.id().expect("a process");
        let client = ().serve(child).await.expect("the server answers");
        Server {
            output_schemas: output_schemas(&client).await,
            client,
            session: session.to_owned(),
            process,
            log,
            _directory: self.directory.clone(),
        }
    }
}

/// The program, and a client of it.
pub(crate) struct Server {
    pub(crate) client: RunningService<RoleClient, ()>,
    /// The session of its calls.
    pub(crate) session: String,
    pub(crate) process: u32,
    log: PathBuf,
    _directory: Arc<TempDir>,
    output_schemas: HashMap<String, jsonschema::Validator>,
}

/// A tool's answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) is_error: bool,
    pub(crate) body: Value,
    /// The text of the answer.
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn ok(self) -> Value {
        assert!(!self.is_error, "an error: {}", self.body);
        self.body
    }

    pub(crate) fn error(&self) -> &Value {
        assert!(self.is_error, "not an error: {}", self.body);
        &self.body["error"]
    }

    pub(crate) fn code(&self) -> &str {
        self.error()["code"].as_str().expect("a code")
    }
}

impl Server {
    /// A container of the image that every engine has.
    pub(crate) async fn container(&self) -> String {
        self.container_with(json!({})).await
    }

    /// The same with more options.
    pub(crate) async fn container_with(&self, more: Value) -> String {
        let mut options = json!({ "image": IMAGE });
        let given = more.as_object().expect("options").clone();
        options.as_object_mut().expect("options").extend(given);
        let created = self.call("createContainer", json!({ "options": options })).await.ok();
        created["id"].as_str().expect("an id").to_owned()
    }

    /// A script without a key, with at most 60 s.
    pub(crate) async fn run(&self, container: &str, script: &str) -> Value {
        let arguments = json!({ "containerId": container, "script": script, "timeoutSeconds": 60 });
        self.call("executeScript", arguments).await.ok()
    }

    /// A script with a key.
    pub(crate) async fn run_once(&self, key: &str, container: &str, script: &str) -> Value {
        let arguments = json!({ "containerId": container, "script": script });
        self.first(key, "executeScript", arguments)
            .await
            .expect("an answer")
            .ok()
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Reply {
        let meta = json!({ "gavel/session_id": self.session });
        self.try_call(tool, arguments, meta).await.expect("the protocol works")
    }

    pub(crate) async fn first(&self, key: &str, tool: &str, arguments: Value) -> Result<Reply, ServiceError> {
        let meta = json!({ "gavel/session_id": self.session, "gavel/idempotency_key": key });
        self.try_call(tool, arguments, meta).await
    }

    pub(crate) async fn send(&self, tool: &str, arguments: Value, meta: Value) -> RequestHandle<RoleClient> {
        let mut call = CallToolRequestParams::new(tool.to_owned());
        call.arguments = arguments.as_object().cloned();
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(call));
        let mut given = RequestMetaObject::new();
        given.0.0.extend(meta.as_object().expect("an object").clone());
        let options = PeerRequestOptions::no_options().with_meta(given);
        let sent = self.client.peer().send_cancellable_request(request, options).await;
        sent.expect("sent")
    }

    /// Checks the properties of every answer: its structure matches the output schema, its text is the structure or one
    /// property of it, and it has no credential.
    pub(crate) async fn try_call(&self, tool: &str, arguments: Value, meta: Value) -> Result<Reply, ServiceError> {
        let answered = self.send(tool, arguments, meta).await.await_response().await;
        assert!(!format!("{answered:?}").contains(CANARY), "a credential: {answered:?}");
        let ServerResult::CallToolResult(result) = answered? else {
            panic!("not a tool result");
        };
        let reply = reply(result);
        if let Err(error) = self.output_schemas[tool].validate(&reply.body) {
            panic!("{tool} answered off its schema: {error}: {}", reply.body);
        }
        Ok(reply)
    }

    /// As a crash would.
    pub(crate) fn kill(&self) {
        let process = self.process.to_string();
        let killed = std::process::Command::new("kill").args(["-KILL", &process]).status();
        assert!(killed.expect("kill").success());
    }

    /// The most memory that the program had, in KiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process)).expect("a process");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
        line.split_ascii_whitespace()
            .nth(1)
            .and_then(|kib| kib.parse().ok())
            .expect("a number")
    }

    /// What the program logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("a log")
    }
}

/// A socket of an engine that fails at some requests, as one does that has too much to do.
pub(crate) struct Failing {
    left: Arc<Failures>,
    directory: TempDir,
}

/// How often it will fail, by the end of a request's path.
type Failures = std::sync::Mutex<HashMap<&'static str, u32>>;

impl Failing {
    pub(crate) fn new(engine: &'static Engine) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("s")).expect("a socket");
        let left = Arc::<Failures>::default();
        let shared = left.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let engine = UnixStream::connect(&engine.host()[7..]).await.expect("the engine");
                tokio::spawn(pass_on(client, engine, shared.clone()));
            }
        });
        Self { left, directory }
    }

    /// From now on it fails this often at requests whose path ends so.
    pub(crate) fn fail(&self, path: &'static str, count: u32) {
        self.left.lock().expect("a count").insert(path, count);
    }

    pub(crate) fn has_failed_at(&self, path: &str) -> bool {
        self.left.lock().expect("a count").get(path) == Some(&0)
    }

    pub(crate) fn host(&self) -> String {
        format!("unix://{}/s", self.directory.path().display())
    }
}

async fn pass_on(client: UnixStream, engine: UnixStream, left: Arc<Failures>) {
    let ((mut requests, client), (answers, mut engine)) = (client.into_split(), engine.into_split());
    let client = Arc::new(tokio::sync::Mutex::new(client));
    let to_client = client.clone();
    tokio::spawn(async move {
        let (mut answers, mut part) = (answers, vec![0; 65536]);
        while let Ok(length @ 1..) = answers.read(&mut part).await {
            to_client.lock().await.write_all(&part[..length]).await.ok();
        }
        to_client.lock().await.shutdown().await.ok();
    });
    let mut part = vec![0; 65536];
    while let Ok(length @ 1..) = requests.read(&mut part).await {
        let line = String::from_utf8_lossy(&part[..length])
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        let path = line.split(['?', ' ']).nth(1).unwrap_or_default();
        let fails = left
            .lock()
            .expect("a count")
            .iter_mut()
            .any(|(end, count)| path.ends_with(end) && count.checked_sub(1).map(|less| *count = less).is_some());
        if fails {
            let answer = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 23\r\n\r\n{\"message\":\"too busy\"}\n";
            client.lock().await.write_all(answer.as_bytes()).await.ok();
        } else {
            engine.write_all(&part[..length]).await.ok();
        }
    }
    engine.shutdown().await.ok();
}

/// Waits until something holds, for at most 30 s.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..300 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not within 30 s: {what}");
}

fn reply(result: CallToolResult) -> Reply {
    let body = result.structured_content.expect("structured content");
    let text = result.content[0].as_text().expect("a text").text.clone();
    let is_property = ["files", "content"].iter().any(|name| body[name] == text.as_str());
    let is_whole = serde_json::from_str::<Value>(&text).is_ok_and(|parsed| parsed == body);
    assert!(is_property || is_whole, "the text differs from the structure: {text}");
    Reply {
        is_error: result.is_error.unwrap_or_default(),
        body,
        text,
    }
}

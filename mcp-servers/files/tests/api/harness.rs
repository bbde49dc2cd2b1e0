//! A directory to serve, with a file next to it that must not be exposed, and MCP clients of the server.

#[path = "../../../base/tests/shared/mod.rs"]
mod shared;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rmcp::model::{CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ServerResult};
use rmcp::service::{PeerRequestOptions, RequestHandle, RunningService, ServiceError};
use rmcp::transport::TokioChildProcess;
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde_json::{Value, json};
pub(crate) use shared::Reply;
use shared::output_schemas;
use tempfile::TempDir;
use tokio::process::Command;

/// The content of the file next to the served directory.
pub(crate) const SECRET: &str = "the-secret-beside-the-root";

pub(crate) struct World {
    directory: TempDir,
}

impl World {
    /// An empty directory to serve. Next to it: `outside/secret.txt`.
    pub(crate) fn new() -> Self {
        let world = Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
        };
        fs::create_dir(world.root()).expect("a folder");
        fs::create_dir(world.outside()).expect("a folder");
        fs::write(world.outside().join("secret.txt"), SECRET).expect("a file");
        world
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory().join("root")
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.directory().join("outside")
    }

    /// Creates a file in the served directory, with its parent directories.
    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, content).expect("a file");
    }

    pub(crate) fn link(&self, path: &str, target: impl AsRef<Path>) {
        symlink(target, self.root().join(path)).expect("a link");
    }

    pub(crate) fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gavel-mcp-files"));
        command.env_clear().arg("--root").arg(self.root());
        command
    }

    pub(crate) async fn caller(&self) -> Caller {
        Caller::new(client(self.program(), ClientLifecycleMode::Initialize).await).await
    }

    pub(crate) async fn caller_with(&self, arguments: &[&str]) -> Caller {
        let mut program = self.program();
        program.args(arguments);
        Caller::new(client(program, ClientLifecycleMode::Initialize).await).await
    }
}

pub(crate) type Client = RunningService<RoleClient, ()>;

pub(crate) async fn client(program: Command, lifecycle: ClientLifecycleMode) -> Client {
    let (child, _) = TokioChildProcess::builder(program)
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    ().serve_with_lifecycle(child, lifecycle)
        .await
        .expect("the server answers")
}

/// An MCP client that checks every answer.
pub(crate) struct Caller {
    pub(crate) client: Client,
    output_schemas: HashMap<String, jsonschema::Validator>,
}

impl Caller {
    pub(crate) async fn new(client: Client) -> Self {
        Self {
            output_schemas: output_schemas(&client).await,
            client,
        }
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Reply {
        self.try_call(tool, arguments).await.expect("the protocol works")
    }

    pub(crate) async fn ok(&self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).await.ok()
    }

    /// Checks the properties of every answer: its text equals its structure, both match the output schema, and it
    /// contains nothing from outside the root.
    pub(crate) async fn try_call(&self, tool: &str, arguments: Value) -> Result<Reply, ServiceError> {
        let handle = self.begin(tool, arguments).await?;
        let ServerResult::CallToolResult(result) = handle.await_response().await? else {
            panic!("not a tool result");
        };
        let reply = reply(result);
        if let Err(error) = self.output_schemas[tool].validate(&reply.body) {
            panic!("{tool} answered off its schema: {error}: {}", reply.body);
        }
        assert!(!reply.body.to_string().contains(SECRET), "{tool} exposed the secret");
        Ok(reply)
    }

    pub(crate) async fn begin(&self, tool: &str, arguments: Value) -> Result<RequestHandle<RoleClient>, ServiceError> {
        let mut call = CallToolRequestParams::new(tool.to_owned());
        call.arguments = arguments.as_object().cloned();
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(call));
        let options = PeerRequestOptions::no_options();
        self.client.peer().send_cancellable_request(request, options).await
    }

    /// The matching files, without the other data of `glob`.
    pub(crate) async fn glob(&self, pattern: &str) -> Vec<String> {
        let answer = self.ok("glob", json!({ "pattern": pattern })).await;
        assert!(answer.get("incomplete").is_none(), "{answer}");
        strings(&answer["files"])
    }

    /// Each match as `path:line:text`.
    pub(crate) async fn grep(&self, arguments: Value) -> Vec<String> {
        let answer = self.ok("grep", arguments).await;
        let matches = answer["matches"].as_array().expect("matches").iter();
        matches
            .map(|found| {
                let text = |name: &str| found[name].as_str().expect("a text").to_owned();
                format!("{}:{}:{}", text("path"), found["line"], text("text"))
            })
            .collect()
    }
}

pub(crate) fn strings(values: &Value) -> Vec<String> {
    let values = values.as_array().expect("a list").iter();
    values.map(|value| value.as_str().expect("a text").to_owned()).collect()
}

fn reply(result: CallToolResult) -> Reply {
    let body = result.structured_content.expect("structured content");
    let text = &result.content[0].as_text().expect("a text").text;
    let text: Value = serde_json::from_str(text).expect("JSON in the text");
    assert_eq!(text, body, "the text differs from the structure");
    assert_eq!(result.content.len(), 1);
    Reply {
        is_error: result.is_error.unwrap_or_default(),
        body,
    }
}

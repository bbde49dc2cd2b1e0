//! The program with its own GitHub, and a client of it.

#[path = "../../../base/tests/shared/mod.rs"]
mod shared;

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, RequestMetaObject, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RunningService, ServiceError};
use rmcp::transport::TokioChildProcess;
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::github::{GitHub, TOKEN};
pub(crate) use shared::Reply;
use shared::output_schemas;

pub(crate) const PRIVATE_KEY: &str = include_str!("../../../../tests/fixtures/gemini/service-account.test-key.pem");
/// No credential of a test lacks this word.
const CANARY: &str = "canary";

pub(crate) struct World {
    pub(crate) github: GitHub,
    pub(crate) environment: HashMap<&'static str, String>,
    directory: TempDir,
}

impl World {
    /// With a token.
    pub(crate) async fn new() -> Self {
        Self {
            github: GitHub::start().await,
            environment: HashMap::from([("GITHUB_TOKEN", TOKEN.to_owned())]),
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    /// As an App.
    pub(crate) async fn of_an_app() -> Self {
        let mut world = Self::new().await;
        world.environment = HashMap::from([
            ("GITHUB_APP_ID", "7".to_owned()),
            ("GITHUB_APP_PRIVATE_KEY", PRIVATE_KEY.to_owned()),
            ("GITHUB_APP_INSTALLATION_ID", "42".to_owned()),
        ]);
        world
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    }

    /// The program, without anything from this process's environment that could affect it.
    pub(crate) fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gavel-mcp-github"));
        command
            .env_clear()
            .env("GITHUB_API_URL", self.github.url())
            .envs(&self.environment)
            .kill_on_drop(true);
        command
    }

    pub(crate) async fn server(&self) -> Server {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let log = self.directory.path().join(format!("log-{number}"));
        let mut command = self.program();
        command.env("RUST_LOG", "trace,rmcp=warn");
        let (child, _) = TokioChildProcess::builder(command)
            .stderr(Stdio::from(File::create(&log).expect("a log")))
            .spawn()
            .expect("the program starts");
        let client = ().serve(child).await.expect("the server answers");
        Server {
            output_schemas: output_schemas(&client).await,
            client,
            log,
        }
    }
}

/// The program, and a client of it.
pub(crate) struct Server {
    pub(crate) client: RunningService<RoleClient, ()>,
    log: PathBuf,
    output_schemas: HashMap<String, jsonschema::Validator>,
}

impl Server {
    /// A call without an idempotency key.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Reply {
        self.try_call(tool, arguments, json!({}))
            .await
            .expect("the protocol works")
    }

    /// The first attempt of a call.
    pub(crate) async fn first(&self, key: &str, tool: &str, arguments: Value) -> Result<Reply, ServiceError> {
        self.try_call(tool, arguments, json!({ "gavel/idempotency_key": key }))
            .await
    }

    /// A further attempt of a call that was first sent at this time.
    pub(crate) async fn again(
        &self,
        key: &str,
        first: &str,
        tool: &str,
        arguments: Value,
    ) -> Result<Reply, ServiceError> {
        let meta = json!({ "gavel/idempotency_key": key, "gavel/first_attempt_at": first });
        self.try_call(tool, arguments, meta).await
    }

    /// Checks the properties of every answer: its text equals its structure, both match the output schema, and neither
    /// has a credential.
    pub(crate) async fn try_call(&self, tool: &str, arguments: Value, meta: Value) -> Result<Reply, ServiceError> {
        let mut call = CallToolRequestParams::new(tool.to_owned());
        call.arguments = arguments.as_object().cloned();
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(call));
        let mut given = RequestMetaObject::new();
        given.0.0.extend(meta.as_object().expect("an object").clone());
        let options = PeerRequestOptions::no_options().with_meta(given);
        let handle = self.client.peer().send_cancellable_request(request, options).await?;
        let answered = handle.await_response().await;
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

    /// Fails the test if the program's log has a credential.
    pub(crate) fn check_log(&self) {
        let log = std::fs::read_to_string(&self.log).expect("a log");
        assert!(log.contains("serving MCP"), "{log}");
        let leak = log.lines().find(|line| line.contains(CANARY) || line.contains("eyJ"));
        assert!(leak.is_none(), "a credential in the log: {leak:?}");
    }
}

/// The message of a protocol error, which says that the outcome is unknown.
pub(crate) fn unsettled(answered: Result<Reply, ServiceError>) -> String {
    match answered {
        Err(ServiceError::McpError(error)) => {
            assert_eq!(error.code.0, -32603, "{error:?}");
            assert!(error.message.contains("unknown whether"), "{error:?}");
            error.message.into_owned()
        }
        other => panic!("{other:?}"),
    }
}

fn reply(result: CallToolResult) -> Reply {
    let body = result.structured_content.expect("structured content");
    let text = &result.content[0].as_text().expect("a text").text;
    let text: Value = serde_json::from_str(text).expect("JSON in the text");
    assert_eq!(text, body, "the text differs from the structure");
    Reply {
        is_error: result.is_error.unwrap_or_default(),
        body,
    }
}

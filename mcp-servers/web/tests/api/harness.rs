//! The program, and a client of it.

#[path = "../../../base/tests/shared/mod.rs"]
mod shared;

use std::collections::HashMap;
use std::process::Stdio;

use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::RunningService;
use rmcp::transport::TokioChildProcess;
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::site::Site;
use shared::output_schemas;

/// No credential of a test lacks this word.
const CANARY: &str = "canary";

/// How the program is started.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) environment: HashMap<&'static str, String>,
}

impl World {
    /// The program may reach these sites, although they are private, and ignores robots.txt.
    pub(crate) fn with(sites: &[&Site]) -> Self {
        let sites: Vec<_> = sites.iter().map(|site| site.address.to_string()).collect();
        Self::default()
            .set("WEB_ALLOW_PRIVATE", &sites.join(","))
            .set("WEB_ROBOTS", "ignore")
    }

    pub(crate) fn set(mut self, name: &'static str, value: &str) -> Self {
        self.environment.insert(name, value.to_owned());
        self
    }

    /// The program, without anything from this process's environment that could affect it.
    pub(crate) fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gavel-mcp-web"));
        command.env_clear().envs(&self.environment).kill_on_drop(true);
        command
    }

    pub(crate) async fn server(&self) -> Server {
        let mut command = self.program();
        command.env("RUST_LOG", "warn");
        let (child, _) = TokioChildProcess::builder(command)
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the program starts");
        let process = child.id().expect("a process");
        let client = ().serve(child).await.expect("the server answers");
        Server {
            output_schemas: output_schemas(&client).await,
            client,
            process,
        }
    }
}

pub(crate) struct Server {
    pub(crate) client: RunningService<RoleClient, ()>,
    output_schemas: HashMap<String, jsonschema::Validator>,
    process: u32,
}

/// A tool's answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) is_error: bool,
    pub(crate) body: Value,
    pub(crate) meta: Value,
}

impl Reply {
    pub(crate) fn ok(self) -> Value {
        assert!(!self.is_error, "an error: {}", self.body);
        self.body
    }

    pub(crate) fn text(self) -> String {
        let body = self.ok();
        let text = body.get("text").or_else(|| body.get("answer"));
        text.and_then(Value::as_str).expect("a text").to_owned()
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
    pub(crate) async fn search(&self, query: &str) -> Reply {
        self.call("google_web_search", json!({ "query": query })).await
    }

    pub(crate) async fn fetch(&self, url: &str) -> Reply {
        self.call("web_fetch", json!({ "url": url })).await
    }

    /// Checks the properties of every answer: the text of a page is the string alone, that of an error is its structure,
    /// and both match the output schema.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Reply {
        let mut call = CallToolRequestParams::new(tool.to_owned());
        call.arguments = arguments.as_object().cloned();
        let result = self.client.call_tool(call).await.expect("the protocol works");
        let reply = reply(result);
        if let Err(error) = self.output_schemas[tool].validate(&reply.body) {
            panic!("{tool} answered off its schema: {error}: {}", reply.body);
        }
        reply
    }

    /// The most memory that the program has used, in KiB.
    pub(crate) fn peak_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process)).expect("a process");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
        line.split_whitespace()
            .nth(1)
            .expect("a number")
            .parse()
            .expect("a number")
    }
}

fn reply(result: CallToolResult) -> Reply {
    assert_eq!(result.content.len(), 1);
    assert!(!format!("{result:?}").contains(CANARY), "a credential: {result:?}");
    let body = result.structured_content.expect("structured content");
    let is_error = result.is_error.unwrap_or_default();
    let text = &result.content[0].as_text().expect("a text").text;
    match is_error {
        true => assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), body),
        false => assert_eq!(
            Some(&Value::from(text.as_str())),
            body.get("text").or_else(|| body.get("answer"))
        ),
    }
    Reply {
        is_error,
        body,
        meta: serde_json::to_value(result.meta).expect("JSON"),
    }
}

//! Published clients of MCP that call every tool of a server: the Python SDK and the CLI of the MCP Inspector.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Has each client make the calls; `scripts/mcp_clients.py` describes them and what is checked.
pub(crate) async fn call_every_tool(program: &Command, calls: Value) {
    let clients = std::env::var_os("MCP_CLIENTS").map(PathBuf::from);
    let clients = clients.expect("MCP_CLIENTS, the directory of the clients: run scripts/mcp-conformance clients");
    let program = program.as_std();
    let text = |value: &std::ffi::OsStr| Value::from(value.to_str().expect("UTF-8"));
    let variables = program.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let environment: Map<_, _> = variables
        .map(|(name, value)| (name.to_string_lossy().into_owned(), text(value)))
        .collect();
    let request = json!({ "command": text(program.get_program()), "environment": environment, "calls": calls });
    let path = std::env::var("PATH").expect("PATH");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/mcp_clients.py");
    let mut child = Command::new(clients.join("venv/bin/python"))
        .arg(script)
        .env(
            "PATH",
            format!("{}:{path}", clients.join("node_modules/.bin").display()),
        )
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the clients start");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(request.to_string().as_bytes()).await.expect("written");
    drop(input);
    assert!(child.wait().await.expect("an end").success());
}

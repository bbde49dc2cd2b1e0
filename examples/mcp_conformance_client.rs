//! The MCP bridge under the published conformance suite (`scripts/mcp-conformance` runs it).
//!
//! The suite starts this program with the URL of its server as the last argument. The program connects, lists tools,
//! and calls every tool once, or makes the calls that the suite requests. The suite judges the result on its side.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use gavel::adapters::mcp::{Mcp, McpConfig, McpOptions, ServerState};
use gavel::domain::ids::ActionId;
use gavel::ports::tools::{CallReply, CallRequest, Catalog, Tools};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(15);

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), String> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let url = std::env::args().next_back().ok_or("the URL of the server is missing")?;
    let text = json!({"mcpServers": {"suite": {"url": url}}}).to_string();
    let config = McpConfig::from_file("mcp.json", &text, &|_| None).map_err(|issues| format!("{issues:?}"))?;
    let mcp = Mcp::start(config, McpOptions::default()).map_err(|error| error.to_string())?;
    mcp.ready(&["any".to_owned()], Instant::now() + PATIENCE).await;
    let status = mcp.status().remove(0);
    if status.state != ServerState::Up {
        return Err(status.reason.unwrap_or_else(|| "not connected".to_owned()));
    }
    let catalog = mcp.catalog();
    for (name, arguments) in calls(&catalog)? {
        call(&mcp, &catalog, &name, &arguments).await?;
    }
    mcp.shutdown().await;
    Ok(())
}

/// The calls to make: those in the suite's context, otherwise one call of each tool.
fn calls(catalog: &Catalog) -> Result<Vec<(String, Value)>, String> {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_else(|_| "{}".to_owned());
    let context: Value = serde_json::from_str(&context).map_err(|error| error.to_string())?;
    if let Some(wanted) = context["toolCalls"].as_array() {
        let call = |call: &Value| {
            (
                call["name"].as_str().unwrap_or_default().to_owned(),
                call["arguments"].clone(),
            )
        };
        return Ok(wanted.iter().map(call).collect());
    }
    let mut calls = Vec::new();
    for tool in &catalog.tools {
        let schema = serde_json::from_str(tool.model_schema.get()).map_err(|error| error.to_string())?;
        calls.push((tool.name.to_string(), arguments(catalog, &schema)));
    }
    Ok(calls)
}

/// Simple arguments. One scenario requires another tool's schema, unchanged.
fn arguments(catalog: &Catalog, schema: &Value) -> Value {
    let mut out = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let value = match property["type"].as_str() {
            Some("number" | "integer") => json!(5),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("string") => json!("text"),
            _ if name == "schema" => catalog
                .tools
                .iter()
                .find(|tool| tool.input.original().get().contains("$schema"))
                .and_then(|tool| serde_json::from_str(tool.input.original().get()).ok())
                .unwrap_or_default(),
            _ => json!({}),
        };
        out.insert(name.clone(), value);
    }
    Value::Object(out)
}

async fn call(mcp: &Mcp, catalog: &Catalog, name: &str, arguments: &Value) -> Result<(), String> {
    let Some(tool) = catalog.tools.iter().find(|tool| *tool.name == *name) else {
        eprintln!("{name}: not offered");
        return Ok(());
    };
    let arguments = gavel::domain::canonical::to_raw(arguments);
    let reply = mcp
        .call(CallRequest {
            tool,
            arguments: &arguments,
            tenant: "default",
            user: "conformance",
            origin: "conformance",
            run_id: "conformance",
            action_id: ActionId::new(),
            idempotency_key: "conformance",
            first_attempt_us: None,
            account: None,
            session: None,
            repository: None,
            repositories: None,
            deadline_us: None,
            traceparent: None,
            timeout: PATIENCE,
            cancel: &CancellationToken::new(),
            is_approved: false,
            hold: None,
        })
        .await;
    match reply {
        CallReply::Data(data) => eprintln!("{name}: {data}"),
        CallReply::NotSent(failure) | CallReply::Failed(failure) => eprintln!("{name}: failed: {}", failure.message),
        CallReply::Unknown(failure) => eprintln!("{name}: unknown: {}", failure.message),
    }
    Ok(())
}

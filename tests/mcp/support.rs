//! Starting the bridge and calling through it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gavel::adapters::mcp::{Mcp, McpConfig, McpOptions, ServerState};
use gavel::domain::ids::ActionId;
use gavel::domain::journal::CallFailure;
use gavel::domain::tool::Tool;
use gavel::ports::runs::Hold;
use gavel::ports::tools::{CallReply, CallRequest, Catalog, Tools};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

/// The longest wait in these tests; only a failing test reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A bridge with one server, `s`, of this entry.
pub(crate) fn bridge(entry: &Value) -> Arc<Mcp> {
    bridge_with(entry, McpOptions::default())
}

pub(crate) fn bridge_with(entry: &Value, options: McpOptions) -> Arc<Mcp> {
    let text = serde_json::json!({"mcpServers": {"s": entry}}).to_string();
    Mcp::start(read(&text), options).unwrap()
}

/// A configuration that may use the real environment.
pub(crate) fn read(text: &str) -> McpConfig {
    McpConfig::from_file("mcp.json", text, &|name| std::env::var(name).ok()).unwrap()
}

/// An entry for a server over HTTP.
pub(crate) fn http(url: &str) -> Value {
    serde_json::json!({"url": url})
}

/// The bridge once its server is up and its tools are in the catalog.
pub(crate) async fn up(mcp: &Arc<Mcp>) -> Arc<Catalog> {
    until(mcp, |mcp| {
        mcp.status().iter().all(|server| server.state == ServerState::Up)
    })
    .await;
    mcp.catalog()
}

/// Waits until a condition about the bridge is true. The bridge sends no event when a state changes, so this polls.
pub(crate) async fn until(mcp: &Arc<Mcp>, holds: impl Fn(&Arc<Mcp>) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds(mcp) {
        assert!(
            Instant::now() < deadline,
            "never came true: {:#?} {:#?}",
            mcp.status(),
            mcp.catalog().left_out
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn tool(catalog: &Catalog, name: &str) -> Arc<Tool> {
    let found = catalog.tools.iter().find(|tool| &*tool.name == name);
    found
        .unwrap_or_else(|| panic!("no tool {name} in {catalog:#?}"))
        .clone()
}

/// One call with default values.
pub(crate) struct Call<'a> {
    pub(crate) arguments: Value,
    pub(crate) tenant: &'a str,
    pub(crate) user: &'a str,
    pub(crate) timeout: Duration,
    pub(crate) cancel: CancellationToken,
    pub(crate) is_approved: bool,
    pub(crate) hold: Option<Hold>,
}

impl Call<'_> {
    pub(crate) fn with(arguments: Value) -> Self {
        Self {
            arguments,
            tenant: "default",
            user: "u1",
            timeout: PATIENCE,
            cancel: CancellationToken::new(),
            is_approved: false,
            hold: None,
        }
    }

    pub(crate) async fn of(self, mcp: &Arc<Mcp>, tool: &Arc<Tool>) -> CallReply {
        let arguments = RawValue::from_string(self.arguments.to_string()).unwrap();
        mcp.call(CallRequest {
            tool,
            arguments: &arguments,
            tenant: self.tenant,
            user: self.user,
            origin: "chat",
            run_id: "run-1",
            action_id: ActionId::new(),
            idempotency_key: "key-1",
            first_attempt_us: None,
            account: None,
            session: None,
            repository: None,
            repositories: None,
            deadline_us: None,
            traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            timeout: self.timeout,
            cancel: &self.cancel,
            is_approved: self.is_approved,
            hold: self.hold.as_ref(),
        })
        .await
    }
}

/// Calls a tool by name and waits for it.
pub(crate) async fn call(mcp: &Arc<Mcp>, name: &str, arguments: Value) -> CallReply {
    let tool = tool(&mcp.catalog(), name);
    Call::with(arguments).of(mcp, &tool).await
}

#[track_caller]
pub(crate) fn data(reply: CallReply) -> Value {
    match reply {
        CallReply::Data(raw) => serde_json::from_str(raw.get()).unwrap(),
        other => panic!("no data: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn not_sent(reply: CallReply) -> CallFailure {
    match reply {
        CallReply::NotSent(failure) => failure,
        other => panic!("perhaps sent: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn failed(reply: CallReply) -> CallFailure {
    match reply {
        CallReply::Failed(failure) => failure,
        other => panic!("not failed: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn unknown(reply: CallReply) -> CallFailure {
    match reply {
        CallReply::Unknown(failure) => failure,
        other => panic!("not unknown: {other:?}"),
    }
}

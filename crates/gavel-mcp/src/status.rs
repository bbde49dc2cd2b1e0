//! The status of the servers, for `/readyz`, `gavel mcp list` and `gavel doctor`.

use std::sync::Arc;

use serde::Serialize;

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerStatus {
    /// Its name in `mcp.json`.
    pub name: Arc<str>,
    /// `stdio`, `http`, or absent for a server that is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<&'static str>,
    /// The program, or the URL without parts that may be secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Whether it can be called.
    pub state: ServerState,
    /// Why it cannot be called, for an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The negotiated protocol version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Name and version that the server reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub software: Option<String>,
    /// Process id of a stdio child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Tools offered.
    pub tools: usize,
    /// Tools left out (the catalog has the reasons).
    pub left_out: usize,
    /// How often the connection was opened.
    pub connections: u64,
    /// Users with a connection of their own (`connection: per_user`).
    pub users: usize,
    /// Did many consecutive calls fail, with no success since? Most calls are then rejected immediately. If users have
    /// their own connections: is this true for all of them?
    pub breaker_open: bool,
}

/// Whether a server can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// Connected.
    Up,
    /// Being connected.
    Connecting,
    /// Not connected; gavel retries in the background.
    Down,
    /// Not started.
    Off,
}

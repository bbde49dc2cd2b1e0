//! How the servers are, for `/readyz`, `gavel mcp list` and `gavel doctor`.

use std::sync::Arc;

use serde::Serialize;

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerStatus {
    /// Its name in `mcp.json`.
    pub name: Arc<str>,
    /// `stdio`, `http`, or nothing for a server that is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<&'static str>,
    /// The program, or the URL without what may be secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Whether it can be called.
    pub state: ServerState,
    /// Why it cannot, in words for an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The protocol version agreed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Name and version as the server gives them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub software: Option<String>,
    /// Process id of a stdio child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Tools offered.
    pub tools: usize,
    /// Tools left out (the catalog says why).
    pub left_out: usize,
    /// How often the connection was opened.
    pub connections: u64,
    /// Users with a connection of their own (`connection: per_user`).
    pub users: usize,
    /// Did many calls in a row not get through, and none since? Most are refused at once then. Where users have connections
    /// of their own: is it so for all of them?
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
    /// Not there; tried again in the background.
    Down,
    /// Not to be started.
    Off,
}

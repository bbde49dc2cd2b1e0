//! gavel's self-description for servers. A server's unsolicited requests and notifications are handled in
//! `unsolicited`, not here.

use rmcp::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};

/// gavel as an MCP client.
#[derive(Debug)]
pub(super) struct Handler;

/// gavel's name and version in the protocol.
pub(super) fn client_info() -> Implementation {
    Implementation::new("gavel", env!("CARGO_PKG_VERSION"))
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), client_info())
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

//! What gavel says of itself to a server. What a server asks or tells of its own accord does not come so far
//! (`unsolicited`).

use rmcp::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};

/// gavel towards a server.
#[derive(Debug)]
pub(super) struct Handler;

/// gavel's name and version on the wire.
pub(super) fn client_info() -> Implementation {
    Implementation::new("gavel", env!("CARGO_PKG_VERSION"))
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), client_info())
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

//! What gavel answers when a server asks something of it: nothing is offered, so nothing is given.

use std::sync::Arc;

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ErrorCode, ErrorData, Implementation,
    ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use tokio::sync::Notify;

/// gavel towards a server.
#[derive(Debug)]
pub(super) struct Handler {
    /// Told when the server says that its tools have changed.
    pub(super) changed: Arc<Notify>,
}

/// gavel's name and version on the wire.
pub(super) fn client_info() -> Implementation {
    Implementation::new("gavel", env!("CARGO_PKG_VERSION"))
}

impl ClientHandler for Handler {
    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        // The default of rmcp is "declined", which would be the word of a person nobody has asked.
        Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            "elicitation is not supported",
            None,
        ))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), client_info())
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

//! What the tools share: the engine, the operator's rules, and the credentials to keep back.

use tokio::sync::Mutex;

use crate::call::Call;
use crate::engine::Engine;
use crate::engine::containers::Container;
use crate::error::{Fault, container_not_found};
use crate::redact::Credentials;
use crate::settings::Settings;

/// The containers of gavel.
#[derive(Debug)]
pub(crate) struct Docker {
    pub(crate) engine: Engine,
    pub(crate) settings: Settings,
    pub(crate) credentials: Credentials,
    /// Held while a container is created, so that the number of containers holds.
    pub(crate) creating: Mutex<()>,
}

impl Docker {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            engine: Engine::new(settings.socket.clone()),
            settings,
            credentials: Credentials::default(),
            creating: Mutex::new(()),
        }
    }

    /// The container of a call, which belongs to the call's owner.
    pub(crate) async fn container(&self, id: &str, call: &Call) -> Result<Container, Fault> {
        let find = async || {
            let found = self.engine.find(id, call.owner.as_deref()).await;
            let found = found.map_err(|_| call.not_asked())?;
            found.ok_or_else(|| Fault::from(container_not_found()))
        };
        let found = find().await?;
        if found.is_running {
            return Ok(found);
        }
        // It may only be restarting.
        drop(self.engine.turn(&found.id).await);
        find().await
    }
}

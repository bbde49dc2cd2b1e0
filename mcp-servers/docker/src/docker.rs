//! The service behind the tools: the engine, the operator's rules, and the credentials to keep back.

use std::time::Duration;

use gavel_mcp_base::{Fault, Moment};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::call::Call;
use crate::engine::containers::Container;
use crate::engine::{Engine, EngineFault};
use crate::error::container_not_found;
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
    /// The calls, and what runs beside them.
    pub(crate) tasks: TaskTracker,
    /// The server ends.
    pub(crate) closing: CancellationToken,
}

impl Docker {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            engine: Engine::new(settings.socket.clone()),
            settings,
            credentials: Credentials::default(),
            creating: Mutex::new(()),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
        }
    }

    /// Ends what runs: scripts continue in their containers, and what is being done to the engine is completed.
    pub(crate) async fn end(&self) {
        self.closing.cancel();
        self.tasks.close();
        self.tasks.wait().await;
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

const PERIOD: Duration = Duration::from_secs(60);

/// Removes containers whose time has passed, now and once a minute, until the server ends. It touches nothing that does
/// not carry gavel's labels.
pub(crate) async fn reap(engine: &Engine, closing: &CancellationToken) {
    loop {
        if let Err(fault) = sweep(engine).await {
            tracing::warn!(?fault, "expired containers could not be looked for");
        }
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

async fn sweep(engine: &Engine) -> Result<(), EngineFault> {
    let now = Moment::now();
    let expired = |expires: Option<Moment>| expires.is_some_and(|expires| expires < now);
    for container in engine.list().await? {
        if expired(container.labels.expires) {
            engine.remove(&container.id).await?;
            tracing::info!(container = container.id, "removed an expired container");
        }
    }
    Ok(())
}

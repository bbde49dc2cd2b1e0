//! The container engine: what this server asks it, and nothing else.

pub(crate) mod containers;
pub(crate) mod create;
pub(crate) mod exec;
mod fault;
pub(crate) mod labels;
pub(crate) mod probe;
mod read;

use std::collections::HashMap;
use std::sync::{Mutex, Weak};
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::sync::OnceCell;

pub(crate) use fault::EngineFault;

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(60);

/// The engine behind one socket. It is connected to when it is first needed, so that the server starts without it.
#[derive(Debug)]
pub(crate) struct Engine {
    socket: String,
    docker: OnceCell<Docker>,
    /// By container: held while this server restarts or removes it. One that is restarted looks as if it had stopped.
    turns: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

impl Engine {
    /// The engine at the path of a socket.
    pub(crate) fn new(socket: String) -> Self {
        Self {
            socket,
            docker: OnceCell::new(),
            turns: Mutex::default(),
        }
    }

    /// A client that speaks the engine's version of the API.
    async fn docker(&self) -> Result<&Docker, EngineFault> {
        let connect = || async {
            let docker = Docker::connect_with_unix(&self.socket, REQUEST.as_secs(), API_DEFAULT_VERSION)?;
            docker.negotiate_version().await
        };
        Ok(self.docker.get_or_try_init(connect).await?)
    }
}

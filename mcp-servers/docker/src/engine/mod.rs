//! The container engine: what this server asks it, and nothing else.

pub(crate) mod containers;
pub(crate) mod create;
pub(crate) mod exec;
pub(crate) mod labels;
mod read;

use std::collections::HashMap;
use std::sync::{Mutex, Weak};
use std::time::Duration;

use bollard::errors::Error;
use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::sync::OnceCell;

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

    /// Asks the engine about itself.
    pub(crate) async fn info(&self) -> Result<EngineInfo, EngineFault> {
        let docker = self.docker().await?;
        let version = docker.version().await?;
        let options = docker.info().await?.security_options.unwrap_or_default();
        let maps = ["name=rootless", "name=userns"];
        let name = version.components.into_iter().flatten().next().map(|part| part.name);
        Ok(EngineInfo {
            name: name.unwrap_or_default(),
            version: version.version.unwrap_or_default(),
            api_version: version.api_version.unwrap_or_default(),
            root_is_host_root: !options
                .iter()
                .any(|option| maps.iter().any(|map| option.split(',').any(|part| part == *map))),
        })
    }
}

/// The engine behind a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineInfo {
    /// Such as `Podman Engine`; empty if the engine does not say.
    pub name: String,
    /// Such as `4.3.1`.
    pub version: String,
    /// The version of its API, such as `1.41`.
    pub api_version: String,
    /// Root in a container is root on the host: the engine runs as root and maps no users. What escapes from a
    /// container then has the whole host.
    pub root_is_host_root: bool,
}

/// What the engine answered instead of a result.
#[derive(Debug)]
pub(crate) enum EngineFault {
    /// No answer, or half of one: it is unknown what the request did.
    Unavailable,
    /// What the request names does not exist.
    Missing,
    /// The state of the container, or a name that is taken, does not permit it.
    Conflict,
    /// The engine refused the request, or failed at it.
    Failed,
    /// The engine failed because its disk is full. Nothing was done.
    Full,
}

impl From<Error> for EngineFault {
    fn from(error: Error) -> Self {
        match error {
            Error::DockerResponseServerError { status_code: 404, .. } => Self::Missing,
            Error::DockerResponseServerError { status_code: 409, .. } => Self::Conflict,
            // Podman's words for a container that has stopped, and for a name that is taken.
            Error::DockerResponseServerError {
                status_code: 500,
                message,
            } if message.contains("state improper") || message.contains("already in use") => Self::Conflict,
            // The words of the operating system, which both engines pass on.
            Error::DockerResponseServerError { message, .. } if message.contains("no space left on device") => {
                Self::Full
            }
            Error::DockerResponseServerError { status_code, message } => {
                // What the engine says may name paths of the host: it is for the log.
                tracing::warn!(status_code, message, "the container engine refused a request");
                Self::Failed
            }
            other => {
                tracing::debug!(error = %other, "the container engine did not answer");
                Self::Unavailable
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Podman answers a request to create a container.
    #[test]
    fn a_full_disk_of_the_engine_is_recognized() {
        let message = "container create: write /var/tmp/270707900: no space left on device".to_owned();
        let status_code = 500;
        let error = Error::DockerResponseServerError { status_code, message };
        assert!(matches!(EngineFault::from(error), EngineFault::Full));
    }
}

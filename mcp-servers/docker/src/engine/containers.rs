//! Finding, listing and removing gavel's containers.

use std::collections::HashMap;
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::{ContainerInspectResponse, ContainerSummary};
use bollard::query_parameters::{
    ListContainersOptionsBuilder, RemoveContainerOptionsBuilder, RestartContainerOptionsBuilder, StartContainerOptions,
};
use futures_util::TryStreamExt;
use gavel_mcp_base::Moment;
use tokio::io::AsyncRead;
use tokio_util::io::StreamReader;

use super::labels::{Labels, MANAGED};
use super::{Engine, EngineFault};

/// How often a read whose answer cannot be used is sent again, with pauses that grow: 1.8 s in all.
const REREADS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(50);

/// A container of gavel, in the list of all.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) id: String,
    pub(crate) image: String,
    /// `created`, `running`, `exited` and so on, in the engine's words.
    pub(crate) state: String,
    pub(crate) created: Moment,
    pub(crate) labels: Labels,
}

/// One container of gavel.
#[derive(Debug, Clone)]
pub(crate) struct Container {
    /// The whole id.
    pub(crate) id: String,
    pub(crate) workdir: String,
    pub(crate) is_running: bool,
    pub(crate) labels: Labels,
    /// The user of its processes; empty for root.
    pub(crate) user: String,
}

impl Engine {
    /// All containers of gavel, of every session and in every state; the oldest first.
    pub(crate) async fn list(&self) -> Result<Vec<Listed>, EngineFault> {
        let filters = HashMap::from([("label", vec![format!("{MANAGED}=true")])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let mut attempts = 0;
        let found = loop {
            let found = self.docker().await?.list_containers(Some(options.clone())).await;
            let is_foreign = found.as_ref().is_err_and(is_foreign);
            match found.map_err(EngineFault::from) {
                Err(_) if is_foreign && attempts < REREADS => attempts += 1,
                // Podman fails if a container is removed while it lists them.
                Err(EngineFault::Failed | EngineFault::Missing) if attempts < REREADS => attempts += 1,
                found => break found?,
            }
            tokio::time::sleep(PAUSE * attempts).await;
        };
        let mut listed: Vec<_> = found.into_iter().filter_map(listed).collect();
        listed.sort_by_key(|container| container.created);
        Ok(listed)
    }

    /// The container with this id, or with an id that starts so. `None` for what is not gavel's, and for what belongs
    /// to another session.
    pub(crate) async fn find(&self, id: &str, session: Option<&str>) -> Result<Option<Container>, EngineFault> {
        if !is_id(id) {
            return Ok(None);
        }
        let mut attempts = 0;
        let found = loop {
            let found = self.docker().await?.inspect_container(id, None).await;
            let is_foreign = found.as_ref().is_err_and(is_foreign);
            match found.map_err(EngineFault::from) {
                Err(_) if is_foreign && attempts < REREADS => attempts += 1,
                Err(EngineFault::Missing) => return Ok(None),
                found => break found?,
            }
            tokio::time::sleep(PAUSE * attempts).await;
        };
        let container = container(found).filter(|container| container.id.starts_with(id));
        Ok(container.filter(|container| container.labels.session.as_deref() == session))
    }

    /// Starts a container. One that runs already stays as it is.
    pub(crate) async fn start(&self, id: &str) -> Result<(), EngineFault> {
        let options = None::<StartContainerOptions>;
        Ok(self.docker().await?.start_container(id, options).await?)
    }

    /// Kills everything in a container and starts it again. Its files stay.
    pub(crate) async fn restart(&self, id: &str) -> Result<(), EngineFault> {
        let options = RestartContainerOptionsBuilder::new().t(0).build();
        Ok(self.docker().await?.restart_container(id, Some(options)).await?)
    }

    /// Removes a container in any state, with its volumes. One that is gone is success.
    pub(crate) async fn remove(&self, id: &str) -> Result<(), EngineFault> {
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        // While another request removes the container, this one is a conflict.
        for _ in 0..20 {
            let removed = self.docker().await?.remove_container(id, Some(options.clone())).await;
            match removed.map_err(EngineFault::from) {
                Err(EngineFault::Missing) => return Ok(()),
                Err(EngineFault::Conflict) => tokio::time::sleep(Duration::from_millis(250)).await,
                done => return done,
            }
        }
        Err(EngineFault::Conflict)
    }

    /// The content of a directory of a container, as a tar. The stream ends with an error if the container is gone.
    pub(crate) async fn archive(&self, id: &str, path: &str) -> Result<impl AsyncRead + Send + 'static, EngineFault> {
        let options = bollard::query_parameters::DownloadFromContainerOptionsBuilder::new()
            .path(path)
            .build();
        let docker = self.docker().await?.clone();
        let stream = docker.download_from_container(id, Some(options));
        Ok(StreamReader::new(Box::pin(stream.map_err(std::io::Error::other))))
    }
}

/// Whether the answer has something that Docker's API does not have: Podman says `stopped` or `initialized` of a container
/// that ends or starts right now.
fn is_foreign(error: &Error) -> bool {
    matches!(error, Error::JsonDataError { .. } | Error::JsonSerdeError { .. })
}

/// Hexadecimal, so that it is neither a name of another container nor a path of the engine's API.
fn is_id(text: &str) -> bool {
    (12..=64).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn listed(summary: ContainerSummary) -> Option<Listed> {
    Some(Listed {
        labels: Labels::read(&summary.labels?)?,
        id: summary.id?,
        image: summary.image.unwrap_or_default(),
        state: summary.state.map(|state| state.to_string()).unwrap_or_default(),
        created: Moment(summary.created.unwrap_or_default().saturating_mul(1_000_000)),
    })
}

fn container(found: ContainerInspectResponse) -> Option<Container> {
    let config = found.config?;
    let workdir = config.working_dir.filter(|path| !path.is_empty());
    Some(Container {
        labels: Labels::read(&config.labels?)?,
        id: found.id?,
        workdir: workdir.unwrap_or_else(|| "/".to_owned()),
        is_running: found.state.and_then(|state| state.running).unwrap_or_default(),
        user: config.user.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_is_an_id() {
        assert!(is_id(&"0af".repeat(12)));
        for text in ["", "0af", "gavel-0123456789", "../0123456789abcdef", "0123456789AB"] {
            assert!(!is_id(text), "{text}");
        }
    }

    #[test]
    fn a_state_that_only_podman_has_makes_an_answer_foreign() {
        for state in ["stopped", "initialized"] {
            let read = serde_json::from_str::<ContainerSummary>(&format!(r#"{{"State":"{state}"}}"#));
            assert!(read.is_err_and(|error| is_foreign(&error.into())), "{state}");
        }
        assert!(!is_foreign(&Error::RequestTimeoutError));
    }
}

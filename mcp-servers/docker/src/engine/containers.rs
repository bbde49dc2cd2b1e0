//! Finding, listing and removing gavel's containers.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::Duration;

use bollard::query_parameters::{RemoveContainerOptionsBuilder, RestartContainerOptionsBuilder, StartContainerOptions};
use futures_util::TryStreamExt;
use gavel_mcp_base::Moment;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncRead;
use tokio::time::{Instant, sleep};
use tokio_util::io::StreamReader;

use super::labels::{Labels, MANAGED};
use super::{Engine, EngineFault};

/// How long a list that failed is asked for again.
const LISTING: Duration = Duration::from_secs(5);

/// How often a call looks whether its container has been restarted.
const LOOK: Duration = Duration::from_millis(100);

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

/// A container that is being restarted, until this is dropped.
struct Restarting<'a>(&'a Engine, &'a str);

impl<'a> Restarting<'a> {
    fn of(engine: &'a Engine, id: &'a str) -> Self {
        let mut ids = engine.restarting.lock().unwrap_or_else(PoisonError::into_inner);
        ids.insert(id.to_owned());
        Self(engine, id)
    }
}

impl Drop for Restarting<'_> {
    fn drop(&mut self) {
        let mut ids = self.0.restarting.lock().unwrap_or_else(PoisonError::into_inner);
        ids.remove(self.1);
    }
}

impl Engine {
    /// All containers of gavel, of every session and in every state; the oldest first.
    pub(crate) async fn list(&self) -> Result<Vec<Listed>, EngineFault> {
        let filters = json!({ "label": [format!("{MANAGED}=true")] }).to_string();
        let filters = utf8_percent_encode(&filters, NON_ALPHANUMERIC);
        let path = format!("containers/json?all=true&filters={filters}");
        let until = Instant::now() + LISTING;
        let found: Vec<Summary> = loop {
            match self.read(&path).await {
                // Podman fails if a container is removed while it lists them.
                Err(EngineFault::Failed | EngineFault::Missing) if Instant::now() < until => {}
                found => break found?,
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
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
        let found = match self.read(&format!("containers/{id}/json")).await {
            Err(EngineFault::Missing) => return Ok(None),
            found => found?,
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
        let _restarting = Restarting::of(self, id);
        let options = RestartContainerOptionsBuilder::new().t(0).build();
        Ok(self.docker().await?.restart_container(id, Some(options)).await?)
    }

    /// Waits while this server restarts the container.
    pub(crate) async fn restarted(&self, id: &str) {
        let is_restarting = || {
            let ids = self.restarting.lock().unwrap_or_else(PoisonError::into_inner);
            ids.contains(id)
        };
        while is_restarting() {
            sleep(LOOK).await;
        }
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

/// Hexadecimal, so that it is neither a name of another container nor a path of the engine's API.
fn is_id(text: &str) -> bool {
    (12..=64).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// What the engine's list says of a container.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Summary {
    id: String,
    image: String,
    state: String,
    /// In seconds since 1970.
    created: i64,
    labels: Option<HashMap<String, String>>,
}

/// What the engine says of one container.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    id: String,
    state: State,
    config: Config,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct State {
    running: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    labels: Option<HashMap<String, String>>,
    #[serde(default)]
    working_dir: String,
    #[serde(default)]
    user: String,
}

fn listed(summary: Summary) -> Option<Listed> {
    Some(Listed {
        labels: Labels::read(&summary.labels?)?,
        id: summary.id,
        image: summary.image,
        state: summary.state,
        created: Moment(summary.created.saturating_mul(1_000_000)),
    })
}

fn container(found: Inspected) -> Option<Container> {
    let workdir = Some(found.config.working_dir).filter(|path| !path.is_empty());
    Some(Container {
        labels: Labels::read(&found.config.labels?)?,
        id: found.id,
        workdir: workdir.unwrap_or_else(|| "/".to_owned()),
        is_running: found.state.running,
        user: found.config.user,
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

    /// Podman's `stopped` is no state of Docker's.
    #[test]
    fn a_container_is_listed_in_a_state_that_docker_does_not_have() {
        let all = r#"[{"Id":"a","Image":"i","State":"stopped","Created":7,"Labels":{"gavel.managed":"true"}},
            {"Id":"b","Image":"i","State":"running","Created":8,"Labels":null,"Names":["/b"]}]"#;
        let all: Vec<Summary> = serde_json::from_str(all).expect("a list");
        let all: Vec<_> = all.into_iter().filter_map(listed).collect();
        assert_eq!(
            (all.len(), all[0].state.as_str(), all[0].created.0),
            (1, "stopped", 7_000_000)
        );
    }
}

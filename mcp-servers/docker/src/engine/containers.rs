//! Finding, listing and removing gavel's containers.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use bollard::query_parameters::{KillContainerOptions, RemoveContainerOptionsBuilder, StartContainerOptions};
use futures_util::TryStreamExt;
use gavel_mcp_base::Moment;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncRead;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::io::StreamReader;

use super::{Engine, EngineFault};
use super::{Labels, MANAGED};

/// How long a list that failed is asked for again.
const LISTING: Duration = Duration::from_secs(5);

/// How long the engine is asked to remove a container, or to restart one whose script does not end otherwise, and how
/// often.
const REMOVING: Duration = Duration::from_secs(20);
const RESTARTING: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);
/// Podman answers a kill when the container does not run: not at all if another request has started it again meanwhile.
const KILLING: Duration = Duration::from_secs(5);

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
    /// to another owner.
    pub(crate) async fn find(&self, id: &str, owner: Option<&str>) -> Result<Option<Container>, EngineFault> {
        if !is_id(id) {
            return Ok(None);
        }
        let found = match self.read(&format!("containers/{id}/json")).await {
            Err(EngineFault::Missing) => return Ok(None),
            found => found?,
        };
        let container = container(found).filter(|container| container.id.starts_with(id));
        Ok(container.filter(|container| container.labels.owner.as_deref() == owner))
    }

    /// Starts a container. One that runs already stays as it is.
    pub(crate) async fn start(&self, id: &str) -> Result<(), EngineFault> {
        let options = None::<StartContainerOptions>;
        Ok(self.docker().await?.start_container(id, options).await?)
    }

    /// Kills everything in a container and starts it again, as often as it takes. Its files stay. Returns its turn if it
    /// was restarted: one that does not run has nothing to kill, and is left as it is.
    pub(crate) async fn restart(&self, id: &str) -> Result<Option<OwnedMutexGuard<()>>, EngineFault> {
        let turn = self.turn(id).await;
        let until = Instant::now() + RESTARTING;
        let mut was_running = false;
        loop {
            match self.restart_once(id, &mut was_running).await {
                Err(EngineFault::Missing) => return Ok(None),
                Err(_) if Instant::now() < until => sleep(LOOK).await,
                done => return Ok(done?.then_some(turn)),
            }
        }
    }

    async fn restart_once(&self, id: &str, was_running: &mut bool) -> Result<bool, EngineFault> {
        let found: Inspected = self.read(&format!("containers/{id}/json")).await?;
        *was_running |= found.state.running;
        if !*was_running {
            return Ok(false);
        }
        // Podman's own restart starts a container that was removed meanwhile; its start does not.
        if found.state.running {
            self.kill(id).await?;
        }
        self.start(id).await?;
        Ok(true)
    }

    /// Removes a container in any state, with its volumes. One that is gone is success.
    pub(crate) async fn remove(&self, id: &str) -> Result<(), EngineFault> {
        let _turn = self.turn(id).await;
        // Without force, the engine refuses to remove a container that runs, also one that another process has just
        // started. By force, Podman would forget it, and its processes would continue.
        let options = RemoveContainerOptionsBuilder::new().v(true).build();
        let until = Instant::now() + REMOVING;
        loop {
            // What could not be killed, the engine refuses to remove.
            self.kill(id).await.ok();
            let removed = self.docker().await?.remove_container(id, Some(options.clone())).await;
            match removed.map_err(EngineFault::from) {
                Err(EngineFault::Missing) => return Ok(()),
                // It runs, or another request removes it.
                Err(EngineFault::Conflict) if Instant::now() < until => sleep(LOOK).await,
                done => return done,
            }
        }
    }

    /// Kills everything in a container. A conflict means that it does not run.
    async fn kill(&self, id: &str) -> Result<(), EngineFault> {
        let docker = self.docker().await?;
        let kill = async || match timeout(KILLING, docker.kill_container(id, None::<KillContainerOptions>)).await {
            Ok(killed) => killed.map_err(EngineFault::from),
            Err(_) => Err(EngineFault::Unavailable),
        };
        match kill().await {
            Err(EngineFault::Conflict) => {
                // One that is paused can neither be killed nor removed.
                docker.unpause_container(id).await?;
                kill().await
            }
            done => done,
        }
    }

    /// Waits until this server neither restarts nor removes the container. As long as the guard is held, it begins
    /// neither.
    pub(crate) async fn turn(&self, id: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| turn.strong_count() > 0);
            let turn = turns.get(id).and_then(Weak::upgrade).unwrap_or_default();
            turns.insert(id.to_owned(), Arc::downgrade(&turn));
            turn
        };
        turn.lock_owned().await
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

//! `destroyContainer` and `cleanupGroupContainers`

use std::sync::Arc;

use gavel_mcp_base::{Fault, Kind, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ContainerId;
use crate::call::Call;
use crate::docker::Docker;
use crate::error::unsettled;

const ABOUT: &str = "\
Destroy a container with all its files and processes, in whatever state it is. One that is gone already is no error.";

const ABOUT_GROUP: &str = "Destroy all containers of a group, in whatever state they are. None is no error.";

#[derive(Serialize, JsonSchema)]
struct Destroyed {
    /// Whether there was such a container. It does not exist now in any case.
    destroyed: bool,
}

#[derive(Deserialize, JsonSchema)]
struct Group {
    /// The group. In a session it is the session's id.
    #[schemars(length(min = 1, max = 128))]
    group: String,
}

#[derive(Serialize, JsonSchema)]
struct Cleaned {
    /// The ids of the containers that were destroyed.
    removed: Vec<String>,
    /// The ids of those that could not be destroyed. Call again later.
    left: Vec<String>,
}

pub(super) fn tool() -> Tool<Docker> {
    super::tool("destroyContainer", "Destroy a container", ABOUT, Kind::Removes, destroy)
}

pub(super) fn group_tool() -> Tool<Docker> {
    let title = "Destroy a group of containers";
    super::tool("cleanupGroupContainers", title, ABOUT_GROUP, Kind::Removes, clean_up)
}

async fn destroy(docker: Arc<Docker>, arguments: ContainerId, call: Call) -> Result<Destroyed, Fault> {
    let found = docker.engine.find(&arguments.container_id, call.owner.as_deref()).await;
    let Some(container) = found.map_err(|_| call.not_asked())? else {
        return Ok(Destroyed { destroyed: false });
    };
    let removed = docker.engine.remove(&container.id).await;
    removed.map_err(|_| unsettled("the container engine did not confirm it"))?;
    docker.credentials.forget(&container.id);
    Ok(Destroyed { destroyed: true })
}

async fn clean_up(docker: Arc<Docker>, arguments: Group, call: Call) -> Result<Cleaned, Fault> {
    let found = docker.engine.list().await.map_err(|_| call.not_asked())?;
    let (mut removed, mut left) = (Vec::new(), Vec::new());
    for container in found {
        let labels = &container.labels;
        if labels.owner != call.owner || labels.group.as_deref() != Some(&arguments.group) {
            continue;
        }
        match docker.engine.remove(&container.id).await {
            Ok(()) => {
                docker.credentials.forget(&container.id);
                removed.push(container.id);
            }
            Err(_) => left.push(container.id),
        }
    }
    Ok(Cleaned { removed, left })
}

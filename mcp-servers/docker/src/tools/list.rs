//! `listContainers`

use std::sync::Arc;

use gavel_mcp_base::{Fault, Kind, Moment, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::docker::Docker;

const ABOUT: &str = "List the running containers of this session, or all of them, whatever their state.";

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// Also those that do not run. false when left out.
    all: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
struct Containers {
    containers: Vec<Container>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Container {
    id: String,
    name: Option<String>,
    image: String,
    /// created, running, exited and so on.
    state: String,
    group: Option<String>,
    created_at: Moment,
    /// After this time it is removed.
    expires_at: Option<Moment>,
}

pub(super) fn tool() -> Tool<Docker> {
    super::tool("listContainers", "List containers", ABOUT, Kind::Reads, list)
}

async fn list(docker: Arc<Docker>, arguments: Arguments, call: Call) -> Result<Containers, Fault> {
    let all = arguments.all.unwrap_or_default();
    let found = docker.engine.list().await.map_err(|_| call.not_asked())?;
    let own = found
        .into_iter()
        .filter(|container| container.labels.owner == call.owner && (all || container.state == "running"));
    let shown = own.map(|found| Container {
        id: found.id,
        name: found.labels.name,
        image: found.image,
        state: found.state,
        group: found.labels.group,
        created_at: found.created,
        expires_at: found.labels.expires,
    });
    Ok(Containers {
        containers: shown.collect(),
    })
}

//! `listContainers`

use gavel_mcp_base::{Answer, Arguments};
use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

use super::schema::{self, Kind};
use crate::call::Call;
use crate::docker::Docker;
use crate::engine::containers::Listed;
use crate::error::Fault;

pub(super) const NAME: &str = "listContainers";

const ABOUT: &str = "List the running containers of this session, or all of them, whatever their state.";

pub(super) fn tool() -> Tool {
    let text = || json!({ "type": "string" });
    let optional = || json!({ "type": ["string", "null"] });
    let container = json!({
        "type": "object",
        "properties": {
            "id": text(),
            "name": optional(),
            "image": text(),
            "state": { "type": "string", "description": "created, running, exited and so on." },
            "group": optional(),
            "createdAt": text(),
            "expiresAt": { "type": ["string", "null"], "description": "After this time it is removed." }
        },
        "required": ["id", "name", "image", "state", "group", "createdAt", "expiresAt"],
        "additionalProperties": false
    });
    let containers = json!({ "type": "array", "items": container });
    schema::tool(
        NAME,
        "List containers",
        ABOUT,
        Kind::Reads,
        (
            json!({ "all": schema::boolean("Also those that do not run. false when left out.") }),
            &[],
        ),
        &[("containers", containers)],
    )
}

pub(super) async fn carry_out(arguments: Option<JsonObject>, docker: &Docker, call: &Call) -> Result<Answer, Fault> {
    let arguments = Arguments::new(arguments, &["all"])?;
    let all = arguments.boolean("all")?.unwrap_or_default();
    let found = docker.engine.list().await.map_err(|_| call.not_asked())?;
    let own = found
        .iter()
        .filter(|container| container.labels.owner == call.owner && (all || container.state == "running"));
    Ok(Answer::of(&json!({ "containers": own.map(shown).collect::<Vec<_>>() })))
}

fn shown(container: &Listed) -> Value {
    json!({
        "id": container.id,
        "name": container.labels.name,
        "image": container.image,
        "state": container.state,
        "group": container.labels.group,
        "createdAt": container.created.text(),
        "expiresAt": container.labels.expires.map(|expires| expires.text())
    })
}

//! `destroyContainer` and `cleanupGroupContainers`

use gavel_mcp_base::{Answer, Arguments, missing};
use rmcp::model::{JsonObject, Tool};
use serde_json::json;

use super::schema::{self, Kind};
use super::target::container_id;
use crate::call::Call;
use crate::docker::Docker;
use crate::error::{Fault, unsettled};

pub(super) const NAME: &str = "destroyContainer";
pub(super) const GROUP: &str = "cleanupGroupContainers";

const MAX_GROUP_CHARS: usize = 128;

const ABOUT: &str = "\
Destroy a container with all its files and processes, in whatever state it is. One that is gone already is no error.";

const ABOUT_GROUP: &str = "Destroy all containers of a group, in whatever state they are. None is no error.";

pub(super) fn tool() -> Tool {
    let destroyed = schema::boolean("Whether there was such a container. It does not exist now in any case.");
    schema::tool(
        NAME,
        "Destroy a container",
        ABOUT,
        Kind::Removes,
        (json!({ "containerId": schema::container_id() }), &["containerId"]),
        &[("destroyed", destroyed)],
    )
}

pub(super) fn group_tool() -> Tool {
    schema::tool(
        GROUP,
        "Destroy a group of containers",
        ABOUT_GROUP,
        Kind::Removes,
        (
            json!({ "group": schema::text("The group. In a session it is the session's id.") }),
            &["group"],
        ),
        &[
            ("removed", schema::ids("The ids of the containers that were destroyed.")),
            (
                "left",
                schema::ids("The ids of those that could not be destroyed. Call again later."),
            ),
        ],
    )
}

pub(super) async fn carry_out(arguments: Option<JsonObject>, docker: &Docker, call: &Call) -> Result<Answer, Fault> {
    let arguments = Arguments::new(arguments, &["containerId"])?;
    let id = container_id(&arguments)?;
    let found = docker.engine.find(&id, call.owner.as_deref()).await;
    let Some(container) = found.map_err(|_| call.not_asked())? else {
        return Ok(Answer::of(&json!({ "destroyed": false })));
    };
    let removed = docker.engine.remove(&container.id).await;
    removed.map_err(|_| unsettled("the container engine did not confirm it"))?;
    docker.credentials.forget(&container.id);
    Ok(Answer::of(&json!({ "destroyed": true })))
}

pub(super) async fn carry_out_for_group(
    arguments: Option<JsonObject>,
    docker: &Docker,
    call: &Call,
) -> Result<Answer, Fault> {
    let arguments = Arguments::new(arguments, &["group"])?;
    let group = arguments.visible_text("group", MAX_GROUP_CHARS)?;
    let group = group.ok_or_else(|| missing("group"))?;
    let found = docker.engine.list().await.map_err(|_| call.not_asked())?;
    let (mut removed, mut left) = (Vec::new(), Vec::new());
    for container in found {
        let labels = &container.labels;
        if labels.owner != call.owner || labels.group.as_deref() != Some(&group) {
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
    Ok(Answer::of(&json!({ "removed": removed, "left": left })))
}

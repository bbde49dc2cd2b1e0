//! `createContainer`

use std::sync::Arc;

use gavel_mcp_base::{Fault, Kind, Moment, Tool, ToolError, internal, key_reused, shares, text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::options::{self, Options, Valid};
use crate::call::Call;
use crate::docker::Docker;
use crate::engine::EngineFault;
use crate::engine::Labels;
use crate::engine::containers::Listed;
use crate::engine::create::Plan;
use crate::error::{Code, engine_disk_full, unsettled};
use crate::settings::{Settings, check_mounts};

/// How long a container is kept after the caller's deadline, and without one, in microseconds.
const AFTER_DEADLINE: i64 = 10 * 60 * 1_000_000;
const WITHOUT_DEADLINE: i64 = 24 * 60 * 60 * 1_000_000;

const ABOUT: &str = "\
Create a container and start it. It has only its image and what the operator mounts, and cannot reach the host.";

const WAIT: &str = "Destroy one that is no longer needed, or try again when one was destroyed or has expired.";

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    options: Options,
}

#[derive(Serialize, JsonSchema)]
struct Created {
    /// The id of the container, for the other tools.
    id: String,
}

pub(super) fn tool(permitted: &str) -> Tool<Docker> {
    let about = format!("{ABOUT} {permitted}");
    super::tool("createContainer", "Create a container", about, Kind::Creates, create).with_unknown(options::unknown)
}

/// What the operator permits, in words. Where a mount is on the host is not for models.
pub(crate) fn permitted(settings: &Settings) -> String {
    let missing = if settings.pulls { "is pulled" } else { "is not pulled" };
    let mounts = settings.mounts.iter().filter_map(|mount| {
        let (target, mode) = mount.split_once(':')?.1.split_once(':')?;
        Some(format!("{target} ({mode})"))
    });
    let mounts = match settings.mounts.is_empty() {
        true => "none".to_owned(),
        false => text::list(mounts),
    };
    let limits = &settings.limits;
    let [(_, of_user), ..] = shares::limits(limits.in_all);
    format!(
        "Permitted images: {}; one that is missing {missing}. Network: {}. Mounts: {mounts}. At most {} MiB of memory, \
         {} processors and {} processes; {} containers of a session and {of_user} of a user.",
        settings.images.text, settings.network, limits.memory_mb, limits.cpus, limits.pids, limits.per_session
    )
}

async fn create(docker: Arc<Docker>, arguments: Arguments, call: Call) -> Result<Created, Fault> {
    let docker = &*docker;
    let options = arguments.options.parse(&docker.settings.limits)?;
    if !docker.settings.images.permit(&options.image) {
        return Err(image_not_allowed(docker, &options).into());
    }
    let expires = match call.deadline {
        Some(deadline) => deadline.0 + AFTER_DEADLINE,
        None => Moment::now().0 + WITHOUT_DEADLINE,
    };
    let plan = Plan {
        name: format!("gavel-{}", call.id()),
        image: options.image.as_str().to_owned(),
        workdir: options.workdir,
        env: options.env,
        memory_mb: options.memory_mb,
        cpus: options.cpus,
        pids: options.pids,
        network: docker.settings.network.clone(),
        mounts: docker.settings.mounts.clone(),
        labels: Labels {
            owner: call.owner.clone(),
            user: call.user.clone(),
            group: call.session.clone().or(options.group),
            key: call.key.clone(),
            digest: Some(call.digest.clone()),
            name: options.name,
            expires: Some(Moment(expires)),
        },
    };
    // What is behind a path may have changed since the start.
    check_mounts(&docker.settings.mounts, &docker.settings.socket).map_err(|error| {
        tracing::error!("no container is created: {error:#}");
        internal()
    })?;
    let _turn = docker.creating.lock().await;
    let id = match find(docker, &call).await? {
        Some(found) => found,
        None => make(docker, &call, &plan).await?,
    };
    start(docker, &call, &id).await?;
    Ok(Created { id })
}

fn image_not_allowed(docker: &Docker, options: &Valid) -> ToolError {
    let permitted = &docker.settings.images.text;
    let words = format!("The image is not permitted; nothing was created. Permitted are: {permitted}.");
    ToolError::new(Code::ImageNotAllowed, words)
        .with("image", options.image.as_str())
        .with("permitted", Value::from(permitted.as_str()))
}

/// What an earlier attempt created, if the limits permit another container or one is there.
async fn find(docker: &Docker, call: &Call) -> Result<Option<String>, Fault> {
    let all = docker.engine.list().await.map_err(|_| call.not_asked())?;
    if let Some(found) = own(&all, call) {
        return match found.labels.digest.as_deref() == Some(&call.digest) {
            true => Ok(Some(found.id.clone())),
            false => Err(key_reused().into()),
        };
    }
    let limits = &docker.settings.limits;
    let own = all.iter().filter(|container| container.labels.owner == call.owner);
    if own.count() >= limits.per_session {
        let words = format!("This session has {} containers, as many as it may.", limits.per_session);
        let refused = ToolError::new(Code::TooManyContainers, words).with("max", limits.per_session);
        return Err(refused.with("scope", "session").and(WAIT).into());
    }
    let holders = all.iter().map(|container| container.labels.user.as_deref());
    match shares::check(limits.in_all, call.user.as_deref(), holders) {
        Ok(()) => Ok(None),
        Err(full) => Err(full.error(Code::TooManyContainers, "containers").and(WAIT).into()),
    }
}

/// The container that the same call created.
fn own<'a>(all: &'a [Listed], call: &Call) -> Option<&'a Listed> {
    let key = call.key.as_ref()?;
    all.iter()
        .find(|container| container.labels.key.as_ref() == Some(key) && container.labels.owner == call.owner)
}

async fn make(docker: &Docker, call: &Call, plan: &Plan) -> Result<String, Fault> {
    let mut created = docker.engine.create(plan).await;
    if matches!(created, Err(EngineFault::Missing)) && docker.settings.pulls {
        // If it fails, the image is still missing.
        docker.engine.pull(&plan.image).await.ok();
        created = docker.engine.create(plan).await;
    }
    match created {
        Ok(id) => Ok(id),
        Err(EngineFault::Missing) => {
            let words = format!(
                "The engine does not have the image {}, or it has no such network. Use another image, or ask the \
                 operator to provide this one.",
                plan.image
            );
            Err(ToolError::new(Code::ImageMissing, words)
                .with("image", plan.image.as_str())
                .into())
        }
        // The name is taken: another server process has created the container of this call.
        Err(EngineFault::Conflict) => {
            let all = docker
                .engine
                .list()
                .await
                .map_err(|_| unsettled("the container engine does not answer"))?;
            let found = own(&all, call).map(|found| found.id.clone());
            found.ok_or_else(|| unsettled("the container engine reports a conflict"))
        }
        Err(EngineFault::Failed) => Err(unusable().into()),
        Err(EngineFault::Full) => Err(engine_disk_full().into()),
        Err(EngineFault::Unavailable) => Err(unsettled("the container engine did not confirm it")),
    }
}

/// Starts a container that was never started. One that an earlier attempt started and that has stopped since stays so.
async fn start(docker: &Docker, call: &Call, id: &str) -> Result<(), Fault> {
    let all = docker.engine.list().await;
    let all = all.map_err(|_| unsettled("the container engine does not answer"))?;
    let state = all
        .iter()
        .find(|container| container.id == id)
        .map(|container| container.state.as_str());
    if !matches!(state, Some("created" | "configured" | "initialized")) {
        return Ok(());
    }
    let found = docker.engine.find(id, call.owner.as_deref()).await;
    if let Ok(Some(container)) = found {
        let prepared = docker.engine.prepare(&container).await;
        prepared.map_err(|_| unsettled("the container engine did not confirm it"))?;
    }
    match docker.engine.start(id).await {
        Ok(()) => Ok(()),
        Err(EngineFault::Unavailable) => Err(unsettled("the container engine did not confirm it")),
        Err(fault) => {
            let removed = docker.engine.remove(id).await;
            removed.map_err(|_| unsettled("a container that does not start could not be removed"))?;
            match fault {
                EngineFault::Full => Err(engine_disk_full().into()),
                EngineFault::Missing | EngineFault::Conflict | EngineFault::Failed | EngineFault::Unavailable => {
                    Err(unusable().into())
                }
            }
        }
    }
}

fn unusable() -> ToolError {
    ToolError::new(
        Code::ImageUnusable,
        "The engine could not start a container of this image; nothing is left of it. The image may have no /bin/sh, \
         or the engine is set up so that none starts: this server's log has the engine's message. Use another image, or ask the \
         operator.",
    )
}

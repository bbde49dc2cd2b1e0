//! The tools: their arguments and answers with their descriptions for models, and what they do.

mod create;
mod destroy;
mod list;
mod options;
mod read_file;
mod script;
mod sources;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use gavel_mcp_base::{Fault, Kind, Output, Tool, ToolError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

pub(crate) use self::create::permitted;
use crate::call::Call;
use crate::docker::Docker;
use crate::engine::containers::Container;
use crate::engine::{Command, Printed};
use crate::error::{engine_error, engine_unavailable, not_running, unsettled};

/// All tools, always in the same order. `permitted` says what containers may be.
pub(crate) fn all(permitted: &str) -> Vec<Tool<Docker>> {
    vec![
        create::tool(permitted),
        destroy::tool(),
        destroy::group_tool(),
        script::tool(),
        sources::tool(),
        read_file::tool(),
        list::tool(),
    ]
}

/// A tool whose calls are carried out by tasks of their own. When a call is dropped, its task ends the call's script, or
/// completes what it does to the engine.
fn tool<A, R, F>(
    name: &'static str,
    title: &str,
    description: impl Into<Cow<'static, str>>,
    kind: Kind,
    run: fn(Arc<Docker>, A, Call) -> F,
) -> Tool<Docker>
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    R: Output + Send + 'static,
    F: Future<Output = Result<R, Fault>> + Send + 'static,
{
    let spawned = move |docker: Arc<Docker>, given: gavel_mcp_base::Call<A>| async move {
        let call = Call::parse(&given)?;
        let tasks = docker.tasks.clone();
        tasks
            .spawn(run(docker, given.arguments, call))
            .await
            .unwrap_or_else(|error| {
                tracing::error!(%error, "a call failed");
                Err(unsettled("the server failed"))
            })
    };
    let tool = Tool::new(name, title, description, kind, spawned);
    match kind {
        Kind::Reads => tool,
        // A session sees and changes its own containers alone.
        _ => tool.open_world(true).with_settings(json!({ "scope": {} })),
    }
}

/// How long reading in a container may take.
const READ_TIME: Duration = Duration::from_secs(30);

/// The container that a call names.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ContainerId {
    /// The id that createContainer returned.
    #[schemars(length(min = 1, max = 64))]
    container_id: String,
}

/// A container of the call's session that runs.
async fn running(named: &ContainerId, docker: &Docker, call: &Call) -> Result<Container, Fault> {
    let container = docker.container(&named.container_id, call).await?;
    match container.is_running {
        true => Ok(container),
        false => Err(not_running().into()),
    }
}

/// Runs code that only reads.
async fn read(docker: &Docker, container: &Container, command: &Command<'_>) -> Result<Printed, ToolError> {
    let read = tokio::time::timeout(READ_TIME, docker.engine.exec(&container.id, command)).await;
    match read {
        Ok(Ok(written)) => Printed::parse(&written.out).ok_or_else(engine_unavailable),
        Ok(Err(fault)) => Err(engine_error(&fault)),
        Err(_) => Err(engine_unavailable()),
    }
}

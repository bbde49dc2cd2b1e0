//! The container that a call names, and reading in it.

use std::time::Duration;

use gavel_mcp_base::{Fault, ToolError};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::call::Call;
use crate::docker::Docker;
use crate::engine::containers::Container;
use crate::engine::exec::{Command, Written};
use crate::error::{engine_error, engine_unavailable, not_running};

/// How long reading in a container may take.
const READ: Duration = Duration::from_secs(30);

/// The container that a call names.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContainerId {
    /// The id that createContainer returned.
    #[schemars(length(min = 1, max = 64))]
    pub(super) container_id: String,
}

/// A container of the call's session that runs.
pub(super) async fn running(named: &ContainerId, docker: &Docker, call: &Call) -> Result<Container, Fault> {
    let container = docker.container(&named.container_id, call).await?;
    match container.is_running {
        true => Ok(container),
        false => Err(not_running().into()),
    }
}

/// Runs code that only reads.
pub(super) async fn read(docker: &Docker, container: &Container, command: &Command<'_>) -> Result<Written, ToolError> {
    let read = tokio::time::timeout(READ, docker.engine.exec(&container.id, command)).await;
    match read {
        Ok(Ok(written)) => Ok(written),
        Ok(Err(fault)) => Err(engine_error(&fault)),
        Err(_) => Err(engine_unavailable()),
    }
}

/// What code for reading printed: lines of "name value", an empty line, and a content.
#[derive(Debug)]
pub(super) struct Printed {
    lines: Vec<(String, String)>,
    pub(super) content: Vec<u8>,
}

impl Printed {
    /// `None` if there is no empty line.
    pub(super) fn parse(written: &[u8]) -> Option<Self> {
        let end = written.windows(2).position(|pair| pair == b"\n\n")?;
        let header = String::from_utf8_lossy(written.get(..end)?).into_owned();
        let line = |line: &str| {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            (name.to_owned(), value.to_owned())
        };
        Some(Self {
            lines: header.lines().map(line).collect(),
            content: written.get(end + 2..)?.to_vec(),
        })
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.lines
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }

    /// The lines of the credential file.
    pub(super) fn secrets(&self) -> Vec<String> {
        let secrets = self.lines.iter().filter(|(name, _)| name == "secret");
        secrets.map(|(_, secret)| secret.clone()).collect()
    }
}

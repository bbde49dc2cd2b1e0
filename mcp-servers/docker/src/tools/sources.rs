//! `getAllSourceFiles`

use std::sync::Arc;
use std::time::Duration;

use gavel_mcp_base::{Fault, Kind, Tool, ToolError};
use schemars::JsonSchema;
use serde::Serialize;

use super::{ContainerId, read, running};
use crate::call::Call;
use crate::docker::Docker;
use crate::engine::Command;
use crate::error::{Code, engine_unavailable};
use crate::sources::{self, Skipped};

/// How long the whole directory may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Prints where the working directory is. A script may have replaced it by a link.
const WHERE: &str = r#"
exec 2>/dev/null
cd "$1" && printf 'path %s\n' "$(pwd -P)"
if [ -f /run/gavel/git-credentials ]; then
  head -c 65536 /run/gavel/git-credentials | while read -r line; do printf 'secret %s\n' "$line"; done
fi
printf 'end\n\n'
"#;

const ABOUT: &str = "\
Read the text files below the working directory of a container, in blocks of \"=== path (bytes)\", 200 KiB in all. \
Without .git, what .gitignore excludes, binary files, and files of more than 64 KiB.";

#[derive(Serialize, JsonSchema)]
struct Files {
    /// The files, one after the other.
    files: String,
    /// How many files are shown.
    count: usize,
    /// Files that are not shown, at most 500.
    skipped: Vec<Skipped>,
    /// Whether there are more files. Read them with readFileInContainer.
    truncated: bool,
}

pub(super) fn tool() -> Tool<Docker> {
    let title = "Read all source files";
    super::tool("getAllSourceFiles", title, ABOUT, Kind::Reads, read_all).with_text("files")
}

async fn read_all(docker: Arc<Docker>, arguments: ContainerId, call: Call) -> Result<Files, Fault> {
    let container = running(&arguments, &docker, &call).await?;
    let command = Command {
        code: WHERE,
        arguments: vec![container.workdir.clone()],
        input: &[],
        most: 128 * 1024,
    };
    let printed = read(&docker, &container, &command).await?;
    let path = printed.value("path").ok_or_else(|| {
        ToolError::new(
            Code::NotFound,
            "The working directory does not exist any more. Create it with executeScript.",
        )
    })?;
    let refused = ["/proc", "/sys", "/dev", "/run/gavel"];
    if path == "/"
        || refused
            .iter()
            .any(|refused| std::path::Path::new(path).starts_with(refused))
    {
        let words = "The working directory is not one whose files are read.";
        return Err(ToolError::new(Code::PathRefused, words).into());
    }
    let archive = docker.engine.archive(&container.id, path).await;
    let archive = archive.map_err(|_| engine_unavailable())?;
    let found = tokio::time::timeout(LIMIT, sources::read(archive)).await;
    let found = found.map_err(|_| engine_unavailable())?.map_err(|error| {
        tracing::warn!(%error, "the archive of a container could not be read");
        engine_unavailable()
    })?;
    let redactor = docker.credentials.redactor(&container.id, &printed.secrets());
    Ok(Files {
        files: redactor.clean(&found.text),
        count: found.count,
        skipped: found.skipped,
        truncated: found.is_truncated,
    })
}

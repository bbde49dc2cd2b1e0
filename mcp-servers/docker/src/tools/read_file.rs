//! `readFileInContainer`

use std::sync::Arc;

use gavel_mcp_base::{Fault, Kind, Tool, ToolError, missing};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ContainerId, read, running};
use crate::call::Call;
use crate::docker::Docker;
use crate::engine::Command;
use crate::error::{Code, engine_unavailable};

const READ: &str = include_str!("read_file.sh");
/// The largest file, in bytes.
const MOST: usize = 200 * 1024;

const ABOUT: &str = "\
Read one text file of a container, of at most 200 KiB. The path is absolute, or below the working directory. Links are \
followed; nothing below /proc, /sys, /dev and /run/gavel is read.";

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    #[serde(flatten)]
    container: ContainerId,
    /// The path of the file, such as src/main.rs or /etc/os-release.
    #[schemars(length(max = 4096))]
    path: String,
}

#[derive(Serialize, JsonSchema)]
struct File {
    /// The content of the file.
    content: String,
    /// The path of the file, without links.
    path: String,
    /// The size of the file.
    bytes: usize,
}

pub(super) fn tool() -> Tool<Docker> {
    let title = "Read a file of a container";
    super::tool("readFileInContainer", title, ABOUT, Kind::Reads, read_file).with_text("content")
}

async fn read_file(docker: Arc<Docker>, arguments: Arguments, call: Call) -> Result<File, Fault> {
    let path = arguments.path;
    if path.is_empty() {
        return Err(missing("path").into());
    }
    let container = running(&arguments.container, &docker, &call).await?;
    let command = Command {
        code: READ,
        arguments: vec![path, container.workdir.clone(), (MOST + 1).to_string()],
        input: &[],
        most: MOST + 128 * 1024,
    };
    let printed = read(&docker, &container, &command).await?;
    check(printed.value("state").unwrap_or_default())?;
    if printed.content.len() > MOST {
        let words = format!("The file has more than {MOST} bytes. Print a part of it with executeScript.");
        return Err(ToolError::new(Code::TooLarge, words).with("max", MOST).into());
    }
    let bytes = printed.content.len();
    let text = std::str::from_utf8(&printed.content)
        .ok()
        .filter(|text| !text.contains('\0'));
    let text = text.ok_or_else(|| ToolError::new(Code::NotText, "The file is not UTF-8 text."))?;
    let redactor = docker.credentials.redactor(&container.id, &printed.secrets());
    Ok(File {
        content: redactor.clean(text),
        path: redactor.clean(printed.value("path").unwrap_or_default()),
        bytes,
    })
}

fn check(state: &str) -> Result<(), ToolError> {
    match state {
        "file" => Ok(()),
        "refused" => {
            let words =
                "The path, or what it links to, is not read: /proc, /sys, /dev, /run/gavel, and what is no file.";
            Err(ToolError::new(Code::PathRefused, words))
        }
        "directory" => {
            let words = "This is a directory. getAllSourceFiles reads its text files; executeScript can list it.";
            Err(ToolError::new(Code::PathRefused, words))
        }
        "unreadable" => {
            let words = "The container's user may not read the file.";
            Err(ToolError::new(Code::PathRefused, words))
        }
        "missing" => Err(ToolError::new(
            Code::NotFound,
            "There is no such file in the container.",
        )),
        _ => Err(engine_unavailable()),
    }
}

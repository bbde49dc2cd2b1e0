//! `readFileInContainer`

use gavel_mcp_base::{Answer, Arguments, ToolError, missing};
use rmcp::model::{JsonObject, Tool};
use serde_json::json;

use super::schema::{self, Kind};
use super::target::{Printed, read, running};
use crate::call::Call;
use crate::docker::Docker;
use crate::engine::exec::Command;
use crate::error::{Code, Fault, engine_unavailable};

pub(super) const NAME: &str = "readFileInContainer";
/// The property that is the answer's text.
pub(super) const TEXT: &str = "content";

const READ: &str = include_str!("read_file.sh");
/// The largest file, in bytes.
const MOST: usize = 200 * 1024;
const PATH: usize = 4096;

const ABOUT: &str = "\
Read one text file of a container, of at most 200 KiB. The path is absolute, or below the working directory. Links are \
followed; nothing below /proc, /sys, /dev and /run/gavel is read.";

pub(super) fn tool() -> Tool {
    let arguments = json!({
        "containerId": schema::container_id(),
        "path": schema::text("The path of the file, such as src/main.rs or /etc/os-release.")
    });
    schema::tool(
        NAME,
        "Read a file of a container",
        ABOUT,
        Kind::Reads,
        (arguments, &["containerId", "path"]),
        &[
            (TEXT, schema::text("The content of the file.")),
            ("path", schema::text("The path of the file, without links.")),
            (
                "bytes",
                json!({ "type": "integer", "description": "The size of the file." }),
            ),
        ],
    )
}

pub(super) async fn carry_out(arguments: Option<JsonObject>, docker: &Docker, call: &Call) -> Result<Answer, Fault> {
    let arguments = Arguments::new(arguments, &["containerId", "path"])?;
    let path = arguments.text("path", PATH)?.filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| missing("path"))?;
    let container = running(&arguments, docker, call).await?;
    let command = Command {
        code: READ,
        arguments: vec![path, container.workdir.clone(), (MOST + 1).to_string()],
        input: &[],
        most: MOST + 128 * 1024,
    };
    let written = read(docker, &container, &command).await?;
    let printed = Printed::parse(&written.out).ok_or_else(engine_unavailable)?;
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
    Ok(Answer::of(&json!({
        "content": redactor.clean(text),
        "path": redactor.clean(printed.value("path").unwrap_or_default()),
        "bytes": bytes
    })))
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

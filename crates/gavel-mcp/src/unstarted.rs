//! Why a child could not be started: which part of its entry is at fault, and what to do about it. The system reports a
//! missing program and a missing directory in the same way.

use std::io::{self, ErrorKind};
use std::path::Path;

/// Programs that start servers, and the software they belong to.
const COME_FROM: [(&str, &str); 9] = [
    ("npx", "Node.js"),
    ("npm", "Node.js"),
    ("node", "Node.js"),
    ("bunx", "Bun"),
    ("deno", "Deno"),
    ("uvx", "uv"),
    ("uv", "uv"),
    ("docker", "Docker"),
    ("podman", "Podman"),
];

/// A message for an operator. `path` is the variable `PATH` of the child.
pub(super) fn words(command: &str, cwd: Option<&Path>, path: Option<&str>, error: &io::Error) -> String {
    if let Some(cwd) = cwd
        && !cwd.is_dir()
    {
        let what = if cwd.exists() {
            "is not a directory"
        } else {
            "does not exist"
        };
        return format!("its `cwd`, {}, {what}", cwd.display());
    }
    let is_path = command.contains('/');
    match error.kind() {
        ErrorKind::NotFound if !is_path => {
            let from = COME_FROM.iter().find(|(program, _)| *program == command);
            let install = from.map(|(_, from)| format!("install {from}, or ")).unwrap_or_default();
            let place = path.map_or_else(|| "there is no PATH".to_owned(), |path| format!("PATH is {path}"));
            format!("its `command`, `{command}`, was not found ({place}); {install}give its whole path")
        }
        ErrorKind::NotFound if cwd.map_or_else(|| Path::new(command).exists(), |cwd| cwd.join(command).exists()) => {
            format!(
                "its `command`, `{command}`, could not be started: the interpreter that its first line names does not exist"
            )
        }
        ErrorKind::NotFound => format!("its `command`, `{command}`, does not exist"),
        ErrorKind::PermissionDenied => format!("its `command`, `{command}`, may not be executed"),
        _ => format!("its `command`, `{command}`, could not be started: {error}"),
    }
}

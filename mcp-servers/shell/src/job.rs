//! One command and its end, as the server, the supervisor and the launcher hand them to each other in files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use strum::Display;

use crate::launcher::Launcher;

/// One command with all that it needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) command: String,
    /// Of the arguments and the session. A call with the same key and another digest is another call.
    pub(crate) digest: String,
    /// Whether the result is kept for further attempts.
    pub(crate) has_key: bool,
    /// The directory of the session.
    pub(crate) session: PathBuf,
    /// The command's user and group, if the server runs as root.
    pub(crate) user: Option<u32>,
    /// In seconds.
    pub(crate) timeout: u32,
    pub(crate) limits: Limits,
    pub(crate) sandbox: Sandbox,
    pub(crate) launcher: Launcher,
}

/// What one command may use.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// In MiB: of all its processes with control groups, else of each.
    pub(crate) memory: u64,
    /// Processes and threads.
    pub(crate) pids: u64,
    /// In MiB: of the session's working directory, and of each file.
    pub(crate) disk: u64,
}

/// What contains a command, and what it may reach nevertheless.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sandbox {
    pub(crate) level: Level,
    /// The program `bwrap`, if it is the level.
    pub(crate) bwrap: Option<PathBuf>,
    /// Whether control groups work.
    pub(crate) has_cgroups: bool,
    pub(crate) network: bool,
    /// Readable beyond `/usr`.
    pub(crate) read_only: Vec<PathBuf>,
}

/// What contains a command. It never changes while the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Level {
    /// Namespaces of its own, by bubblewrap, and a filter of system calls.
    Bwrap,
    /// The kernel's Landlock, and a filter of system calls.
    Landlock,
    /// Nothing but the limits of resources.
    Host,
}

impl Job {
    /// The only directory that the command may write to, as this process sees it.
    pub(crate) fn work(&self) -> PathBuf {
        self.session.join("work")
    }

    /// The same directory, as the command sees it.
    pub(crate) fn home(&self) -> PathBuf {
        match self.sandbox.level {
            Level::Bwrap => PathBuf::from("/work"),
            Level::Landlock | Level::Host => self.work(),
        }
    }

    /// The whole environment of the command.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 5] {
        [
            ("PATH", PathBuf::from("/usr/local/bin:/usr/bin:/bin")),
            ("HOME", self.home()),
            ("LANG", PathBuf::from("C.UTF-8")),
            ("TERM", PathBuf::from("dumb")),
            ("CI", PathBuf::from("1")),
        ]
    }
}

/// The end of a command, as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ended {
    #[serde(flatten)]
    pub(crate) result: CommandResult,
    /// In bytes: what the working directory had in it when its limit ended the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) disk_full: Option<u64>,
}

impl Ended {
    /// The end of a command of which nothing is known but that it began.
    pub(crate) fn without_output(level: Level) -> Self {
        Self {
            result: CommandResult {
                stdout: String::new(),
                stderr: String::new(),
                exit_code: None,
                signal: None,
                timed_out: false,
                interrupted: true,
                truncated: false,
                sandbox: level,
            },
            disk_full: None,
        }
    }
}

/// The tool's result.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandResult {
    /// The standard output. What is not UTF-8 is replaced.
    pub(crate) stdout: String,
    /// The standard error.
    pub(crate) stderr: String,
    /// null if the command was ended by a signal.
    pub(crate) exit_code: Option<i32>,
    /// The signal that ended the command, such as SIGKILL.
    pub(crate) signal: Option<String>,
    /// Whether the command was ended since its time had passed.
    pub(crate) timed_out: bool,
    /// Whether the command was ended by a cancellation, or with the server. Its output is then a part.
    pub(crate) interrupted: bool,
    /// Whether a part of the output is left out. The text says how many bytes.
    pub(crate) truncated: bool,
    /// What contained the command.
    pub(crate) sandbox: Level,
}

/// Writes a file as a whole: it has its content from the first moment on.
pub(crate) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let draft = path.with_extension("draft");
    let mut file = File::create(&draft)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_data()?;
    fs::rename(draft, path)
}

/// Reads a file, if it exists.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error means that the disk is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

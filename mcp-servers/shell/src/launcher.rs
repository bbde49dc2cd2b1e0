//! How this program is executed again.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The part that starts the command, watches it and ends it.
pub(crate) const SUPERVISE: &str = "supervise";
/// The part that becomes the command.
pub(crate) const BECOME: &str = "become";

/// The program and its first arguments, which lead to [`crate::launch`]. A host with its own command line adds a hidden
/// command to it, and names it here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Launcher {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Launcher {
    /// The running program, even if another has its path now, or if the command's user may not enter its directory.
    pub fn this_program(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self::new("/proc/self/exe", arguments)
    }

    /// A program by its absolute path.
    pub fn new(program: impl Into<PathBuf>, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
        }
    }

    /// The program with these arguments, and without anything of this process's environment.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear();
        command
    }
}

//! How this program is executed again, and what it then does.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use serde::{Deserialize, Serialize};

use crate::{restrict, supervise};

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

/// The arguments of the hidden command that the [`Launcher`](crate::Launcher) leads to.
#[derive(Debug, Clone, clap::Args)]
pub struct Launch {
    /// The part to play, and the files for it
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Plays the part. Call it before the process starts a thread: restrictions are those of one thread. For its last part
/// it does not return, as the process becomes the command.
pub fn launch(launch: Launch) -> ExitCode {
    let mut arguments = launch.arguments.into_iter();
    let part = arguments.next().unwrap_or_default();
    let Some(call) = arguments.next().map(PathBuf::from) else {
        eprintln!("this command is for the shell server's own use");
        return ExitCode::from(2);
    };
    if part == SUPERVISE {
        return supervise::supervise(&call);
    }
    if part == BECOME {
        return restrict::become_command(&call, arguments.map(PathBuf::from).collect());
    }
    eprintln!("there is no such part: {}", part.display());
    ExitCode::from(2)
}

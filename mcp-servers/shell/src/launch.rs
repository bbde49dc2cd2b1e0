//! What this program does when the server executes it again.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::launcher::{BECOME, SUPERVISE};
use crate::{restrict, supervise};

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

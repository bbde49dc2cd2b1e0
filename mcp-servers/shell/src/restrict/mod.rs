//! The last step before a command: this process joins the command's control groups, takes on its limits, restricts
//! itself to the level, and becomes the command.

mod bwrap;
mod landlock;
mod limits;
mod seccomp;
mod system;

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context;
use rustix::fs::Mode;
use rustix::process::{Signal, set_parent_process_death_signal, umask};
use rustix::thread::set_no_new_privs;

use crate::cgroup;
use crate::job::{Job, read};
use crate::level::Level;
use crate::root::{FAILED, JOB};

/// The shell's own code for a command that cannot be executed.
const CANNOT_EXECUTE: u8 = 126;

/// Becomes the command of the call. Returns only if that is not possible; why is then in a file of the call.
pub(crate) fn become_command(call: &Path, groups: Vec<PathBuf>) -> ExitCode {
    let error = match File::create(call.join(FAILED)) {
        Err(error) => anyhow::Error::from(error),
        Ok(mut failed) => {
            let error = match prepare(call, &groups) {
                Ok(mut command) => {
                    anyhow::Error::from(command.exec()).context("the command's shell cannot be executed")
                }
                Err(error) => error,
            };
            let _ = write!(failed, "{error:#}");
            error
        }
    };
    eprintln!("gavel-mcp-shell: the command was not run: {error:#}");
    ExitCode::from(CANNOT_EXECUTE)
}

fn prepare(call: &Path, groups: &[PathBuf]) -> anyhow::Result<Command> {
    let job: Job = read(&call.join(JOB))?.context("there is no job")?;
    for group in groups {
        cgroup::join(group).with_context(|| format!("cannot join {}", group.display()))?;
    }
    umask(Mode::WGRP | Mode::WOTH);
    limits::apply(&job).context("a limit cannot be set")?;
    set_no_new_privs(true)?;
    if job.user.is_none() {
        // With a user of its own, the command cannot kill the supervisor.
        set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    let mut command = match job.sandbox.level {
        Level::Bwrap => bwrap::command(&job)?,
        Level::Landlock => {
            landlock::restrict(&job)?;
            seccomp::apply(&job)?;
            shell(&job)
        }
        Level::Host => shell(&job),
    };
    if let Some(user) = job.user {
        // Also drops all other groups and, with the user, all capabilities.
        command.uid(user).gid(user);
    }
    limits::apply_last(&job).context("a limit cannot be set")?;
    Ok(command)
}

fn shell(job: &Job) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "--", &job.command]);
    command.env_clear().envs(job.environment()).current_dir(job.work());
    command
}

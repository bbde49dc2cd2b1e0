//! The last step before a command: this process joins the command's control groups, takes on its limits, restricts
//! itself to the level, and becomes the command.

mod bwrap;
mod landlock;
mod seccomp;

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, getuid, set_parent_process_death_signal, setrlimit, umask};
use rustix::thread::set_no_new_privs;

use crate::job::{Job, Level, read};
use crate::root::{FAILED, JOB};
use crate::{cgroup, processes};

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
    limit(&job).context("a limit cannot be set")?;
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
    limit_last(&job).context("a limit cannot be set")?;
    Ok(command)
}

fn shell(job: &Job) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "--", &job.command]);
    command.env_clear().envs(job.environment()).current_dir(job.work());
    command
}

const OPEN_FILES: u64 = 1024;

/// Sets the limits for this process and what it becomes.
fn limit(job: &Job) -> rustix::io::Result<()> {
    let limits = job.limits;
    set(Resource::Core, 0)?;
    set(Resource::Nofile, OPEN_FILES)?;
    set(Resource::Nproc, limits.pids.saturating_add(others(job)))?;
    Ok(())
}

/// Sets the limit of each file, and that of the memory of each process, which is for want of control groups. This
/// process may write and use more than the command may, so they come last.
fn limit_last(job: &Job) -> rustix::io::Result<()> {
    set(Resource::Fsize, job.limits.disk << 20)?;
    match job.sandbox.has_cgroups {
        true => Ok(()),
        false => set(Resource::As, job.limits.memory << 20),
    }
}

/// The limit of processes counts all of the user's. A user that is not the command's own may have others.
fn others(job: &Job) -> u64 {
    match job.user {
        Some(_) => 0,
        None => {
            let own = getuid().as_raw();
            let all = processes::all();
            all.iter()
                .filter(|process| process.user == own)
                .map(|process| process.threads)
                .sum()
        }
    }
}

/// Never above what this process may have.
fn set(resource: Resource, limit: u64) -> rustix::io::Result<()> {
    let limit = getrlimit(resource).maximum.map_or(limit, |maximum| maximum.min(limit));
    let both = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    setrlimit(resource, both)
}

/// Directories with programs. On most systems all but the first are links into it.
const PROGRAMS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// What the programs of `/usr` need beyond it: links of Debian's `/usr/bin`, and where libraries are.
const FILES: [&str; 4] = [
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
];

/// What they need to find hosts and to check their certificates.
const NETWORK: [&str; 8] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
];

/// The files and directories of `/etc` that can be read, as far as they exist.
fn system_files(network: bool) -> impl Iterator<Item = &'static Path> {
    let network = network.then_some(NETWORK).into_iter().flatten();
    FILES
        .into_iter()
        .chain(network)
        .map(Path::new)
        .filter(|path| path.exists())
}

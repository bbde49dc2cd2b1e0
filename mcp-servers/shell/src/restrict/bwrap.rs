//! The command line of bubblewrap.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::fd::IntoRawFd;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use rustix::fs::{MemfdFlags, memfd_create};

use super::{PROGRAMS, seccomp, system_files};
use crate::job::Job;

/// The program that runs the command in namespaces of its own.
pub(super) fn command(job: &Job) -> anyhow::Result<Command> {
    let program = job.sandbox.bwrap.as_ref().context("bubblewrap is not installed")?;
    let mut command = Command::new(program);
    command.env_clear().current_dir("/");
    command.args(["--unshare-all", "--unshare-user", "--disable-userns"]);
    if job.sandbox.network {
        command.arg("--share-net");
    }
    command.args(["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]);
    for (name, value) in job.environment() {
        command.args([OsStr::new("--setenv"), OsStr::new(name), value.as_os_str()]);
    }
    for path in PROGRAMS.map(Path::new) {
        match fs::read_link(path) {
            Ok(target) => {
                command.arg("--symlink").arg(target).arg(path);
            }
            Err(_) if path.exists() => read_only(&mut command, path),
            Err(_) => {}
        }
    }
    system_files(job.sandbox.network).for_each(|path| read_only(&mut command, path));
    command.args(["--proc", "/proc", "--dev", "/dev"]);
    // What is in them is in memory.
    let memory = job.limits.memory << 20;
    for (path, size) in [("/dev/shm", memory / 4), ("/tmp", memory / 2)] {
        command.args(["--size", &size.to_string(), "--tmpfs", path]);
    }
    job.sandbox
        .read_only
        .iter()
        .for_each(|path| read_only(&mut command, path));
    command.arg("--bind").arg(job.work()).arg("/work");
    command.args(["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/work"]);
    command.args(["--seccomp", &filter(job)?.to_string()]);
    command.args(["--", "/bin/sh", "-c", "--", &job.command]);
    Ok(command)
}

fn read_only(command: &mut Command, path: &Path) {
    command.arg("--ro-bind").arg(path).arg(path);
}

/// A file with the filter, which bubblewrap inherits.
fn filter(job: &Job) -> anyhow::Result<i32> {
    // Without the flag that would close it.
    let mut file = File::from(memfd_create("filter", MemfdFlags::empty())?);
    file.write_all(&seccomp::bytes(job)?)?;
    file.rewind()?;
    Ok(file.into_raw_fd())
}

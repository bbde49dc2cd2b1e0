//! The kernel's limits for processes and files.

use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};

use crate::job::Job;
use crate::processes;

const OPEN_FILES: u64 = 1024;

/// Sets the limits for this process and what it becomes.
pub(super) fn apply(job: &Job) -> rustix::io::Result<()> {
    let limits = job.limits;
    set(Resource::Core, 0)?;
    set(Resource::Nofile, OPEN_FILES)?;
    set(Resource::Nproc, limits.pids.saturating_add(others(job)))?;
    Ok(())
}

/// Sets the limit of each file, and that of the memory of each process, which is for want of control groups. This
/// process may write and use more than the command may, so they come last.
pub(super) fn apply_last(job: &Job) -> rustix::io::Result<()> {
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

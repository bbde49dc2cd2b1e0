//! The process between the server and the command.
//!
//! Its standard input is a pipe from the server: when it closes, because the call was cancelled or the server died, its
//! command ends. Its standard output is the lock of the call. It is the subreaper of all that the command starts, so the
//! command has ended when the supervisor has no child any more.

mod capture;
mod disk;
mod events;

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use gavel_mcp_base::text;
use rustix::process::{WaitStatus, getpid, set_child_subreaper, setsid};

use crate::cgroup::{self, Group};
use crate::job::{CommandResult, Ended, Job, is_full, read, write};
use crate::launcher::BECOME;
use crate::processes::Family;
use crate::root::{BEGUN, FAILED, JOB, LOCK, PARTIAL, RESULT, try_lock};
use capture::Shared;
use disk::Disk;
use events::Event;

/// How a supervisor ends whose command has no result.
pub(crate) mod exit {
    /// Another command runs in the session. This one was not run.
    pub(crate) const BUSY: u8 = 75;
    /// The command could not run; why is in a file.
    pub(crate) const FAILED: u8 = 70;
    /// The disk is full.
    pub(crate) const DISK_FULL: u8 = 74;
}

/// How long another command of the session is waited for: after a cancellation it needs a moment to end.
const WAIT_FOR_SESSION: Duration = Duration::from_secs(3);
/// How often limits are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How often the output is kept while the command runs.
const KEEP: Duration = Duration::from_millis(500);
/// How long the end of processes, and then of the streams, is waited for.
const END: Duration = Duration::from_secs(10);
const DRAIN: Duration = Duration::from_secs(1);

/// Runs one command to its end and keeps its result.
pub(crate) fn supervise(call: &Path) -> ExitCode {
    match carry_out(call) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("gavel-mcp-shell: the supervisor of a command failed: {error:#}");
            let is_full = error.downcast_ref::<io::Error>().is_some_and(is_full);
            ExitCode::from(if is_full { exit::DISK_FULL } else { 1 })
        }
    }
}

fn carry_out(call: &Path) -> anyhow::Result<ExitCode> {
    // Without a terminal, and without what a signal to the server's process group ends.
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    let mut job: Job = read(&call.join(JOB))?.context("there is no job")?;
    let Some(_session) = session(&job)? else {
        return Ok(ExitCode::from(exit::BUSY));
    };
    let group = job
        .sandbox
        .has_cgroups
        .then(|| Group::create(&cgroup::name(call), job.limits))
        .transpose()?;
    let mut family = Family {
        ancestor: None,
        user: job.user,
        group,
    };
    // What an earlier supervisor of this session left when it was killed.
    end(&family, || family.members().is_empty());
    family.ancestor = i32::try_from(std::process::id()).ok();
    let disk = Disk::open(&job.work(), job.limits.disk << 20)?;
    if !disk.is_measured() {
        job.limits.disk = 0;
        write(&call.join(JOB), &job)?;
    }
    let ended = Run::start(call, &job, &family, disk)?.finish();
    if let Some(group) = family.group {
        group.remove();
    }
    if fs::metadata(call.join(FAILED)).is_ok_and(|found| found.len() > 0) {
        return Ok(ExitCode::from(exit::FAILED));
    }
    write(&call.join(RESULT), &ended)?;
    // The result has it.
    let _ = fs::remove_file(call.join(PARTIAL));
    Ok(ExitCode::SUCCESS)
}

/// The session's lock; `None` if another command holds it.
fn session(job: &Job) -> io::Result<Option<File>> {
    let begin = Instant::now();
    loop {
        let lock = try_lock(&job.session.join(LOCK))?;
        if lock.is_some() || begin.elapsed() > WAIT_FOR_SESSION {
            return Ok(lock);
        }
        thread::sleep(TICK);
    }
}

/// Ends all processes; returns when none is left, or after some time.
fn end(family: &Family, mut have_ended: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !have_ended() && begin.elapsed() < END {
        family.end();
    }
}

/// A running command.
struct Run<'a> {
    call: &'a Path,
    job: &'a Job,
    family: &'a Family,
    disk: Disk,
    stdout: Shared,
    stderr: Shared,
    events: Receiver<Event>,
    begin: Instant,
    kept: (Instant, u64),
    disk_full: Option<u64>,
    end: End,
}

#[derive(Debug, Default)]
struct End {
    status: Option<WaitStatus>,
    all_ended: bool,
    streams_ended: usize,
    timed_out: bool,
    interrupted: bool,
}

impl<'a> Run<'a> {
    fn start(call: &'a Path, job: &'a Job, family: &'a Family, disk: Disk) -> anyhow::Result<Self> {
        let mut command = job.launcher.command();
        command
            .arg(BECOME)
            .arg(call)
            .args(family.group.iter().flat_map(Group::paths));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        File::create(call.join(BEGUN))?;
        let begin = Instant::now();
        let mut child = command.spawn().context("this program could not be executed again")?;
        let (sender, events) = channel();
        let stdout = events::read(child.stdout.take(), &sender)?;
        let stderr = events::read(child.stderr.take(), &sender)?;
        events::wait_for_all(&child, &sender)?;
        events::watch_server(sender)?;
        Ok(Self {
            call,
            job,
            family,
            disk,
            stdout,
            stderr,
            events,
            begin,
            kept: (begin, 0),
            disk_full: None,
            end: End::default(),
        })
    }

    fn finish(mut self) -> Ended {
        let timeout = Duration::from_secs(self.job.timeout.into());
        while self.end.status.is_none() {
            self.wait(TICK);
            if self.end.status.is_some() || self.end.interrupted {
                break;
            }
            self.end.timed_out = self.begin.elapsed() >= timeout;
            self.disk_full = self.disk.exceeded(|| self.family.members().into_iter().collect());
            if self.end.timed_out || self.disk_full.is_some() {
                break;
            }
            self.keep();
        }
        self.end_all();
        let filled = self.disk.settle();
        if self.disk_full.is_none() && !self.end.timed_out && !self.end.interrupted {
            self.disk_full = filled;
        }
        self.ended(self.end.interrupted)
    }

    /// Handles what happens within this time.
    fn wait(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            match self
                .events
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(Event::ServerGone) => self.end.interrupted = self.end.status.is_none(),
                Ok(Event::Ended(status)) => self.end.status = Some(status),
                Ok(Event::AllEnded) => self.end.all_ended = true,
                Ok(Event::StreamEnded) => self.end.streams_ended += 1,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
            if self.end.status.is_some() || self.end.interrupted {
                return;
            }
        }
    }

    /// Ends all processes, and reads what they have written.
    fn end_all(&mut self) {
        let begin = Instant::now();
        let was_interrupted = self.end.interrupted;
        if self.end.status.is_some() {
            // Most commands leave no process behind.
            self.wait(Duration::from_millis(5));
        }
        while !self.end.all_ended && begin.elapsed() < END {
            self.family.end();
            self.wait(Duration::from_millis(10));
        }
        let begin = Instant::now();
        while self.end.streams_ended < 2 && begin.elapsed() < DRAIN {
            self.wait(Duration::from_millis(10));
        }
        self.end.interrupted = was_interrupted;
    }

    /// Keeps the output until now, for the case that this process is killed.
    fn keep(&mut self) {
        let total =
            [&self.stdout, &self.stderr].map(|stream| stream.lock().unwrap_or_else(PoisonError::into_inner).total);
        let total = total[0] + total[1];
        if self.kept.0.elapsed() < KEEP || self.kept.1 == total {
            return;
        }
        self.kept = (Instant::now(), total);
        let mut partial = self.ended(true);
        partial.result.exit_code = None;
        // Without space, less is kept.
        let _ = write(&self.call.join(PARTIAL), &partial);
    }

    fn ended(&self, interrupted: bool) -> Ended {
        let text = |stream: &Shared| stream.lock().unwrap_or_else(PoisonError::into_inner).text();
        let ((stdout, stdout_cut), (stderr, stderr_cut)) = (text(&self.stdout), text(&self.stderr));
        Ended {
            result: CommandResult {
                stdout,
                stderr,
                exit_code: self.end.status.and_then(WaitStatus::exit_status),
                signal: self
                    .end
                    .status
                    .and_then(WaitStatus::terminating_signal)
                    .map(signal_name),
                timed_out: self.end.timed_out,
                interrupted,
                truncated: stdout_cut || stderr_cut,
                sandbox: self.job.sandbox.level,
            },
            disk_full: self.disk_full,
        }
    }
}

fn signal_name(number: i32) -> String {
    let name = usize::try_from(number).ok().and_then(text::signal);
    name.map_or_else(|| format!("signal {number}"), str::to_owned)
}

//! One call: whether it is a further attempt, and its supervisor.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gavel_mcp_base::{ToolError, key_reused, shares};
use sha2::{Digest, Sha256};
use tokio::process::Command;
use uuid::Uuid;

use crate::cgroup::{self, Group};
use crate::error::{self, Fault};
use crate::job::{Ended, Job, Limits, Sandbox, read, write};
use crate::launcher::{Launcher, SUPERVISE};
use crate::processes::Family;
use crate::root::{BEGUN, FAILED, JOB, LOCK, Owner, PARTIAL, RESULT, Root, try_lock};
use crate::supervise::exit;

/// Commands of one server at once.
pub(crate) const AT_ONCE: usize = 8;
/// What a supervisor may need beyond the command's own time.
const BEYOND: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);
const SWEEP: Duration = Duration::from_secs(3600);

/// A command that is to run.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) command: String,
    /// In seconds.
    pub(crate) timeout: u32,
    /// Whose files the command has: those of a session, else of a user, else of this process.
    pub(crate) session: Option<String>,
    pub(crate) owner: Owner,
    pub(crate) key: Option<String>,
    /// Of the tool's arguments.
    pub(crate) digest: String,
}

/// What runs commands.
#[derive(Debug)]
pub(crate) struct Runner {
    root: Arc<Root>,
    launcher: Launcher,
    limits: Limits,
    /// The users of the commands that run.
    running: Mutex<Vec<Option<String>>>,
    swept: Mutex<Instant>,
}

/// The place of a command among those that run, until this is dropped.
struct Place<'a>(&'a Mutex<Vec<Option<String>>>, Option<String>);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = running.iter().position(|user| *user == self.1) {
            running.swap_remove(at);
        }
    }
}

impl Runner {
    pub(crate) fn new(root: Root, launcher: Launcher, limits: Limits) -> Self {
        Self {
            root: Arc::new(root),
            launcher,
            limits,
            running: Mutex::default(),
            swept: Mutex::new(Instant::now()),
        }
    }

    pub(crate) fn root(&self) -> &Arc<Root> {
        &self.root
    }

    /// Runs the command, or returns what its first attempt has left. If this future is dropped, the command ends.
    pub(crate) async fn run(&self, request: Request, sandbox: &Sandbox) -> Result<Ended, Fault> {
        self.sweep().await;
        let id = match &request.key {
            Some(key) => hex::encode(Sha256::digest(key))[..32].to_owned(),
            None => Uuid::now_v7().simple().to_string(),
        };
        let call = self.root.call(&id)?;
        let patience = Duration::from_secs(request.timeout.into()) + BEYOND;
        let lock = lock(&call, patience).await?.ok_or_else(error::attempt_runs)?;
        let digest = format!("{} {:?}", request.digest, request.session);
        if let Some(earlier) = read::<Job>(&call.join(JOB))? {
            if earlier.digest != digest {
                return Err(key_reused().into());
            }
            if let Some(ended) = finished(&call)? {
                return Ok(ended);
            }
            if call.join(BEGUN).exists() {
                return Ok(blocking(move || interrupted(&call, &earlier)).await??);
            }
        }
        let _place = self.take_place(request.owner.user.clone())?;
        let job = self.prepare(&request, digest, sandbox).await?;
        write(&call.join(JOB), &job)?;
        let ended = self.supervise(&call, lock, patience, &job).await;
        // With a key, another attempt may have the lock by now.
        if request.key.is_none() {
            let _ = fs::remove_dir_all(&call);
        }
        ended
    }

    fn take_place(&self, user: Option<String>) -> Result<Place<'_>, ToolError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let holders = running.iter().map(Option::as_deref);
        shares::check(AT_ONCE, user.as_deref(), holders).map_err(error::server_busy)?;
        running.push(user.clone());
        Ok(Place(&self.running, user))
    }

    async fn prepare(&self, request: &Request, digest: String, sandbox: &Sandbox) -> Result<Job, Fault> {
        let (root, session, owner) = (self.root.clone(), request.session.clone(), request.owner.clone());
        let (session, user) = blocking(move || root.session(session.as_deref(), &owner)).await??;
        Ok(Job {
            command: request.command.clone(),
            digest,
            has_key: request.key.is_some(),
            session,
            user,
            timeout: request.timeout,
            limits: self.limits,
            sandbox: sandbox.clone(),
            launcher: self.launcher.clone(),
        })
    }

    /// Starts the supervisor and waits for its end. It holds the lock as its standard output.
    async fn supervise(&self, call: &Path, lock: File, patience: Duration, job: &Job) -> Result<Ended, Fault> {
        let mut command = Command::from(self.launcher.command());
        command
            .arg(SUPERVISE)
            .arg(call)
            .stdin(Stdio::piped())
            .stdout(lock)
            .stderr(Stdio::inherit());
        let mut supervisor = command.spawn()?;
        drop(command);
        // Open until this call has ended. When it closes, the command ends.
        let _lifeline = supervisor.stdin.take();
        let status = match tokio::time::timeout(patience, supervisor.wait()).await {
            Ok(status) => status?,
            Err(_) => {
                tracing::error!(call = %call.display(), "a supervisor did not end in time and is killed");
                supervisor.start_kill()?;
                supervisor.wait().await?
            }
        };
        if let Some(ended) = finished(call)? {
            return Ok(ended);
        }
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        if code == Some(exit::BUSY) {
            return Err(error::session_busy().into());
        }
        if code == Some(exit::FAILED) {
            let _ = fs::remove_file(call.join(BEGUN));
            let why = fs::read_to_string(call.join(FAILED)).unwrap_or_default();
            return Err(Fault::Failed(anyhow::Error::msg(why)));
        }
        let has_begun = call.join(BEGUN).exists();
        if code == Some(exit::DISK_FULL) {
            return Err(error::no_space(has_begun).into());
        }
        if !has_begun {
            let words = format!("the supervisor of a command failed with {status}; its error is in the log");
            return Err(Fault::Failed(anyhow::Error::msg(words)));
        }
        let (call, job) = (call.to_owned(), job.clone());
        Ok(blocking(move || interrupted(&call, &job)).await??)
    }

    /// Removes old results now and then.
    async fn sweep(&self) {
        let is_due = {
            let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
            let is_due = swept.elapsed() >= SWEEP;
            if is_due {
                *swept = Instant::now();
            }
            is_due
        };
        if is_due {
            let root = self.root.clone();
            let _ = blocking(move || sweep(&root)).await;
        }
    }
}

/// Waits for the lock of a call, which another attempt may hold; `None` if it still does in the end.
async fn lock(call: &Path, patience: Duration) -> io::Result<Option<File>> {
    let begin = Instant::now();
    loop {
        let lock = try_lock(&call.join(LOCK))?;
        if lock.is_some() || begin.elapsed() >= patience {
            return Ok(lock);
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn finished(call: &Path) -> io::Result<Option<Ended>> {
    read(&call.join(RESULT))
}

/// The end of a command whose supervisor died: what was kept of it. What still runs of it ends.
fn interrupted(call: &Path, job: &Job) -> io::Result<Ended> {
    if let Some(_session) = try_lock(&job.session.join(LOCK))? {
        let family = Family {
            ancestor: None,
            user: job.user,
            group: Group::left(&cgroup::name(call)),
        };
        let begin = Instant::now();
        while !family.members().is_empty() && begin.elapsed() < BEYOND {
            family.end();
        }
        if let Some(group) = family.group {
            group.remove();
        }
    }
    let ended = read(&call.join(PARTIAL))?.unwrap_or_else(|| Ended::without_output(job.sandbox.level));
    write(&call.join(RESULT), &ended)?;
    Ok(ended)
}

/// Removes old results and sessions. What a supervisor left that was killed ends.
pub(crate) fn sweep(root: &Root) {
    for call in root.calls() {
        if let Err(error) = recover(&call) {
            tracing::warn!(call = %call.display(), %error, "a call could not be recovered");
        }
    }
    root.sweep();
}

fn recover(call: &Path) -> io::Result<()> {
    if !call.join(BEGUN).exists() || call.join(RESULT).exists() {
        return Ok(());
    }
    let Some(_lock) = try_lock(&call.join(LOCK))? else {
        return Ok(());
    };
    match read::<Job>(&call.join(JOB))? {
        Some(job) => interrupted(call, &job).map(drop),
        None => Ok(()),
    }
}

/// Runs work that blocks on a thread for it.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
    Ok(tokio::task::spawn_blocking(work).await?)
}

/// The program with this name, where the system has programs.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from));
    let mut found = directories
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name));
    found.find(|program| program.is_file())
}

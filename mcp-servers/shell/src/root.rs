//! The directory of this server's files:
//!
//! ```text
//! calls/ID/       one call: lock, job.json, begun, partial.json, result.json, failed
//! sessions/NAME/  one session: lock, owner.json, work/, which its commands may write to
//! ```

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use gavel_mcp_base::{Moment, shares};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::{Fault, too_many_sessions};
use crate::job::{Job, read, write};
use crate::users::{Users, check_reachable};

/// How long the result of a call is kept.
const KEEP_CALLS: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long the files of a session are kept after its last command.
const KEEP_SESSIONS: Duration = Duration::from_secs(14 * 24 * 3600);
/// A directory without a job belongs to a call that begins.
const KEEP_EMPTY: Duration = Duration::from_secs(3600);

/// The files of a call.
pub(crate) const LOCK: &str = "lock";
pub(crate) const JOB: &str = "job.json";
/// There from just before the command runs.
pub(crate) const BEGUN: &str = "begun";
/// The output until now.
pub(crate) const PARTIAL: &str = "partial.json";
pub(crate) const RESULT: &str = "result.json";
/// Why the command could not run at all.
pub(crate) const FAILED: &str = "failed";

const WORK: &str = "work";
const OWNER: &str = "owner.json";
const ALIVE: &str = "alive";
/// The first letter of the sessions that outlive a process.
const KEPT: char = 's';
/// How long after its last command the files of a session without a deadline stay, even without room for others.
const IDLE: Duration = Duration::from_secs(60);
/// The first letter of the sessions that a process has for calls without a session.
const OF_PROCESS: char = 'p';

/// The directory, open for one process.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    users: Option<Users>,
    /// How many sessions may have files at once.
    sessions: usize,
    /// The session for calls without one, and its lock.
    own: (String, File),
}

/// Whose session it is, and until when its files are needed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) user: Option<String>,
    /// In microseconds since 1970; `None` if the caller does not say.
    pub(crate) until: Option<i64>,
}

impl Root {
    /// Makes the directory if it does not exist. `users` are those for commands if this process is root.
    pub(crate) fn open(path: &Path, users: Option<Users>, sessions: usize) -> anyhow::Result<Self> {
        let what = || format!("SHELL_ROOT: {} cannot be used", path.display());
        // Commands run as other users, who come through without seeing the names of others.
        let mode = if users.is_some() { 0o711 } else { 0o700 };
        directory(path, mode).with_context(what)?;
        let path = path.canonicalize().with_context(what)?;
        directory(&path.join("calls"), 0o700).with_context(what)?;
        directory(&path.join("sessions"), mode).with_context(what)?;
        if users.is_some() {
            check_reachable(&path.join("sessions/x"))?;
        }
        let name = format!("{OF_PROCESS}-{}", Uuid::now_v7().simple());
        let own = path.join("sessions").join(&name);
        directory(&own, mode).with_context(what)?;
        let alive = try_lock(&own.join(ALIVE)).with_context(what)?.with_context(what)?;
        Ok(Self {
            path,
            users,
            sessions,
            own: (name, alive),
        })
    }

    /// Whether commands run as users of their own.
    pub(crate) fn has_users(&self) -> bool {
        self.users.is_some()
    }

    /// The directory of a call, which is made if it does not exist.
    pub(crate) fn call(&self, id: &str) -> io::Result<PathBuf> {
        let path = self.path.join("calls").join(id);
        directory(&path, 0o700)?;
        Ok(path)
    }

    /// The directories of all calls that are kept.
    pub(crate) fn calls(&self) -> Vec<PathBuf> {
        entries(&self.path.join("calls"))
    }

    /// The directory of a session and the user of its commands. It is made if it does not exist.
    pub(crate) fn session(&self, session: Option<&str>, owner: &Owner) -> Result<(PathBuf, Option<u32>), Fault> {
        let sessions = self.path.join("sessions");
        let name = match session {
            None => self.own.0.clone(),
            Some(session) => format!("{KEPT}-{}", &hex::encode(Sha256::digest(session))[..32]),
        };
        let path = sessions.join(&name);
        // Two servers with this directory choose one after the other.
        let turn = File::create(sessions.join(LOCK))?;
        turn.lock()?;
        if session.is_some() && !path.exists() {
            self.make_room(owner.user.as_deref())?;
        }
        directory(&path, if self.users.is_some() { 0o711 } else { 0o700 })?;
        if read(&path.join(OWNER))?.as_ref() != Some(owner) {
            write(&path.join(OWNER), owner)?;
        }
        let work = path.join(WORK);
        directory(&work, 0o700)?;
        let Some(users) = &self.users else {
            return Ok((path, None));
        };
        let owner = fs::metadata(&work)?.uid();
        if owner != 0 {
            return Ok((path, Some(owner)));
        }
        let user = users.choose(&path.to_string_lossy(), |id| self.owners().any(|owner| owner == id))?;
        std::os::unix::fs::chown(&work, Some(user), Some(user))?;
        Ok((path, Some(user)))
    }

    /// Removes sessions that have ended, the longest unused first, until there is room for another one of this user.
    fn make_room(&self, user: Option<&str>) -> Result<(), Fault> {
        let mut kept = Vec::new();
        for path in entries(&self.path.join("sessions")) {
            if is_of(KEPT, &path) {
                kept.push((
                    age(&path.join(LOCK)),
                    read::<Owner>(&path.join(OWNER))?.unwrap_or_default(),
                    path,
                ));
            }
        }
        kept.sort_by_key(|(age, ..)| std::cmp::Reverse(*age));
        let now = Moment::now().0;
        while let Err(full) = shares::check(
            self.sessions,
            user,
            kept.iter().map(|(_, owner, _)| owner.user.as_deref()),
        ) {
            let can_go = kept.iter().position(|(age, owner, path)| {
                let has_ended = owner.until.map_or(*age > IDLE, |until| until < now);
                has_ended && full.scope.has(user, owner.user.as_deref()) && matches!(remove_unused(path), Ok(true))
            });
            let gone = can_go.ok_or_else(|| too_many_sessions(full))?;
            kept.remove(gone);
        }
        Ok(())
    }

    fn owners(&self) -> impl Iterator<Item = u32> {
        let sessions = entries(&self.path.join("sessions")).into_iter();
        sessions.filter_map(|path| Some(fs::metadata(path.join(WORK)).ok()?.uid()))
    }

    /// A file that every user may read, outside of the directories of sessions.
    pub(crate) fn secret(&self, word: &str) -> anyhow::Result<PathBuf> {
        let path = self.path.join(format!("probe-{word}"));
        let what = || format!("{} cannot be written", path.display());
        fs::write(&path, format!("canary {word}\n")).with_context(what)?;
        fs::set_permissions(&path, Permissions::from_mode(0o644)).with_context(what)?;
        Ok(path)
    }

    /// Removes results and sessions that are not needed any more, and what processes that died have left.
    pub(crate) fn sweep(&self) {
        for path in entries(&self.path.join("calls")) {
            if let Err(error) = sweep_call(&path) {
                tracing::warn!(path = %path.display(), %error, "a call's files could not be removed");
            }
        }
        for path in entries(&self.path.join("sessions")) {
            if let Err(error) = self.sweep_session(&path) {
                tracing::warn!(path = %path.display(), %error, "a session's files could not be removed");
            }
        }
    }

    fn sweep_session(&self, path: &Path) -> io::Result<()> {
        if !path.is_dir() || path.ends_with(&self.own.0) {
            return Ok(());
        }
        if !is_of(OF_PROCESS, path) && age(&path.join(LOCK)) < KEEP_SESSIONS {
            return Ok(());
        }
        remove_unused(path).map(drop)
    }
}

/// Whether the name of a session begins with this letter.
fn is_of(letter: char, path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with(letter))
}

/// Removes a session that no process uses. Returns whether it did.
fn remove_unused(path: &Path) -> io::Result<bool> {
    let (Some(_alive), Some(_lock)) = (try_lock(&path.join(ALIVE))?, try_lock(&path.join(LOCK))?) else {
        return Ok(false);
    };
    fs::remove_dir_all(path)?;
    Ok(true)
}

impl Drop for Root {
    fn drop(&mut self) {
        // A supervisor may still be at work there; then a later start removes it.
        let path = self.path.join("sessions").join(&self.own.0);
        if matches!(try_lock(&path.join(LOCK)), Ok(Some(_))) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

fn sweep_call(path: &Path) -> io::Result<()> {
    let job = read::<Job>(&path.join(JOB)).unwrap_or_default();
    let keep = match &job {
        None => KEEP_EMPTY,
        Some(job) if job.has_key => KEEP_CALLS,
        Some(_) => Duration::ZERO,
    };
    if age(path) < keep {
        return Ok(());
    }
    match try_lock(&path.join(LOCK))? {
        Some(_lock) => fs::remove_dir_all(path),
        None => Ok(()),
    }
}

/// An exclusive lock, which is held as long as the file is open here or in a process that inherited it; `None` if
/// another process holds it.
pub(crate) fn try_lock(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().create(true).truncate(true).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// A directory with this mode.
fn directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    let current = fs::metadata(path)?;
    // A session's working directory belongs to its user.
    if current.permissions().mode() & 0o7777 != mode && current.uid() == rustix::process::geteuid().as_raw() {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn entries(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// How long ago the file was changed; zero if there is none.
fn age(path: &Path) -> Duration {
    let changed = fs::symlink_metadata(path).and_then(|found| found.modified());
    let age = changed
        .ok()
        .and_then(|changed| SystemTime::now().duration_since(changed).ok());
    age.unwrap_or_default()
}

/// Checks that SHELL_ROOT is not what commands may read.
pub(crate) fn check_not_readable(root: &Path) -> anyhow::Result<()> {
    ensure!(
        !root.starts_with("/usr"),
        "SHELL_ROOT must not be below /usr, which commands can read"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_apart_and_their_names_cannot_leave_the_directory() {
        let temporary = tempfile::tempdir().expect("a directory");
        let root = Root::open(temporary.path(), None, 64).expect("opens");
        let session = |name: &str| root.session(Some(name), &Owner::default()).expect("a session").0;
        assert_eq!(session("a"), session("a"));
        assert_ne!(session("a"), session("b"));
        let outside = session("../../x");
        assert!(outside.starts_with(root.path.join("sessions")) && outside.join(WORK).is_dir());
        assert!(outside.components().all(|part| part != std::path::Component::ParentDir));
    }

    #[test]
    fn a_sweep_removes_what_a_dead_process_left_and_keeps_the_rest() {
        let temporary = tempfile::tempdir().expect("a directory");
        let root = Root::open(temporary.path(), None, 64).expect("opens");
        let other = Root::open(temporary.path(), None, 64).expect("opens");
        let (kept, _) = root.session(Some("a"), &Owner::default()).expect("a session");
        let (own, _) = root.session(None, &Owner::default()).expect("a session");
        let (alive, _) = other.session(None, &Owner::default()).expect("a session");
        let left = root.path.join("sessions/p-dead");
        fs::create_dir_all(left.join(WORK)).expect("a directory");
        let begins = root.call("x").expect("a call");
        root.sweep();
        assert!(kept.exists() && own.exists() && alive.exists() && begins.exists());
        assert!(!left.exists());
        drop(other);
        assert!(!alive.exists());
    }
}

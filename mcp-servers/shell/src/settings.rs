//! Combines the options; rejects those that are invalid.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use gavel_mcp_base::{existing, settings};

use crate::args::Args;
use crate::job::{Level, Limits};

/// More than any machine has, and little enough to count in bytes.
const MOST: u64 = 1 << 32;

/// Consistent settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `None` is the strictest that works.
    pub(crate) level: Option<Level>,
    pub(crate) root: PathBuf,
    pub(crate) read_only: Vec<PathBuf>,
    pub(crate) network: bool,
    /// In seconds.
    pub(crate) timeout: u32,
    pub(crate) limits: Limits,
    /// How many sessions may have files at once.
    pub(crate) sessions: usize,
}

impl TryFrom<Args> for Settings {
    type Error = anyhow::Error;

    fn try_from(args: Args) -> anyhow::Result<Self> {
        let level = [
            ("auto", None),
            ("bwrap", Some(Level::Bwrap)),
            ("landlock", Some(Level::Landlock)),
            ("host", Some(Level::Host)),
        ];
        let network = [("off", false), ("on", true)];
        let root = match settings::path(&args.root) {
            Some(path) => path.to_owned(),
            None => default_root()?,
        };
        ensure!(root.is_absolute(), "SHELL_ROOT must be an absolute path");
        Ok(Self {
            level: settings::choice("SHELL_SANDBOX", &args.sandbox, &level)?,
            read_only: read_only(args.read_only.as_deref().unwrap_or_default(), &root)?,
            root,
            network: settings::choice("SHELL_NETWORK", &args.network, &network)?,
            timeout: settings::number("SHELL_TIMEOUT_SECONDS", &args.timeout_seconds, 120, 1..=600)?,
            sessions: settings::number("SHELL_SESSIONS", &args.sessions, 64, 1..=10_000)?,
            limits: Limits {
                memory: settings::number("SHELL_MEMORY_MB", &args.memory_mb, 1024, 64..=MOST)?,
                pids: settings::number("SHELL_PIDS", &args.pids, 128, 16..=MOST)?,
                disk: settings::number("SHELL_DISK_MB", &args.disk_mb, 1024, 1..=MOST)?,
            },
        })
    }
}

/// Where a service of root, or a user's own program, keeps its state.
fn default_root() -> anyhow::Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/gavel/shell"));
    }
    let variable = |name| {
        std::env::var_os(name)
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
    };
    let state = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    let state = state.context("set SHELL_ROOT: there is neither XDG_STATE_HOME nor HOME")?;
    Ok(state.join("gavel/shell"))
}

/// Directories and files that exist, as they are without links. None may have the sessions' files in it.
fn read_only(paths: &OsStr, root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let root = existing(root);
    let paths = paths
        .as_bytes()
        .split(|byte| *byte == b':')
        .filter(|path| !path.is_empty());
    let checked = paths.map(|path| {
        let path = Path::new(OsStr::from_bytes(path));
        ensure!(
            path.is_absolute(),
            "SHELL_READ_ONLY: {} is not an absolute path",
            path.display()
        );
        let real = path
            .canonicalize()
            .with_context(|| format!("SHELL_READ_ONLY: {} cannot be read", path.display()))?;
        ensure!(
            !root.starts_with(&real) && !real.starts_with(&root),
            "SHELL_READ_ONLY: {} and SHELL_ROOT must not be in each other",
            path.display()
        );
        // At these places commands have something of their own.
        for own in ["/proc", "/dev", "/tmp", "/work", "/sys"] {
            ensure!(
                path != Path::new(own),
                "SHELL_READ_ONLY: {own} cannot be shared with commands"
            );
        }
        Ok(path.to_owned())
    });
    checked.collect()
}

//! Combines the options; rejects those that are invalid.

use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use gavel_mcp_base::existing;

use crate::args::Args;
use crate::job::Limits;
use crate::level::Level;

const TIMEOUT: u64 = 120;
const TIMEOUTS: RangeInclusive<u64> = 1..=600;
const MEMORY: u64 = 1024;
const PIDS: u64 = 128;
const DISK: u64 = 1024;
const SESSIONS: u64 = 64;
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
        let level = match args.sandbox.as_deref().unwrap_or_default() {
            "" | "auto" => None,
            "bwrap" => Some(Level::Bwrap),
            "landlock" => Some(Level::Landlock),
            "host" => Some(Level::Host),
            _ => bail!("SHELL_SANDBOX must be auto, bwrap, landlock or host"),
        };
        let network = match args.network.as_deref().unwrap_or_default() {
            "" | "off" => false,
            "on" => true,
            _ => bail!("SHELL_NETWORK must be off or on"),
        };
        let root = match args.root.as_deref().filter(|path| !path.is_empty()) {
            Some(path) => PathBuf::from(path),
            None => default_root()?,
        };
        ensure!(root.is_absolute(), "SHELL_ROOT must be an absolute path");
        let timeout = number(
            "SHELL_TIMEOUT_SECONDS",
            args.timeout_seconds.as_deref(),
            TIMEOUT,
            TIMEOUTS,
        )?;
        Ok(Self {
            level,
            read_only: read_only(args.read_only.as_deref().unwrap_or_default(), &root)?,
            root,
            network,
            timeout: u32::try_from(timeout)?,
            sessions: usize::try_from(number(
                "SHELL_SESSIONS",
                args.sessions.as_deref(),
                SESSIONS,
                1..=10_000,
            )?)?,
            limits: Limits {
                memory: number("SHELL_MEMORY_MB", args.memory_mb.as_deref(), MEMORY, 64..=MOST)?,
                pids: number("SHELL_PIDS", args.pids.as_deref(), PIDS, 16..=MOST)?,
                disk: number("SHELL_DISK_MB", args.disk_mb.as_deref(), DISK, 1..=MOST)?,
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

fn number(name: &str, text: Option<&str>, unset: u64, allowed: RangeInclusive<u64>) -> anyhow::Result<u64> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(unset);
    };
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    number.with_context(|| {
        let (least, most) = (allowed.start(), allowed.end());
        format!("{name} must be a whole number from {least} to {most}")
    })
}

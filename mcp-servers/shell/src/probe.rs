//! Which levels work here. A level works if a command that runs at it can do what it has to, and cannot read a file
//! outside of its directory.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{bail, ensure};
use uuid::Uuid;

use crate::args::Args;
use crate::calls::{Request, Runner, installed};
use crate::cgroup::Group;
use crate::error::Fault;
use crate::job::{Level, Sandbox};
use crate::launcher::Launcher;
use crate::root::{Owner, Root, check_not_readable};
use crate::settings::Settings;
use crate::users::Users;

/// The levels that are chosen automatically, the strictest first.
const AUTOMATIC: [Level; 2] = [Level::Bwrap, Level::Landlock];
/// In seconds. On a busy machine with cold files, a sandbox takes long to begin; a level that works must not be refused.
const TIMEOUT: u32 = 60;

const INSTALL: &str = "\
install bubblewrap (on Debian and Ubuntu: apt-get install bubblewrap) and allow user namespaces, or use Linux 6.7 or \
later with Landlock. SHELL_SANDBOX=host runs commands without a sandbox";

/// What the limit of memory is without control groups.
pub const UNGROUPED: &str = "\
memory is limited for each process and not for a command as a whole, and what sockets and pipes hold is not limited";

/// What was found about one level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The level.
    pub level: Level,
    /// Why it does not work; `None` if it works.
    pub problem: Option<String>,
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The level at which the server would run commands; `None` if it would not start.
    pub level: Option<Level>,
    /// The levels that were tried, the strictest first.
    pub findings: Vec<Finding>,
    /// The version of control groups that limit memory and processes. Without, the limits of the kernel do: memory for
    /// each process.
    pub cgroups: Option<u8>,
    /// Whether commands run as users of their own, since the server runs as root.
    pub has_users: bool,
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { level, problem } in &self.findings {
            match problem {
                None => writeln!(f, "{level}: works")?,
                Some(problem) => writeln!(f, "{level}: {problem}")?,
            }
        }
        Ok(())
    }
}

/// Finds out which levels work, by running a command at each, whatever the settings choose. It may run beside a server.
/// Fails if a setting is invalid.
pub async fn probe(args: Args, launcher: Launcher) -> anyhow::Result<Probe> {
    let settings = Settings::try_from(args)?;
    let runner = runner(&settings, launcher)?;
    let mut probe = Probe {
        level: None,
        findings: Vec::new(),
        cgroups: cgroups(&settings).ok(),
        has_users: runner.root().has_users(),
    };
    for level in AUTOMATIC
        .into_iter()
        .chain(settings.level.filter(|level| *level == Level::Host))
    {
        let sandbox = sandbox(&settings, level, probe.cgroups.is_some());
        let problem = attempt(&runner, &sandbox).await.err().map(|error| format!("{error:#}"));
        probe.findings.push(Finding { level, problem });
    }
    let allowed = |finding: &&Finding| {
        let chosen = settings
            .level
            .map_or(finding.level != Level::Host, |level| level == finding.level);
        chosen && finding.problem.is_none()
    };
    probe.level = probe.findings.iter().find(allowed).map(|finding| finding.level);
    Ok(probe)
}

/// What runs commands with these settings, and its sandbox. Fails if the level of the settings does not work; no other
/// level takes its place.
pub(crate) async fn choose(settings: &Settings, launcher: Launcher) -> anyhow::Result<(Runner, Sandbox)> {
    let runner = runner(settings, launcher)?;
    let cgroups = cgroups(settings);
    match &cgroups {
        Ok(version) => tracing::info!(version, "control groups limit memory and processes"),
        Err(error) => tracing::warn!("no control groups: {UNGROUPED}: {error:#}"),
    }
    let levels = settings.level.map_or(AUTOMATIC.to_vec(), |level| vec![level]);
    let mut problems = Vec::new();
    for level in levels {
        let sandbox = sandbox(settings, level, cgroups.is_ok());
        match attempt(&runner, &sandbox).await {
            Ok(()) => return Ok((runner, sandbox)),
            Err(error) => problems.push(format!("{level}: {error:#}")),
        }
    }
    let problems = problems.join("; ");
    match settings.level {
        None => bail!("commands cannot be contained here ({problems}). To use the shell server, {INSTALL}"),
        Some(level) => bail!("SHELL_SANDBOX is {level}, which does not work here ({problems}). To use it, {INSTALL}"),
    }
}

fn runner(settings: &Settings, launcher: Launcher) -> anyhow::Result<Runner> {
    check_not_readable(&settings.root)?;
    let root = Root::open(&settings.root, Users::of_this_process()?, settings.sessions)?;
    Ok(Runner::new(root, launcher, settings.limits))
}

fn cgroups(settings: &Settings) -> anyhow::Result<u8> {
    Group::check(&format!("probe-{}", Uuid::now_v7().simple()), settings.limits)
}

fn sandbox(settings: &Settings, level: Level, has_cgroups: bool) -> Sandbox {
    Sandbox {
        level,
        bwrap: (level == Level::Bwrap).then(|| installed("bwrap")).flatten(),
        has_cgroups,
        network: settings.network,
        read_only: settings.read_only.clone(),
    }
}

/// Runs a command that writes, reads, and tries to read what it may not.
async fn attempt(runner: &Runner, sandbox: &Sandbox) -> anyhow::Result<()> {
    if sandbox.level == Level::Bwrap {
        ensure!(sandbox.bwrap.is_some(), "bubblewrap is not installed");
    }
    let word = Uuid::now_v7().simple().to_string();
    let secret = runner.root().secret(&word)?;
    let command = format!(
        "set -e; echo {word} > probe-{word}; cat probe-{word}; rm probe-{word}; cat {} || true",
        quoted(&secret)
    );
    let request = Request {
        command,
        timeout: TIMEOUT,
        session: None,
        owner: Owner::default(),
        key: None,
        digest: String::new(),
    };
    let ended = runner.run(request, sandbox).await;
    let _ = fs::remove_file(&secret);
    let result = match ended {
        Ok(ended) => ended.result,
        Err(Fault::Refused(error)) => bail!("{}", error.message()),
        Err(Fault::Failed(error)) => return Err(error),
    };
    let said = result.stderr.lines().next().unwrap_or("without an error message");
    ensure!(!result.timed_out, "a command did not end within {TIMEOUT} s");
    ensure!(result.exit_code == Some(0), "a command failed: {said}");
    let mut lines = result.stdout.lines();
    ensure!(lines.next() == Some(&word), "a command did not write its file: {said}");
    ensure!(
        sandbox.level == Level::Host || lines.next().is_none(),
        "a command could read a file outside of its directory"
    );
    Ok(())
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

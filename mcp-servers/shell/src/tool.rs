//! `run_shell_command`: its description for models, how its arguments become a command, and its answers.

use std::sync::Arc;

use gavel_mcp_base::{Call, Fault, Kind, Tool, internal, invalid, shares, text, too_long};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::calls::{AT_ONCE, Request, Runner, blocking, sweep};
use crate::error::{self, limit_reached};
use crate::job::{CommandResult, Level, Sandbox};
use crate::launcher::Launcher;
use crate::probe::choose;
use crate::root::Owner;
use crate::settings::Settings;

/// The name of the tool.
pub const NAME: &str = "run_shell_command";

/// The longest command, in bytes.
const LONGEST: usize = 64 << 10;

const COMMON: &str = "\
Run a command with /bin/sh and wait for its end. It starts in the working directory of this session, which is also its \
home directory and keeps its files for the next command. Nothing can be typed: standard input is empty. Processes in \
the background end with the command. Of long output, the first 16 KiB and the last 112 KiB are returned. An exit code \
other than 0 is a result, not an error.";

const BWRAP: &str = "\
Sandbox: bwrap. The working directory is /work, the only place for lasting files; /tmp is empty at first and is gone \
at the end. /usr can be read, and nothing of other users or processes can be seen.";

const LANDLOCK: &str = "\
Sandbox: landlock. Only the working directory can be written to, there is no /tmp (set TMPDIR=$HOME if a program needs \
one) and no /proc; /usr can be read. Sockets cannot be opened unless the network is available.";

const HOST: &str = "\
Sandbox: none (host). The command can read and change everything that the user of the shell server can.";

/// What runs commands, and how.
#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) runner: Runner,
    pub(crate) sandbox: Sandbox,
    pub(crate) settings: Settings,
}

impl Shell {
    pub(crate) async fn new(settings: Settings, launcher: Launcher) -> anyhow::Result<Self> {
        let (runner, sandbox) = choose(&settings, launcher).await?;
        match sandbox.level {
            Level::Host => tracing::warn!(
                "SHELL_SANDBOX is host: commands run without a sandbox and can read and change what their user can"
            ),
            level => tracing::info!(%level, network = sandbox.network, "commands run in a sandbox"),
        }
        let root = runner.root().clone();
        blocking(move || sweep(&root)).await?;
        Ok(Self {
            runner,
            sandbox,
            settings,
        })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    /// The command, as for sh -c. Several lines are possible.
    #[schemars(extend("x-exact" = true))]
    command: String,
    #[schemars(range(min = 1))]
    timeout_seconds: Option<u32>,
}

/// All tools.
pub(crate) fn all(settings: &Settings, sandbox: &Sandbox) -> Vec<Tool<Shell>> {
    let tool = Tool::new(
        NAME,
        "Run a shell command",
        description(settings, sandbox),
        Kind::Acts,
        run,
    );
    let timeout = format!(
        "After this time the command is ended. {} when left out.",
        settings.timeout
    );
    vec![
        tool.open_world(sandbox.network || sandbox.level == Level::Host)
            .with_settings(safety(sandbox.level))
            .with_argument(
                "timeoutSeconds",
                json!({ "maximum": settings.timeout, "description": timeout }),
            ),
    ]
}

/// What the server says of its tool for gavel. Outside a sandbox a command can do all that the server's user can, so a
/// person approves each one. In a sandbox it has the files of its session alone.
pub fn safety(level: Level) -> Value {
    match level {
        Level::Host => json!({ "approval": "required" }),
        Level::Bwrap | Level::Landlock => json!({ "scope": {} }),
    }
}

/// What the description says of a level.
const fn about(level: Level) -> &'static str {
    match level {
        Level::Bwrap => BWRAP,
        Level::Landlock => LANDLOCK,
        Level::Host => HOST,
    }
}

/// The level of the server that describes its tool so.
pub(crate) fn level_of(description: &str) -> Option<Level> {
    let levels = [Level::Bwrap, Level::Landlock, Level::Host];
    levels.into_iter().find(|level| description.contains(about(*level)))
}

fn description(settings: &Settings, sandbox: &Sandbox) -> String {
    let level = about(sandbox.level);
    let network = match (sandbox.level, sandbox.network) {
        (Level::Host, _) => "",
        (_, true) => " The network is available.",
        (_, false) => " There is no network.",
    };
    let readable = match sandbox.read_only.is_empty() {
        true => String::new(),
        false => format!(
            " It can also read {}.",
            text::list(sandbox.read_only.iter().map(|path| path.to_string_lossy()))
        ),
    };
    let limits = settings.limits;
    let each = if sandbox.has_cgroups { "" } else { " for each process" };
    let [(_, at_once), ..] = shares::limits(AT_ONCE);
    format!(
        "{COMMON}\n\n{level}{readable}{network} Limits: {} s, {} MiB of memory{each}, {} processes, {} MiB of files in \
         the session; at once one command in a session, and {at_once} of one user.",
        settings.timeout, limits.memory, limits.pids, limits.disk
    )
}

/// A call that is dropped ends its command. Its next attempt returns what was kept.
async fn run(shell: Arc<Shell>, call: Call<Arguments>) -> Result<CommandResult, Fault> {
    let Call {
        arguments,
        meta,
        digest,
        ..
    } = call;
    let command = arguments.command;
    if text::is_blank(&command) {
        return Err(invalid("command", "is empty").into());
    }
    if command.len() > LONGEST {
        let error = too_long("command", command.len(), LONGEST, "bytes");
        return Err(error.and("Write the text into a file by several commands.").into());
    }
    let (session, deadline) = (meta.session_id()?, meta.deadline()?);
    let request = Request {
        command,
        timeout: arguments.timeout_seconds.unwrap_or(shell.settings.timeout),
        session: meta.owner()?,
        owner: Owner {
            user: meta.user()?.map(|user| user.as_str().to_owned()),
            until: deadline.filter(|_| session.is_some()).map(|until| until.0),
        },
        key: meta.idempotency_key()?,
        digest,
    };
    match shell.runner.run(request, &shell.sandbox).await {
        Ok(ended) => match ended.disk_full {
            Some(used) => Err(limit_reached(&ended, used, shell.settings.limits.disk).into()),
            None => Ok(ended.result),
        },
        Err(error::Fault::Refused(error)) => Err(error.into()),
        Err(error::Fault::Failed(error)) => {
            tracing::error!("a command was not run: {error:#}");
            Err(internal().into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The level of a running server is read from what it lists.
    #[test]
    fn each_level_is_known_by_its_description() {
        for level in [Level::Bwrap, Level::Landlock, Level::Host] {
            let description = format!("{COMMON}\n\n{} There is no network.", about(level));
            assert_eq!(level_of(&description), Some(level));
        }
        assert_eq!(level_of(COMMON), None);
    }
}

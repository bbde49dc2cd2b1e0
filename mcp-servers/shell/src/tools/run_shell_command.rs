//! `run_shell_command`

use gavel_mcp_base::schema::{self, Behaviour};
use gavel_mcp_base::{Arguments, Code, ToolError, invalid, missing, shares, text};
use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

use super::Call;
use crate::calls::{AT_ONCE, Request};
use crate::job::Sandbox;
use crate::level::Level;
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

pub(super) fn tool(settings: &Settings, sandbox: &Sandbox) -> Tool {
    let longest = settings.timeout;
    let arguments = json!({
        "command": { "type": "string", "description": "The command, as for sh -c. Several lines are possible." },
        "timeoutSeconds": {
            "type": "integer",
            "minimum": 1,
            "maximum": longest,
            "description": format!("After this time the command is ended. {longest} when left out.")
        }
    });
    let behaviour = Behaviour {
        read_only: false,
        destructive: true,
        idempotent: false,
        open_world: sandbox.network || sandbox.level == Level::Host,
    };
    let input = schema::input(arguments, &["command"]);
    let mut tool = schema::tool(NAME, "Run a shell command", COMMON, input, results(), behaviour);
    tool.description = Some(description(settings, sandbox).into());
    schema::with_settings(tool, safety(sandbox.level))
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

fn results() -> Value {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let levels = [Level::Bwrap, Level::Landlock, Level::Host].map(Level::name);
    let flag = |about: &str| json!({ "type": "boolean", "description": about });
    let properties = schema::properties([
        ("stdout", text("The standard output. What is not UTF-8 is replaced.")),
        ("stderr", text("The standard error.")),
        (
            "exitCode",
            json!({ "type": ["integer", "null"], "description": "null if the command was ended by a signal." }),
        ),
        (
            "signal",
            json!({ "type": ["string", "null"], "description": "The signal that ended the command, such as SIGKILL." }),
        ),
        (
            "timedOut",
            flag("Whether the command was ended since its time had passed."),
        ),
        (
            "interrupted",
            flag("Whether the command was ended by a cancellation, or with the server. Its output is then a part."),
        ),
        (
            "truncated",
            flag("Whether a part of the output is left out. The text says how many bytes."),
        ),
        (
            "sandbox",
            json!({
                "type": "string",
                "enum": levels,
                "description": "What contained the command."
            }),
        ),
    ]);
    let required = [
        "stdout",
        "stderr",
        "exitCode",
        "signal",
        "timedOut",
        "interrupted",
        "truncated",
        "sandbox",
    ];
    schema::output(properties, &required)
}

pub(super) fn request(arguments: Option<JsonObject>, call: Call, settings: &Settings) -> Result<Request, ToolError> {
    let arguments = Arguments::new(arguments, &["command", "timeoutSeconds"])?;
    let command = arguments.exact_text("command")?.ok_or_else(|| missing("command"))?;
    if text::is_blank(command) {
        return Err(invalid("command", "is empty"));
    }
    if command.len() > LONGEST {
        let words = format!("`command` has {} bytes; at most {LONGEST} are allowed.", command.len());
        return Err(ToolError::new(Code::TooLong, words)
            .and("Write the text into a file by several commands.")
            .about("command")
            .with("max", LONGEST)
            .with("length", command.len()));
    }
    Ok(Request {
        command: command.to_owned(),
        timeout: arguments
            .integer("timeoutSeconds", 1, settings.timeout)?
            .unwrap_or(settings.timeout),
        session: call.session,
        owner: call.owner,
        key: call.key,
        digest: call.digest,
    })
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

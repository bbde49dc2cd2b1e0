//! Command line options. All are text here, since an empty variable counts as unset: `mcp.json` passes on every
//! variable.

use std::ffi::OsString;

/// Options of the shell server.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// What contains commands: auto, bwrap, landlock or host [default: auto]
    ///
    /// auto is bwrap if it works, else landlock; if neither works, the server does not start. host contains nothing: a
    /// command can read and change all that the server's user can. It is never chosen automatically.
    #[arg(long, value_name = "LEVEL", env = "SHELL_SANDBOX")]
    pub sandbox: Option<String>,

    /// The directory for the sessions' files and the kept results
    ///
    /// [default: /var/lib/gavel/shell as root, else gavel/shell in XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "PATH", env = "SHELL_ROOT")]
    pub root: Option<OsString>,

    /// What commands may read beyond /usr: absolute paths, separated by colons
    #[arg(long, value_name = "PATHS", env = "SHELL_READ_ONLY")]
    pub read_only: Option<OsString>,

    /// Whether commands may use the network: off or on [default: off]
    #[arg(long, value_name = "STATE", env = "SHELL_NETWORK")]
    pub network: Option<String>,

    /// How long a command may take, in seconds, 1 to 600 [default: 120]
    #[arg(long, value_name = "SECONDS", env = "SHELL_TIMEOUT_SECONDS")]
    pub timeout_seconds: Option<String>,

    /// The memory of a command in MiB, at least 64 [default: 1024]
    #[arg(long, value_name = "MIB", env = "SHELL_MEMORY_MB")]
    pub memory_mb: Option<String>,

    /// The processes and threads of a command, at least 16 [default: 128]
    #[arg(long, value_name = "COUNT", env = "SHELL_PIDS")]
    pub pids: Option<String>,

    /// How many sessions may have files at once, 1 to 10000 [default: 64]
    #[arg(long, value_name = "COUNT", env = "SHELL_SESSIONS")]
    pub sessions: Option<String>,

    /// The files of a session in MiB, at least 1 [default: 1024]
    #[arg(long, value_name = "MIB", env = "SHELL_DISK_MB")]
    pub disk_mb: Option<String>,
}

impl Args {
    /// Examples for the end of a help text.
    pub const EXAMPLES: &'static str = "\
Examples:
  The strictest level that works here:
    gavel-mcp-shell

  No other level than bwrap, with one more directory to read, and ten minutes for each command:
    export SHELL_SANDBOX=bwrap
    export SHELL_READ_ONLY=/opt/toolchain
    export SHELL_TIMEOUT_SECONDS=600
    gavel-mcp-shell

Every setting is read from the environment too. RUST_LOG sets what is logged to standard error (default: \
info,rmcp=warn).";
}

//! Command line options.

use std::ffi::OsString;

use gavel_mcp_base::Secret;

/// Options of the task server.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// Serve MCP over streamable HTTP at this address (path /mcp) instead of standard input and output
    ///
    /// An address with a port, such as 127.0.0.1:8090. Port 0 uses a free port; the log shows it. Requires an identity
    /// secret or --insecure-user.
    #[arg(long, value_name = "ADDR")]
    pub http: Option<String>,

    /// The database for tasks: sqlite://PATH or postgres://USER:PASSWORD@HOST/DATABASE
    ///
    /// A missing SQLite file and its directories are created. sqlite://tasks.db, the default, is a path relative to the
    /// current directory, sqlite:///var/lib/tasks.db an absolute one.
    #[arg(long, value_name = "URL", env = "TASKS_DATABASE_URL", hide_env_values = true)]
    pub database: Option<String>,

    /// A file with the URL of the database, which may contain a password
    // Not a `PathBuf`, since clap rejects an empty one.
    #[arg(long, value_name = "PATH", env = "TASKS_DATABASE_URL_FILE")]
    pub database_file: Option<OsString>,

    /// The user if the client names none (stdio only)
    ///
    /// For desktop clients, which do not support _meta["gavel/user_id"].
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// The secret that signs identity tokens, at least 32 bytes (HTTP only)
    ///
    /// Prefer the environment or a file: other users of the machine can see a command line.
    #[arg(long, value_name = "SECRET", env = "GAVEL_IDENTITY_SECRET", hide_env_values = true)]
    pub identity_secret: Option<Secret>,

    /// A file with the identity secret
    #[arg(long, value_name = "PATH", env = "GAVEL_IDENTITY_SECRET_FILE")]
    pub identity_secret_file: Option<OsString>,

    /// The audience that an identity token must name [default: tasks]
    #[arg(long, value_name = "NAME")]
    pub audience: Option<String>,

    /// Host names under which HTTP clients may reach the server (repeatable, or separated by commas)
    ///
    /// Default: localhost, 127.0.0.1 and ::1. A name without a port allows every port; '*' disables the check. The
    /// check prevents web pages from reaching the server through a user's browser.
    #[arg(
        long = "allowed-host",
        value_name = "HOST",
        env = "TASKS_ALLOWED_HOSTS",
        value_delimiter = ','
    )]
    pub allowed_hosts: Vec<String>,

    /// Serve HTTP to one user without any identity check (loopback addresses only)
    #[arg(long, value_name = "NAME")]
    pub insecure_user: Option<String>,
}

impl Args {
    /// Examples for the end of a help text.
    pub const EXAMPLES: &'static str = "\
Examples:
  One user, from a desktop client (standard input and output):
    gavel-mcp-tasks --user me --database sqlite:///home/me/tasks.db

  Many users, over HTTP; each call carries a signed identity token:
    GAVEL_IDENTITY_SECRET_FILE=/run/secrets/identity \\
      gavel-mcp-tasks --http 0.0.0.0:8090 --allowed-host tasks.internal \\
      --database-file /run/secrets/tasks_database_url

  A trial on your own machine, without identity:
    gavel-mcp-tasks --http 127.0.0.1:8090 --insecure-user me

RUST_LOG sets what is logged to standard error (default: info,rmcp=warn).";
}

//! Options of the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use gavel_mcp_base::Secret;

/// Options of the task server.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Serve MCP over streamable HTTP at this address (path /mcp) instead of standard input and output
    ///
    /// An address with a port, such as 127.0.0.1:8090. Port 0 takes a free one; the log names it.
    /// Needs an identity secret, or --insecure-user.
    #[arg(long, value_name = "ADDR")]
    pub http: Option<String>,

    /// Where tasks are kept: sqlite://PATH or postgres://USER:PASSWORD@HOST/DATABASE
    ///
    /// A SQLite file and its directories are created when missing. sqlite://tasks.db is a path
    /// relative to the current directory, which is the default, sqlite:///var/lib/tasks.db an absolute one.
    #[arg(long, value_name = "URL", env = "TASKS_DATABASE_URL", hide_env_values = true)]
    pub database: Option<String>,

    /// A file that holds the URL of the database, which may carry a password
    // No `PathBuf`, since that may not be empty.
    #[arg(long, value_name = "PATH", env = "TASKS_DATABASE_URL_FILE")]
    pub database_file: Option<OsString>,

    /// The user whose tasks these are when the client names none (stdio only)
    ///
    /// For desktop clients, which know nothing of _meta["gavel/user_id"].
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// The secret that signs identity tokens, at least 32 bytes (HTTP only)
    ///
    /// Prefer the environment or a file: others can see a command line.
    #[arg(long, value_name = "SECRET", env = "GAVEL_IDENTITY_SECRET", hide_env_values = true)]
    pub identity_secret: Option<Secret>,

    /// A file that holds the identity secret
    #[arg(long, value_name = "PATH", env = "GAVEL_IDENTITY_SECRET_FILE")]
    pub identity_secret_file: Option<PathBuf>,

    /// The audience that an identity token has to name
    #[arg(long, value_name = "NAME", default_value = "tasks")]
    pub audience: String,

    /// Host names under which HTTP clients may reach the server (repeatable, or separated by commas)
    ///
    /// Default: localhost, 127.0.0.1 and ::1. A name without a port allows every port; '*' turns the
    /// check off. It keeps web pages from reaching the server through a user's browser.
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
  One person, from a desktop client (standard input and output):
    gavel-mcp-tasks --user me --database sqlite:///home/me/tasks.db

  Many users, over HTTP; each call carries a signed identity token:
    GAVEL_IDENTITY_SECRET_FILE=/run/secrets/identity \\
      gavel-mcp-tasks --http 0.0.0.0:8090 --allowed-host tasks.internal \\
      --database-file /run/secrets/tasks_database_url

  A try on one's own machine, without identity:
    gavel-mcp-tasks --http 127.0.0.1:8090 --insecure-user me

RUST_LOG sets what is logged to standard error (default: info,rmcp=warn).";
}

impl Default for Args {
    /// What the command line gives when it says nothing and the environment is empty.
    fn default() -> Self {
        Self {
            http: None,
            database: None,
            database_file: None,
            user: None,
            identity_secret: None,
            identity_secret_file: None,
            audience: "tasks".to_owned(),
            allowed_hosts: Vec::new(),
            insecure_user: None,
        }
    }
}
